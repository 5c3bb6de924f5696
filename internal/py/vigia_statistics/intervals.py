"""Intervals for one sample: exact for quantiles, Student's for means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from vigia_statistics.samples import Floats, Samples, checked, checked_confidence


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval, in the unit of the samples."""

    estimate: float
    lower: float
    upper: float
    confidence: float
    """What the interval attains. Below the confidence asked for when the sample is too small."""


def quantile_interval(values: Samples, q: float, confidence: float = 0.95) -> Interval:
    """Return the q-quantile with its exact order-statistic interval.

    The interval runs from the r-th to the s-th smallest value, the narrowest
    such pair, with the tails as even as they can be, whose binomial
    probability reaches ``confidence``; ``confidence`` of the result is that
    probability, which holds for every continuous distribution and is a lower
    bound for discrete ones. (David and Nagaraja, Order Statistics, 3rd ed.,
    section 7.1.)
    """
    x = np.sort(checked("values", values))
    checked_confidence(confidence)
    if not 0.0 < q < 1.0:
        raise ValueError(f"q: {q} is outside (0, 1); write for example 0.99")
    alpha = 1.0 - confidence
    n = x.size
    below = special.bdtr(np.arange(n), n, q)  # below[k] = P(at most k values under the quantile)
    r = max(1, int(np.searchsorted(below, alpha / 2, side="right")))
    s = min(n, int(np.searchsorted(below, 1.0 - alpha / 2)) + 1)
    attained = float(below[s - 1] - below[r - 1])
    return Interval(float(np.quantile(x, q)), float(x[r - 1]), float(x[s - 1]), attained)


def median_interval(values: Samples, confidence: float = 0.95) -> Interval:
    """Return the median with its exact order-statistic interval; see quantile_interval."""
    return quantile_interval(values, 0.5, confidence)


def mean_interval(values: Samples, confidence: float = 0.95) -> Interval:
    """Return the mean with Student's t-interval, as papers print it; needs two values."""
    x = checked("values", values, least=2)
    checked_confidence(confidence)
    mean = float(x.mean())
    half = float(special.stdtrit(x.size - 1, 0.5 + confidence / 2)) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Interval(mean, mean - half, mean + half, confidence)


def ecdf_band(values: Samples, confidence: float = 0.99) -> tuple[Floats, Floats, Floats, Floats]:
    """Return sorted values, empirical CDF and its simultaneous band, each of shape (n,).

    The band is that of Dvoretzky, Kiefer and Wolfowitz with Massart's constant:
    sqrt(log(2 / (1 - confidence)) / 2n) to both sides, cut at 0 and 1.
    """
    x = np.sort(checked("values", values))
    checked_confidence(confidence)
    level = np.arange(1, x.size + 1) / x.size
    half = math.sqrt(math.log(2.0 / (1.0 - confidence)) / (2.0 * x.size))
    return x, level, np.maximum(level - half, 0.0), np.minimum(level + half, 1.0)
