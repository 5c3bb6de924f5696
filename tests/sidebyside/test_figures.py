"""Ratios, verdicts and exponents: right where the answer is known, silent where there is none."""

from __future__ import annotations

import math

import pytest

from sidebyside.figures import LESS, MORE, Figure, Growth, exponent, ratio


def figure(ours: list[float], theirs: list[float], better: str = LESS) -> Figure:
    return Figure("p", "what", "ms", ours, "peer", theirs, better)


def test_a_ratio_is_of_medians_and_its_interval_holds_it() -> None:
    found = ratio([2.0, 4.0, 3.0], [1.0, 1.5, 2.0])
    assert found is not None and found.value == 2.0
    assert found.low <= 2.0 <= found.high and found.low >= 1.0 and found.high <= 4.0
    assert found == ratio([2.0, 4.0, 3.0], [1.0, 1.5, 2.0]), "the same figures have the same interval"


def test_a_ratio_of_one_value_has_no_interval() -> None:
    found = ratio([2.0], [1.0])
    assert found is not None and found.value == 2.0 and math.isnan(found.low)
    assert figure([2.0], [1.0]).verdict() == "n is too small to tell"


@pytest.mark.parametrize(("ours", "theirs"), [([], [1.0]), ([1.0], []), ([1.0], [0.0]), ([1.0], [math.nan])])
def test_there_is_no_ratio_to_nothing(ours: list[float], theirs: list[float]) -> None:
    assert ratio(ours, theirs) is None


def test_values_that_nobody_knows_are_left_out() -> None:
    found = ratio([2.0, math.nan], [1.0])
    assert found is not None and found.value == 2.0


@pytest.mark.parametrize(
    ("ours", "theirs", "better", "verdict"),
    [
        ([1.0, 1.1, 0.9], [2.0, 2.1, 1.9], LESS, "ours is better"),
        ([2.0, 2.1, 1.9], [1.0, 1.1, 0.9], LESS, "the peer is better"),
        ([2.0, 2.1, 1.9], [1.0, 1.1, 0.9], MORE, "ours is better"),
        ([1.0, 1.1, 0.9], [2.0, 2.1, 1.9], MORE, "the peer is better"),
        ([1.0, 2.0, 3.0], [1.1, 2.1, 2.9], LESS, "no difference seen"),
        ([0.0, 0.0], [0.0, 0.0], LESS, "no difference"),
        ([3.0, 3.0], [0.0, 0.0], LESS, "the peer is better"),
        ([3.0, 3.0], [0.0, 0.0], MORE, "ours is better"),
        ([3.0], [], LESS, ""),
    ],
)
def test_who_is_better_is_said_either_way(
    ours: list[float], theirs: list[float], better: str, verdict: str
) -> None:
    assert figure(ours, theirs, better).verdict() == verdict


def test_a_count_needs_no_second_measurement() -> None:
    assert Figure("p", "misses", "", [1.0], "peer", [9.0], exact=True).verdict() == "ours is better"
    assert Figure("p", "misses", "", [9.0], "peer", [9.0], exact=True).verdict() == "no difference"


def test_an_exponent_is_found_exactly() -> None:
    found = exponent([(x, 3.0 * x**1.5) for x in (10, 100, 1000, 5000)])
    assert found is not None and found.n == 4
    assert (
        found.value == pytest.approx(1.5)
        and found.low == pytest.approx(1.5)
        and found.high == pytest.approx(1.5)
    )


def test_an_exponent_takes_three_sizes() -> None:
    assert exponent([(1, 1.0), (2, 2.0), (2, 2.1)]) is None
    assert exponent([(1, 1.0), (2, 2.0), (3, 0.0)]) is None, "nothing has no logarithm"


@pytest.mark.parametrize(
    ("power", "note", "verdict"),
    [
        (2.0, "", "faster than its unit: NOT EXPLAINED"),
        (2.0, "every node knows every other", "faster than its unit"),
        (0.5, "", "slower than its unit"),
    ],
)
def test_growth_beyond_its_unit_has_to_be_explained(power: float, note: str, verdict: str) -> None:
    noise = (0.98, 1.0, 1.02)
    points = {size: [size**power * f for f in noise] for size in (10, 100, 1000)}
    g = Growth("growth", "x", "s", "units", points, note)
    assert g.verdict() == verdict
    assert g.last() == pytest.approx(power, abs=0.02)


def test_growth_that_noise_hides_is_called_so() -> None:
    points = {10: [10.0, 30.0], 100: [100.0, 40.0], 1000: [1000.0, 3000.0]}
    assert Growth("growth", "x", "s", "units", points).verdict() == "as its unit, as far as can be told"
    assert Growth("growth", "x", "s", "units", {10: [1.0]}).verdict() == "too few sizes"
    assert math.isnan(Growth("growth", "x", "s", "units", {10: [1.0]}).last())
