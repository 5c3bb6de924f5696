"""Waiting: the time counts, a pause of the machine does not."""

from __future__ import annotations

import pytest

from vigia_service.patience import Patience


class Clock:
    """Time as a test sets it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def over_after(patience: Patience, clock: Clock, *steps: float) -> list[bool]:
    """Look after each of so many seconds."""
    found = []
    for seconds in steps:
        clock.now += seconds
        found.append(patience.over())
    return found


def test_it_is_over_when_the_seconds_are() -> None:
    clock = Clock()
    patience = Patience(3.0, clock)
    assert patience.seconds == 3.0
    assert over_after(patience, clock, 0.0, 1.0, 1.5, 0.25, 0.25, 5.0) == [False] * 4 + [True] * 2


def test_no_time_is_over_at_the_first_look() -> None:
    assert Patience(0.0, Clock()).over()


@pytest.mark.parametrize("pause", [11.0, 120.0, 86_400.0])
def test_a_clock_that_jumped_counts_as_one_slow_look(pause: float) -> None:
    clock = Clock()
    patience = Patience(30.0, clock)
    assert over_after(patience, clock, 1.0, pause, 1.0, 1.0) == [False] * 4
    assert over_after(patience, clock, *[1.0] * 17) == [False] * 16 + [True]


def test_looks_that_are_slow_use_it_up() -> None:
    clock = Clock()
    patience = Patience(30.0, clock)
    assert over_after(patience, clock, *[9.0] * 4) == [False, False, False, True]
