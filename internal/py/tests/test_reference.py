"""The same answers as R and SciPy, and as brute force where neither has one."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vigia_statistics import (
    ecdf_band,
    holm,
    loss_interval,
    mean_interval,
    median_interval,
    minimum_detectable_loss,
    quantile_interval,
    rank_sum,
    signed_rank,
    welch,
)
from vigia_statistics.selection import FEW, Pairs

REFERENCE: dict[str, Any] = json.loads(
    Path(__file__).with_name("testdata").joinpath("reference.json").read_text()
)
"""Written by R with testdata/reference.R."""


def _named(key: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in REFERENCE[key]]


@pytest.mark.parametrize("case", _named("two"))
def test_rank_sum_and_welch_agree_with_r(case: dict[str, Any]) -> None:
    found = rank_sum(case["a"], case["b"])
    assert found.p_value == pytest.approx(case["p"][0], rel=1e-9)
    assert found.superiority * len(case["a"]) * len(case["b"]) == pytest.approx(case["u"][0])
    if "shift" in case:
        assert found.exact
        assert found.shift.estimate == pytest.approx(case["shift"][0], abs=1e-12)
        assert [found.shift.lower, found.shift.upper] == pytest.approx(case["interval"], abs=1e-12)
    beside = welch(case["a"], case["b"])
    assert beside.p_value == pytest.approx(case["welch_p"][0], rel=1e-9)
    assert beside.degrees_of_freedom == pytest.approx(case["welch_df"][0])
    assert [beside.difference.lower, beside.difference.upper] == pytest.approx(case["welch_interval"])


@pytest.mark.parametrize("case", _named("paired"))
def test_signed_rank_agrees_with_r(case: dict[str, Any]) -> None:
    found = signed_rank(case["d"])
    assert found.p_value == pytest.approx(case["p"][0], rel=1e-9)
    if "shift" in case:
        assert found.shift.estimate == pytest.approx(case["shift"][0], abs=1e-12)
        assert [found.shift.lower, found.shift.upper] == pytest.approx(case["interval"], abs=1e-12)


def test_exact_p_values_agree_with_scipy() -> None:
    rng = np.random.default_rng(0)
    for m, n in [(2, 3), (8, 8), (5, 20), (30, 29)]:
        a, b = rng.normal(0.3, 1.0, m), rng.normal(0.0, 1.0, n)
        expected = stats.mannwhitneyu(a, b, method="exact").pvalue
        assert rank_sum(a, b).p_value == pytest.approx(float(expected), rel=1e-9)
        d = rng.normal(0.2, 1.0, m + n)
        assert signed_rank(d).p_value == pytest.approx(
            float(stats.wilcoxon(d, method="exact").pvalue), rel=1e-9
        )


def test_exact_p_value_under_ties_is_that_of_all_permutations() -> None:
    a, b = [1.0, 2.0, 2.0, 5.0], [2.0, 3.0, 5.0, 5.0, 6.0]
    ranks = np.asarray(stats.rankdata(a + b))
    sums = [sum(c) for c in itertools.combinations(ranks, len(a))]
    observed = ranks[: len(a)].sum()
    low = np.mean([s <= observed + 1e-9 for s in sums])
    high = np.mean([s >= observed - 1e-9 for s in sums])
    assert rank_sum(a, b).p_value == pytest.approx(min(1.0, 2 * min(low, high)))


def test_exact_signed_rank_under_ties_is_that_of_all_signs() -> None:
    d = np.array([1.0, 1.0, -1.0, 2.0, 2.0, 3.0, 0.0])
    nonzero = d[d != 0]
    ranks = np.asarray(stats.rankdata(np.abs(nonzero)))
    sums = [
        sum(r for r, s in zip(ranks, signs, strict=True) if s)
        for signs in itertools.product([0, 1], repeat=6)
    ]
    observed = ranks[nonzero > 0].sum()
    low, high = np.mean([s <= observed for s in sums]), np.mean([s >= observed for s in sums])
    found = signed_rank(d)
    assert found.p_value == pytest.approx(min(1.0, 2 * min(low, high)))
    assert found.pairs == 6


def test_no_difference_at_all_is_no_evidence() -> None:
    assert rank_sum([3.0] * 70, [3.0] * 70).p_value == 1.0
    assert rank_sum([3.0] * 4, [3.0] * 4).p_value == 1.0
    assert signed_rank([0.0, 0.0]).p_value == 1.0
    assert welch([3.0, 3.0], [3.0, 3.0]).p_value == 1.0
    assert welch([4.0, 4.0], [3.0, 3.0]).p_value == 0.0


def test_shifts_move_with_the_data_and_turn_with_the_sides() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=17), rng.normal(size=21)
    base, moved, turned = rank_sum(a, b).shift, rank_sum(a + 7.0, b).shift, rank_sum(b, a).shift
    assert moved.estimate == pytest.approx(base.estimate + 7.0)
    assert (turned.estimate, turned.lower, turned.upper) == pytest.approx(
        (-base.estimate, -base.upper, -base.lower)
    )
    assert rank_sum(rng.permutation(a), b).shift == base


def test_median_interval_uses_the_ranks_of_the_tables() -> None:
    values = list(range(1, 21))
    interval = median_interval(values)
    assert (interval.lower, interval.upper) == (6.0, 15.0)
    assert interval.confidence == pytest.approx(0.9586, abs=1e-4)
    thirty = median_interval(list(range(1, 31)))
    assert (thirty.lower, thirty.upper, round(thirty.confidence, 3)) == (10.0, 21.0, 0.957)


def test_a_sample_too_small_says_so_in_its_confidence() -> None:
    interval = median_interval([1.0, 2.0, 3.0])
    assert (interval.lower, interval.upper) == (1.0, 3.0)
    assert interval.confidence == pytest.approx(0.75)
    assert quantile_interval(list(range(100)), 0.999).confidence < 0.2


def test_mean_interval_is_students() -> None:
    x = [4.1, 3.9, 5.0, 4.4, 4.8]
    low, high = stats.t.interval(0.99, 4, loc=np.mean(x), scale=stats.sem(x))
    found = mean_interval(x, 0.99)
    assert (found.lower, found.upper) == pytest.approx((low, high))


def test_ecdf_band_has_massarts_width() -> None:
    x, level, low, high = ecdf_band(np.arange(10_000.0)[::-1], 0.99)
    assert x[0] == 0.0 and level[-1] == 1.0
    assert (high - level)[100] == pytest.approx(0.0163, abs=1e-4)
    assert low[0] == 0.0 and high[-1] == 1.0


@pytest.mark.parametrize("case", REFERENCE["loss"], ids=lambda c: f"{c['lost']} of {c['sent']}")
def test_loss_interval_agrees_with_r(case: dict[str, Any]) -> None:
    found = loss_interval(case["lost"], case["sent"])
    assert [found.lower, found.upper] == pytest.approx(case["interval"], rel=1e-9)


def test_minimum_detectable_loss_is_the_rule_of_three() -> None:
    assert minimum_detectable_loss(10_000) == pytest.approx(3.0 / 10_000, rel=0.002)
    assert minimum_detectable_loss(10_000, 0.99) == pytest.approx(4.6e-4, rel=0.002)
    assert minimum_detectable_loss(0) == 1.0


def test_holm_agrees_with_r() -> None:
    assert holm(REFERENCE["holm"]["p"]) == pytest.approx(REFERENCE["holm"]["adjusted"])
    assert holm([]).size == 0


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "tied"])
def test_selection_among_many_pairs_is_exact(ties: bool) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.lognormal(size=1400), rng.lognormal(size=900)
    if ties:
        x, y = np.floor(x), np.floor(y)
    pairs, walsh = Pairs(x, -y), Pairs(np.concatenate([x, y[:100]]))
    assert len(pairs) > FEW and len(walsh) > FEW
    every = np.sort(np.subtract.outer(x, y), axis=None)
    joined = np.concatenate([x, y[:100]])
    sums = np.sort(np.add.outer(joined, joined)[np.triu_indices(1500)])
    for k in (1, 2, 1000, len(every) // 2, len(every) - 1, len(every)):
        assert pairs.smallest(k) == every[k - 1]
    for k in (1, 77, len(sums) // 3, len(sums)):
        assert walsh.smallest(k) == sums[k - 1]


def test_bad_samples_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="a: has 0 values; at least 1"):
        rank_sum([], [1.0])
    with pytest.raises(ValueError, match="b: holds NaN or infinity"):
        rank_sum([1.0], [float("nan")])
    with pytest.raises(ValueError, match="values: has 2 dimensions"):
        median_interval(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"confidence: 95 is outside \(0, 1\)"):
        rank_sum([1.0], [1.0], 95)
    with pytest.raises(ValueError, match="5 of 4; need 0 <= lost <= sent"):
        loss_interval(5, 4)
    with pytest.raises(ValueError, match="p_values: holds a value outside"):
        holm([1.2])
    with pytest.raises(ValueError, match=r"q: 1.0 is outside \(0, 1\)"):
        quantile_interval([1.0], 1.0)
