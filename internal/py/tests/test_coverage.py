"""Simulated data sets: intervals cover what they claim, tests reject as often as they claim."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vigia_statistics import (
    Direction,
    Verdict,
    compare,
    judge,
    loss_interval,
    mean_interval,
    median_interval,
    minimum_detectable_shift,
    quantile_interval,
    rank_sum,
    signed_rank,
    welch,
    winner,
)

Draw = Callable[[np.random.Generator, int], np.ndarray]

SETS = 2000
"""Data sets per simulation: the standard error of a 95 % rate is 0.5 points."""


def _bimodal(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.7, rng.normal(20.0, 1.0, n), rng.normal(35.0, 2.0, n))


SHAPES: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(10.0, 2.0, n),
    "log-normal": lambda rng, n: rng.lognormal(3.0, 0.6, n),
    "bimodal": _bimodal,
    "heavy tail": lambda rng, n: rng.standard_cauchy(n),
}
MEDIANS = {"normal": 10.0, "log-normal": float(np.exp(3.0)), "heavy tail": 0.0}


@pytest.mark.parametrize("shape", MEDIANS)
def test_median_interval_covers_the_median(shape: str) -> None:
    rng = np.random.default_rng(1)
    attained = 0.0
    hits = 0
    for _ in range(SETS):
        interval = median_interval(SHAPES[shape](rng, 24))
        attained = interval.confidence
        hits += interval.lower <= MEDIANS[shape] <= interval.upper
    assert 0.95 <= attained < 0.98
    assert abs(hits / SETS - attained) < 0.015


def test_quantile_interval_covers_the_quantile() -> None:
    rng = np.random.default_rng(2)
    truth = float(np.exp(3.0 + 0.6 * 1.2815515655446004))
    intervals = [quantile_interval(SHAPES["log-normal"](rng, 60), 0.9) for _ in range(SETS)]
    hits = sum(i.lower <= truth <= i.upper for i in intervals)
    assert abs(hits / SETS - intervals[0].confidence) < 0.015


@pytest.mark.parametrize("sizes", [(12, 15), (45, 40)], ids=["exact", "approximate"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shift_interval_covers_the_shift(shape: str, sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    hits = rejected = 0
    for _ in range(SETS):
        a, b = SHAPES[shape](rng, sizes[0]) + 1.5, SHAPES[shape](rng, sizes[1])
        shift = rank_sum(a, b).shift
        hits += shift.lower <= 1.5 <= shift.upper
        rejected += rank_sum(a - 1.5, b).p_value <= 0.05
    assert 0.935 <= hits / SETS <= 0.97
    assert rejected / SETS <= 0.062


def test_intervals_and_tests_stay_honest_under_ties() -> None:
    rng = np.random.default_rng(4)
    sets = 800  # each has ties of its own, and so a null distribution of its own
    hits = rejected = paired_rejected = 0
    for _ in range(sets):
        a, b = rng.poisson(2.0, 20).astype(float), rng.poisson(2.0, 20).astype(float)
        ranks, signed = rank_sum(a, b), signed_rank(a - b)
        hits += ranks.shift.lower <= 0.0 <= ranks.shift.upper
        rejected += ranks.p_value <= 0.05
        paired_rejected += signed.p_value <= 0.05
    assert hits / sets >= 0.95
    assert 0.025 <= rejected / sets <= 0.065
    assert 0.025 <= paired_rejected / sets <= 0.065


@pytest.mark.parametrize("n", [14, 101])
def test_paired_interval_covers_the_shift_of_symmetric_differences(n: int) -> None:
    rng = np.random.default_rng(5)
    hits = rejected = 0
    for _ in range(SETS):
        common = rng.lognormal(3.0, 1.0, n)  # what both probes of a pair meet
        differences = (common + rng.normal(2.0, 1.0, n)) - (common + rng.normal(0.0, 1.0, n))
        interval = signed_rank(differences).shift
        hits += interval.lower <= 2.0 <= interval.upper
        rejected += signed_rank(differences - 2.0).p_value <= 0.05
    assert 0.93 <= hits / SETS <= 0.972
    assert rejected / SETS <= 0.065


def test_mean_and_welch_intervals_cover_on_normal_data() -> None:
    rng = np.random.default_rng(6)
    mean_hits = welch_hits = 0
    for _ in range(SETS):
        a, b = rng.normal(5.0, 1.0, 10), rng.normal(3.0, 4.0, 25)
        m, w = mean_interval(a), welch(a, b).difference
        mean_hits += m.lower <= 5.0 <= m.upper
        welch_hits += w.lower <= 2.0 <= w.upper
    assert 0.935 <= mean_hits / SETS <= 0.965
    assert 0.935 <= welch_hits / SETS <= 0.965


def test_loss_interval_covers_the_loss_ratio() -> None:
    rng = np.random.default_rng(7)
    counts = rng.binomial(3000, 0.002, SETS)
    hits = 0
    for lost in counts:
        interval = loss_interval(int(lost), 3000)
        hits += interval.lower <= 0.002 <= interval.upper
    assert hits / SETS >= 0.95


def test_identical_paths_stay_a_tie_at_the_nominal_rate() -> None:
    """Four identical paths, six pairs: some winner in at most 5 % of 1 000 families."""
    rng = np.random.default_rng(8)
    names = ["w", "x", "y", "z"]
    named = crowned = 0
    for _ in range(1000):
        data = {name: rng.lognormal(3.0, 0.5, 15) for name in names}
        family = judge(
            [compare(a, b, data[a], data[b]) for i, a in enumerate(names) for b in names[i + 1 :]],
            Direction.LOWER,
        )
        named += any(c.verdict in (Verdict.A, Verdict.B) for c in family)
        crowned += winner(names, family) is not None
    assert named / 1000 <= 0.064
    assert crowned <= named


def test_the_minimum_detectable_shift_is_found_with_the_stated_power() -> None:
    rng = np.random.default_rng(9)
    found = 0
    detectable = 2.0 * minimum_detectable_shift(
        np.array([-0.6745, -0.67449, 0.67449, 0.6745]).repeat(5),
        np.array([-0.6745, -0.67449, 0.67449, 0.6745]).repeat(5),
    )
    for _ in range(SETS):
        a, b = rng.normal(detectable, 2.0, 20), rng.normal(0.0, 2.0, 20)
        found += rank_sum(a, b).p_value <= 0.05
    assert 0.76 <= found / SETS <= 0.84
