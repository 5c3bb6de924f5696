"""Intervals of means that stay where the quantity can be: above zero, or between 0 and 1."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from vigia_statistics.intervals import Interval, mean_interval
from vigia_statistics.samples import Samples, checked, checked_confidence

_DRAWS = 10_000


def geometric_interval(values: Samples, confidence: float = 0.95) -> Interval:
    """Return the geometric mean of two or more positive values with Student's interval on the log scale.

    For rates and times, whose noise multiplies: neither end can reach zero.
    """
    x = checked("values", values, least=2)
    if not (x > 0.0).all():
        raise ValueError("values: holds zero or less; a geometric mean needs positive values")
    i = mean_interval(np.log(x), confidence)
    return Interval(math.exp(i.estimate), math.exp(i.lower), math.exp(i.upper), confidence)


def bootstrap_interval(values: Samples, confidence: float = 0.95, seed: int = 1) -> Interval:
    """Return the mean with its bias-corrected percentile bootstrap interval (Efron 1987); needs two values.

    No end leaves the range of the values, so that a ratio stays between 0 and 1. With fewer than ten values
    it covers less often than it says, as every bootstrap does.
    """
    x = checked("values", values, least=2)
    checked_confidence(confidence)
    mean = float(x.mean())
    if np.ptp(x) == 0.0:
        return Interval(mean, mean, mean, confidence)
    rng = np.random.default_rng(seed)
    means = np.sort(rng.choice(x, (_DRAWS, x.size)).mean(axis=1))
    below = (float((means < mean).mean()) + float((means <= mean).mean())) / 2
    shift = float(special.ndtri(min(max(below, 1 / _DRAWS), 1 - 1 / _DRAWS)))
    tail = float(special.ndtri((1.0 - confidence) / 2))
    low, high = (float(special.ndtr(2 * shift + z)) for z in (tail, -tail))
    return Interval(mean, float(np.quantile(means, low)), float(np.quantile(means, high)), confidence)
