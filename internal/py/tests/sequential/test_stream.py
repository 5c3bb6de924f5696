"""Running sums against the whole series at once, and how many windows a dependent one is worth."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vigia_statistics.samples import Floats
from vigia_statistics.sequential.plain import arrays, plain
from vigia_statistics.sequential.stream import LEVELS, Stream

VALUES = st.lists(st.floats(-10.0, 10.0) | st.just(float("nan")), min_size=1, max_size=60)


def _fed(values: Floats | list[float], ridge: float = 0.0, caution: float = 0.0) -> Stream:
    out = Stream(1, ridge, caution)
    for v in values:
        out.update(np.array([v]))
    return out


def _autoregression(rng: np.random.Generator, r: float, steps: int, size: int) -> Floats:
    x = np.empty((steps, size))
    x[0] = rng.normal(size=size)
    for i in range(1, steps):
        x[i] = r * x[i - 1] + np.sqrt(1.0 - r * r) * rng.normal(size=size)
    return x


@given(VALUES)
def test_mean_and_variance_are_those_of_the_present_values(values: list[float]) -> None:
    stream = _fed(values)
    present = np.array([v for v in values if np.isfinite(v)])
    mean, variance, effective = stream.moments()
    if not present.size:
        assert np.isnan(mean[0]) and np.isnan(stream.mean[0]) and effective[0] == 0.0
        return
    assert mean[0] == pytest.approx(present.mean(), abs=1e-9)
    assert variance[0] == pytest.approx(present.var(), abs=1e-7)
    assert 0.0 < effective[0] <= present.size


@given(VALUES)
def test_correlation_is_that_of_neighbours_around_the_mean(values: list[float]) -> None:
    present = np.array([v for v in values if np.isfinite(v)])
    if present.size < 5 or present.std() < 1e-3:
        return
    n, centred = present.size, present - present.mean()
    r = max(float((centred[1:] * centred[:-1]).sum() / (centred**2).sum()), 0.0)
    r = min(r + (1.0 + 3.0 * r) / n, 0.985)
    _, _, effective = _fed(values).moments()
    assert effective[0] == pytest.approx(n * (1.0 - r) / (1.0 + r), rel=1e-3), "before batches say more"


@given(VALUES)
def test_a_missing_window_changes_nothing(values: list[float]) -> None:
    present = [v for v in values if np.isfinite(v)]
    if present:
        assert [m[0] for m in _fed(values).moments()] == pytest.approx(
            [m[0] for m in _fed(present).moments()]
        )


def test_values_far_from_zero_lose_no_digits() -> None:
    """Nanoseconds of difference between paths of seconds: sums of squares from 0 would have lost them."""
    rng = np.random.default_rng(1)
    small = rng.normal(0.0, 1e-9, 500)
    _, variance, _ = _fed(1.0 + small).moments()
    assert variance[0] == pytest.approx(small.var(), rel=1e-4)


@pytest.mark.parametrize("r", [0.0, 0.5, 0.8])
def test_a_long_autoregression_is_worth_what_theory_says(r: float) -> None:
    rng = np.random.default_rng(2)
    stream = Stream(50, 0.0, 0.0)
    for x in _autoregression(rng, r, 4000, 50):
        stream.update(x)
    _, variance, effective = stream.moments()
    assert np.median(variance) == pytest.approx(1.0, rel=0.1)
    assert np.median(effective) == pytest.approx(4000.0 * (1.0 - r) / (1.0 + r), rel=0.15)


def test_batches_see_what_neighbours_do_not() -> None:
    """Noise on top of a slow wander: neighbours hardly correlate, but the mean strays with the wander."""
    rng = np.random.default_rng(3)
    stream = Stream(40, 0.0, 0.0)
    for wander in _autoregression(rng, 0.99, 8000, 40):
        stream.update(0.4 * wander + rng.normal(size=40))
    _, _, effective = stream.moments()
    by_neighbours = 8000.0 * (1.0 - 0.16 / 1.16) / (1.0 + 0.16 / 1.16)
    true = 8000.0 * 1.16 / (0.16 * 199.0 + 1.0)
    assert true < np.median(effective) < 0.25 * by_neighbours, "for sure, so less than all of it"


def test_caution_counts_fewer_and_less_so_with_more_windows() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=1000)
    few = _fed(values[:20], caution=1.0).moments()[2][0] / _fed(values[:20]).moments()[2][0]
    many = _fed(values, caution=1.0).moments()[2][0] / _fed(values).moments()[2][0]
    assert few < 0.8 < many < 1.0


def test_batches_are_the_means_of_their_windows() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=1 << 6)
    stream = _fed(values)
    shifted = values - values[0]
    for level in range(6):
        means = shifted.reshape(-1, 2 ** (level + 1)).mean(axis=1)
        assert stream.count[level, 0] == means.size
        assert stream.batch_total[level, 0] == pytest.approx(means.sum())
        assert stream.batch_squares[level, 0] == pytest.approx((means**2).sum())
    assert np.isnan(stream.open[5, 0]) and np.isfinite(stream.open[6, 0]) and LEVELS > 6


def test_series_side_by_side_are_the_same_as_alone() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(size=(100, 3))
    values[rng.random((100, 3)) < 0.2] = np.nan
    together = Stream(3, 0.1, 0.5)
    for row in values:
        together.update(row)
    for i in range(3):
        alone = _fed(values[:, i], 0.1, 0.5)
        assert [m[i] for m in together.moments()] == pytest.approx([m[0] for m in alone.moments()])


def test_equal_values_are_not_infinitely_sure() -> None:
    """Medians from histograms repeat: the ridge stands for the resolution."""
    _, variance, _ = _fed([0.3] * 10, ridge=0.05).moments()
    assert variance[0] == pytest.approx(0.05**2 / 10)


def test_state_goes_through_json() -> None:
    rng = np.random.default_rng(7)
    stream = _fed(rng.normal(size=37))
    data = json.loads(json.dumps(plain(stream.state()), allow_nan=False))
    other = Stream(1, 0.0, 0.0)
    other.restore(arrays("stream", data, other.state()))
    more = rng.normal(size=20)
    for v in more:
        stream.update(np.array([v]))
        other.update(np.array([v]))
    assert plain(stream.state()) == plain(other.state())
    assert [m[0] for m in stream.moments()] == [m[0] for m in other.moments()]
