"""Intervals of means within the possible range: they cover, and they never leave it."""

from __future__ import annotations

import numpy as np
import pytest

from vigia_statistics import bootstrap_interval, geometric_interval, mean_interval


def test_a_geometric_interval_is_students_of_the_logarithms() -> None:
    values = [1.0, 10.0, 100.0]
    i = geometric_interval(values, 0.95)
    logs = mean_interval(np.log(values), 0.95)
    assert i.estimate == pytest.approx(10.0)
    assert (i.lower, i.upper) == (pytest.approx(np.exp(logs.lower)), pytest.approx(np.exp(logs.upper)))
    assert i.lower > 0 > mean_interval(values, 0.95).lower, "where Student's own reaches below zero"


def test_a_geometric_interval_covers_the_median_of_a_log_normal() -> None:
    rng = np.random.default_rng(3)
    found = [geometric_interval(rng.lognormal(2.0, 0.8, 8)) for _ in range(2000)]
    covered = sum(i.lower <= np.exp(2.0) <= i.upper for i in found) / len(found)
    assert covered == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 2.0]])
def test_what_is_not_positive_has_no_geometric_mean(values: list[float]) -> None:
    with pytest.raises(ValueError, match="holds zero or less; a geometric mean needs positive values"):
        geometric_interval(values)


def test_a_bootstrap_interval_stays_within_the_values() -> None:
    losses = [0.0, 0.0, 0.0, 0.0, 0.9]
    i = bootstrap_interval(losses)
    assert i.estimate == pytest.approx(0.18)
    assert 0.0 <= i.lower <= i.estimate <= i.upper <= 0.9
    assert mean_interval(losses).lower < 0, "where Student's own leaves the range"
    assert bootstrap_interval(losses) == i, "the same values give the same interval"


def test_a_bootstrap_interval_covers_the_mean() -> None:
    rng = np.random.default_rng(4)
    found = [bootstrap_interval(rng.beta(2, 5, 20), seed=n) for n in range(400)]
    covered = sum(i.lower <= 2 / 7 <= i.upper for i in found) / len(found)
    assert 0.90 <= covered <= 0.98


def test_values_that_are_equal_have_no_width() -> None:
    i = bootstrap_interval([1.0, 1.0, 1.0])
    assert (i.lower, i.estimate, i.upper) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="at least 2 are needed"):
        bootstrap_interval([1.0])
