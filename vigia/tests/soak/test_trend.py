"""Trends: a leak is found with its interval; noise, steps, spikes and daily cycles are none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vigia.soak.trend import CONFIDENCE, FEWEST_BLOCKS, Floats, TooFewError, blocks_of, trend

EVERY = 10 / 3600
"""Hours between samples."""
FLOODS = 600 / 3600
LIMIT = 2.0


def times(hours: float, every: float = EVERY) -> Floats:
    return np.arange(0, hours, every)


def wandering(size: int, rng: np.random.Generator, memory: float = 0.98) -> Floats:
    """Noise of which each value depends on the one before; its standard deviation is 1."""
    steps = rng.normal(0, np.sqrt(1 - memory**2), size)
    steps[0] = rng.normal()
    values = np.empty(size)
    values[0] = steps[0]
    for i in range(1, size):
        values[i] = memory * values[i - 1] + steps[i]
    return values


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_in_noise_is_found_and_its_slope_is_in_the_interval(seed: int) -> None:
    x = times(3)
    found = trend(x, 100 + 6 * x + wandering(x.size, np.random.default_rng(seed)), FLOODS)
    assert found.lower > LIMIT
    assert found.lower <= 6 <= found.upper
    assert found.lower <= found.slope <= found.upper


def test_a_descriptor_that_each_flood_loses_is_found() -> None:
    x = times(3)
    found = trend(x, 40 + np.floor(x / FLOODS), FLOODS)
    assert found.slope == pytest.approx(6, abs=0.2)
    assert found.lower > LIMIT


def test_noise_that_hangs_together_is_no_trend() -> None:
    """At 99 % one of a hundred intervals may lie on one side of 0; samples taken for independent give a fourth."""
    rng = np.random.default_rng(7)
    x = times(3)
    found = [trend(x, wandering(x.size, rng), FLOODS) for _ in range(200)]
    assert sum(t.lower > 0 or t.upper < 0 for t in found) <= 8
    # The test can fail: with a sample a minute and no regard to dependence it would.
    naive = [stats.theilslopes(wandering(x.size, rng)[::6], x[::6], CONFIDENCE) for _ in range(100)]
    assert sum(t.low_slope > 0 or t.high_slope < 0 for t in naive) > 12


def test_nothing_moves() -> None:
    x = times(1)
    found = trend(x, np.full_like(x, 12.0), FLOODS)
    assert (found.slope, found.lower, found.upper) == (0, 0, 0)
    assert found.blocks == FEWEST_BLOCKS


def test_a_step_is_no_leak() -> None:
    x = times(3)
    assert trend(x, np.where(x < 1.5, 20.0, 23.0), FLOODS).lower <= 0


def test_what_floods_take_and_give_back_is_no_leak() -> None:
    x = times(3)
    assert trend(x, 20 + 500.0 * (x % FLOODS < 0.02), FLOODS).slope == 0


@pytest.mark.parametrize("phase", [0.0, 0.25, 0.5, 0.75])
def test_days_go_up_and_down(phase: float) -> None:
    x = times(96, 60 / 3600)
    noise = wandering(x.size, np.random.default_rng(3))
    cycle = 50 * np.sin(2 * np.pi * (x / 24 + phase)) + noise
    assert trend(x, cycle, FLOODS).lower <= LIMIT / 2
    leaking = trend(x, cycle + 5 * x, FLOODS)
    assert leaking.lower > LIMIT
    assert leaking.lower <= 5 <= leaking.upper


def test_independent_blocks_have_the_interval_of_theil_and_sen() -> None:
    x = np.arange(40.0)
    y = np.array([(-1.0) ** i * (1 + 0.01 * i) for i in range(40)]) + 0.1 * x
    thrice = np.sort(np.concatenate([x, x + 0.001, x + 0.002]))
    found = trend(thrice, np.repeat(y, 3), 1.0)
    assert (found.blocks, found.dependence) == (40, 0)
    reference = stats.theilslopes(y, x, CONFIDENCE)
    assert found.slope == pytest.approx(reference.slope)
    assert found.lower == pytest.approx(reference.low_slope, abs=0.01)
    assert found.upper == pytest.approx(reference.high_slope, abs=0.01)


def test_slopes_go_with_the_unit() -> None:
    x = times(2)
    y = wandering(x.size, np.random.default_rng(1)) + x
    one, thousand = trend(x, y, FLOODS), trend(x, 1000 * y, FLOODS)
    assert thousand.slope == pytest.approx(1000 * one.slope)
    assert thousand.lower == pytest.approx(1000 * one.lower)


def test_gaps_leave_out_blocks() -> None:
    x = times(3)
    kept = (x % 1 < 0.25) | (x % 1 > 0.6)
    found = trend(x[kept], 5 * x[kept], FLOODS)
    assert found.slope == pytest.approx(5)
    assert found.blocks < 18


def test_too_few_samples_say_so() -> None:
    for size in (0, 1, 23):
        with pytest.raises(TooFewError, match=f"^{size} samples; 24 are needed"):
            trend(times(9, 1.0)[:0] if size == 0 else np.arange(float(size)), np.zeros(size), FLOODS)
    lumps = np.concatenate([np.linspace(0, 0.01, 20), np.linspace(1, 1.01, 20)])
    with pytest.raises(TooFewError, match="2 blocks with samples; 8 are needed"):
        trend(lumps, lumps, 0.1)


@pytest.mark.parametrize(
    ("hours", "values"),
    [
        (np.arange(30.0), np.full(30, np.nan)),
        (np.zeros(30), np.zeros(30)),
        (np.arange(30.0)[::-1], np.zeros(30)),
        (np.arange(30.0), np.zeros(29)),
        (np.zeros((30, 2)), np.zeros((30, 2))),
    ],
)
def test_bad_samples_are_refused(hours: Floats, values: Floats) -> None:
    with pytest.raises(ValueError, match="hours"):
        trend(hours, values, 0.1)


def test_blocks_have_a_length() -> None:
    with pytest.raises(ValueError, match="block is 0"):
        blocks_of(times(1), times(1), 0)
    x, y = blocks_of(times(1), times(1), 0.5)
    assert (x.size, y.size) == (2, 2)
