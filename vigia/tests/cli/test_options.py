"""Durations, rates and numbers on the command line: what is refused is refused at once, with the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vigia.cli.options import Duration, Number, Rate

Vigia = Callable[..., Any]
LONG = Duration("1s", "366d", "30s, 15m, 1h or 1d")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("1500ms", 1.5), ("5m", 300.0), ("1.5h", 5400.0), ("1d", 86400.0), ("366d", 31_622_400.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert LONG.convert(text, None, None) == seconds


NOT_A_DURATION = [
    "",
    "5",
    "-5m",
    "+5m",
    "5 m",
    "5min",
    "nan",
    "nans",
    "inf",
    "infs",
    "1e3s",
    "m",
    "0x5s",
    "\u0665m",
]


@pytest.mark.parametrize("text", NOT_A_DURATION)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a duration; write for example 30s, 15m, 1h or 1d"):
        LONG.convert(text, None, None)


@pytest.mark.parametrize("text", ["0s", "0.5s", "999ms", "367d", "999999999999d"])
def test_durations_out_of_range(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f'"{text}" is out of range; write 1s to 366d'):
        LONG.convert(text, None, None)


@pytest.mark.parametrize("option", ["--since", "--window", "--against"])
@pytest.mark.parametrize("text", ["-5m", "0s", "nan", "5", "9999d", "1e9s"])
def test_compare_refuses_a_duration_without_asking_anybody(vigia: Vigia, option: str, text: str) -> None:
    done = vigia("compare", "--prometheus", "http://127.0.0.1:1", option, text)
    assert done.status == 2
    assert f"Invalid value for '{option}': \"{text}\" is" in done.stderr


RATES = Rate("1kbit", "1Gbit")


@pytest.mark.parametrize("text", ["1kbit", "400Mbit", "1Gbit", "1.5Mbit", "8000bit"])
def test_rates(text: str) -> None:
    assert RATES.convert(text, None, None) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *(
            (t, "is not a rate; write for example 200Mbit")
            for t in ("", "5", "-1Mbit", "nanbit", "1MB", "1e6bit")
        ),
        *(
            (t, "is out of range; write 1kbit to 1Gbit")
            for t in ("0bit", "0Mbit", "999bit", "1001Mbit", "2Gbit")
        ),
    ],
)
def test_rates_that_are_refused(text: str, problem: str) -> None:
    with pytest.raises(click.BadParameter, match=problem):
        RATES.convert(text, None, None)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "-inf", "120.1", "1e300"])
def test_numbers_out_of_range(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f'"{text}" is out of range; write above 0, at most 120'):
        Number(0, 120).convert(text, None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--rate", "0Mbit"), "'--rate': \"0Mbit\" is out of range; write 1kbit to 1Gbit"),
        (("--rate", "fast"), "'--rate': \"fast\" is not a rate"),
        (("--rate", "2Gbit"), "'--rate': \"2Gbit\" is out of range"),
        (("--seconds", "nan"), "'--seconds': \"nan\" is out of range; write above 0, at most 120"),
        (("--seconds", "soon"), "'--seconds': \"soon\" is not a number"),
        (("--seconds", "1e9"), "'--seconds': \"1e9\" is out of range"),
        (("--size", "17"), "'--size': 17 is not in the range 18<=x<=1472"),
        (("--size", "big"), "'--size': 'big' is not a valid integer range"),
    ],
)
def test_a_flood_is_refused_before_the_lab_is_looked_at(
    vigia: Vigia, change: tuple[str, str], message: str
) -> None:
    words = {
        "--tenant": "red",
        "--path": "ovs-gre",
        "--rate": "1Mbit",
        "--seconds": "1",
        change[0]: change[1],
    }
    done = vigia("flood", "--lab", "never", *(w for pair in words.items() for w in pair))
    assert done.status == 2
    assert f"Invalid value for {message}" in done.stderr


@given(st.text(max_size=40))
def test_any_text_is_a_value_within_its_bounds_or_refused(text: str) -> None:
    for kind, low, high in ((LONG, 1.0, 366 * 86400.0), (Number(0, 120), 0.0, 120.0)):
        try:
            value = kind.convert(text, None, None)
        except click.BadParameter as e:
            assert "; write " in e.message
        else:
            assert low <= value <= high
