"""Power by simulation: it is what campaigns have, and it refuses what cannot be separated at all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vigia_statistics import signed_rank, signed_rank_power, smallest_number


@pytest.mark.parametrize(("n", "effect", "margin", "confidence"), [(8, 0.8, 0.0, 0.95), (12, 1.0, 0.2, 0.99)])
def test_power_is_what_campaigns_have(n: int, effect: float, margin: float, confidence: float) -> None:
    """Beside campaigns that are judged one by one by the public function."""
    rng = np.random.default_rng(9)
    wins = 0
    for _ in range(600):
        shift = signed_rank(effect + rng.normal(0.0, 1.0, n), confidence).shift
        wins += shift.lower > margin
    found = signed_rank_power(n, effect, 1.0, margin=margin, confidence=confidence)
    assert found.separates == pytest.approx(wins / 600, abs=0.07)


def test_too_few_repetitions_separate_nothing_however_large_the_effect() -> None:
    """With 5, the smallest p-value is 2/32; with 6 it is 2/64."""
    assert signed_rank_power(5, 1e9, 1.0).separates == 0.0
    assert signed_rank_power(6, 1e9, 1.0).separates == 1.0
    assert signed_rank_power(10, 1e9, 1.0, confidence=1 - 0.05 / 30).separates == 0.0


def test_power_grows_with_repetitions_and_falls_with_noise() -> None:
    few, more = (signed_rank_power(n, 0.5, 1.0).separates for n in (10, 40))
    loud = signed_rank_power(40, 0.5, 2.0).separates
    assert few < more
    assert loud < more
    assert more > 0.8


def test_what_is_equal_is_found_so_with_a_margin_that_is_wide_enough() -> None:
    assert signed_rank_power(30, 1.0, 0.1, margin=0.2).equivalent > 0.99
    assert signed_rank_power(30, 1.0, 0.1, margin=0.0).equivalent == 0.0


def test_the_smallest_number_has_the_power_and_one_less_has_not() -> None:
    n = smallest_number(0.8, 0.3, 0.5, margin=0.05)
    assert n is not None
    assert signed_rank_power(n, 0.3, 0.5, margin=0.05).separates >= 0.8
    assert signed_rank_power(n - 1, 0.3, 0.5, margin=0.05).separates < 0.8


def test_what_no_number_separates() -> None:
    assert smallest_number(0.8, 0.1, 1.0, margin=0.1) is None, "the effect lies within the margin"
    assert smallest_number(0.8, 0.01, 1.0, most=50) is None


def test_the_normal_formula_is_near() -> None:
    """Beside the closed form for a t-test, which ranks follow at normal data."""
    n = smallest_number(0.8, 0.5, 1.0)
    assert n == pytest.approx(((1.96 + 0.84) / 0.5) ** 2 * math.pi / 3 + 2, abs=4)


@pytest.mark.parametrize(
    ("n", "effect", "deviation", "margin"), [(0, 1, 1, 0), (5, 0, 1, 0), (5, 1, 0, 0), (5, 1, 1, -1)]
)
def test_what_makes_no_sense_is_named(n: int, effect: float, deviation: float, margin: float) -> None:
    with pytest.raises(ValueError, match="n, effect, deviation, margin"):
        signed_rank_power(n, effect, deviation, margin=margin)
