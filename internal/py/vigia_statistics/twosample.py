"""Two independent samples: Mann-Whitney, Hodges-Lehmann, Welch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special, stats

from vigia_statistics.intervals import Interval
from vigia_statistics.null import rank_sum_null, two_sided, untied
from vigia_statistics.samples import Floats, Samples, checked, checked_confidence
from vigia_statistics.selection import Pairs

EXACT = 60
"""Largest number of values in both samples together for which the null distribution is exact."""

RANK_EFFICIENCY = 3.0 / math.pi
"""Efficiency of Mann-Whitney beside the t-test where the t-test is best, normal data (Pitman)."""


@dataclass(frozen=True)
class RankSum:
    """Outcome of comparing samples a and b. Shift and interval are of a minus b."""

    shift: Interval
    """Hodges-Lehmann estimate: the median of all differences a[i] - b[j]; Moses' interval."""
    p_value: float
    """Mann-Whitney, two-sided."""
    exact: bool
    superiority: float
    """P(a > b) + P(a = b) / 2, from 0 to 1."""

    @property
    def cliffs_delta(self) -> float:
        """P(a > b) - P(a < b), from -1 to 1 (Cliff 1993)."""
        return 2.0 * self.superiority - 1.0


def rank_sum(a: Samples, b: Samples, confidence: float = 0.95) -> RankSum:
    """Compare two independent samples by ranks (Mann and Whitney 1947).

    The p-value is exact up to EXACT values, ties included, and above that
    the normal approximation with corrections for ties and continuity. The
    closed interval keeps its confidence under ties as well (Noether 1967).
    """
    x, y = checked("a", a), checked("b", b)
    checked_confidence(confidence)
    m, n = x.size, y.size
    ranks = np.asarray(stats.rankdata(np.concatenate([x, y])), dtype=np.float64)
    total = float(ranks[:m].sum())
    u = total - m * (m + 1) / 2.0
    exact = m + n <= EXACT
    if exact:
        doubled = tuple(sorted(round(2.0 * r) for r in ranks))
        p = two_sided(rank_sum_null(doubled, m), round(2.0 * total))
    else:
        p = _normal_p(u - m * n / 2.0, _tied_deviation(ranks, m, n))
    return RankSum(_moses(x, y, confidence), p, exact, u / (m * n))


def _tied_deviation(ranks: Floats, m: int, n: int) -> float:
    """Standard deviation of U given the ties in ranks."""
    size = m + n
    _, counts = np.unique(ranks, return_counts=True)
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / (size * (size - 1.0))
    return math.sqrt(max(0.0, m * n / 12.0 * (size + 1.0 - ties)))


def _normal_p(distance: float, deviation: float) -> float:
    if deviation == 0.0:
        return 1.0
    return min(1.0, 2.0 * float(special.ndtr(-max(0.0, abs(distance) - 0.5) / deviation)))


def _moses(x: Floats, y: Floats, confidence: float) -> Interval:
    pairs = Pairs(x, -y)
    k, attained = _moses_rank(x.size, y.size, confidence)
    count = len(pairs)
    return Interval(_median(pairs), pairs.smallest(k), pairs.smallest(count + 1 - k), attained)


@lru_cache(maxsize=256)
def _moses_rank(m: int, n: int, confidence: float) -> tuple[int, float]:
    """Rank of the lower limit among the m n differences, from 1, and the confidence attained."""
    tail = (1.0 - confidence) / 2.0
    if m + n <= EXACT:
        null = rank_sum_null(untied(m + n), m)[m * (m + 1) :: 2]  # by U
        below = np.cumsum(null)  # below[u] = P(U <= u)
        k = max(1, int(np.searchsorted(below, tail, side="right")))
        return k, 1.0 - 2.0 * float(below[k - 1])
    deviation = math.sqrt(m * n * (m + n + 1.0) / 12.0)
    k = max(1, math.floor(m * n / 2.0 + 0.5 + float(special.ndtri(tail)) * deviation))
    return k, 1.0 - 2.0 * float(special.ndtr((k - 0.5 - m * n / 2.0) / deviation))


def _median(pairs: Pairs) -> float:
    count = len(pairs)
    lower = pairs.smallest((count + 1) // 2)
    return lower if count % 2 else (lower + pairs.smallest(count // 2 + 1)) / 2.0


@dataclass(frozen=True)
class Welch:
    """Welch's t-test of a minus b; stands beside rank_sum, never decides."""

    difference: Interval
    p_value: float
    degrees_of_freedom: float


def welch(a: Samples, b: Samples, confidence: float = 0.95) -> Welch:
    """Compare two means without assuming equal variances (Welch 1947); needs two values each."""
    x, y = checked("a", a, least=2), checked("b", b, least=2)
    checked_confidence(confidence)
    va, vb = float(x.var(ddof=1)) / x.size, float(y.var(ddof=1)) / y.size
    difference = float(x.mean() - y.mean())
    if va + vb == 0.0:
        same = Interval(difference, difference, difference, confidence)
        return Welch(same, 1.0 if difference == 0.0 else 0.0, float(x.size + y.size - 2))
    df = (va + vb) ** 2 / (va**2 / (x.size - 1) + vb**2 / (y.size - 1))
    error = math.sqrt(va + vb)
    half = float(special.stdtrit(df, 0.5 + confidence / 2)) * error
    p = 2.0 * float(special.stdtr(df, -abs(difference) / error))
    return Welch(Interval(difference, difference - half, difference + half, confidence), p, df)


def minimum_detectable_shift(a: Samples, b: Samples, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the shift that rank_sum at level alpha finds with probability ``power``.

    From the spread within the samples (interquartile range / 1.349, the
    larger of the two) by the normal approximation, with the efficiency of the
    rank test at normal data; heavier tails need less, never much more (0.864).
    """
    x, y = checked("a", a, least=2), checked("b", b, least=2)
    spread = max(_interquartile_range(x), _interquartile_range(y)) / 1.349
    needed = float(-special.ndtri(alpha / 2.0) + special.ndtri(power))
    return needed * spread * math.sqrt((1.0 / x.size + 1.0 / y.size) / RANK_EFFICIENCY)


def _interquartile_range(x: Floats) -> float:
    low, high = np.quantile(x, [0.25, 0.75])
    return float(high - low)
