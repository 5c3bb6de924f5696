"""Paired samples, such as twin probes sent at the same moment: Wilcoxon signed-rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special, stats

from vigia_statistics.intervals import Interval
from vigia_statistics.null import signed_rank_null, two_sided, untied
from vigia_statistics.samples import Floats, Samples, checked, checked_confidence
from vigia_statistics.selection import Pairs

EXACT = 100
"""Largest number of pairs for which the null distribution is exact."""


@dataclass(frozen=True)
class SignedRank:
    """Outcome of comparing paired samples. Shift and interval are of a minus b."""

    shift: Interval
    """Hodges-Lehmann estimate: the median of all means of two differences; Tukey's interval."""
    p_value: float
    """Wilcoxon signed-rank, two-sided; pairs without a difference are left out of it."""
    exact: bool
    pairs: int
    """Pairs that differ."""


def signed_rank(differences: Samples, confidence: float = 0.95) -> SignedRank:
    """Test whether differences (a minus b, shape (n,)) are symmetric around zero (Wilcoxon 1945).

    Exact up to EXACT pairs, ties included; above that normal with
    corrections for ties and continuity. The interval uses all pairs.
    """
    d = checked("differences", differences)
    checked_confidence(confidence)
    nonzero = d[d != 0.0]
    n = nonzero.size
    if n == 0:
        return SignedRank(_tukey(d, confidence), 1.0, True, 0)
    ranks = np.asarray(stats.rankdata(np.abs(nonzero)), dtype=np.float64)
    statistic = float(ranks[nonzero > 0.0].sum())
    exact = n <= EXACT
    if exact:
        doubled = tuple(sorted(round(2.0 * r) for r in ranks))
        p = two_sided(signed_rank_null(doubled), round(2.0 * statistic))
    else:
        deviation = math.sqrt(float((ranks**2).sum()) / 4.0)
        distance = max(0.0, abs(statistic - float(ranks.sum()) / 2.0) - 0.5)
        p = min(1.0, 2.0 * float(special.ndtr(-distance / deviation)))
    return SignedRank(_tukey(d, confidence), p, exact, n)


def _tukey(d: Floats, confidence: float) -> Interval:
    walsh = Pairs(d)
    count = len(walsh)
    k, attained = tukey_rank(d.size, confidence)
    middle = walsh.smallest((count + 1) // 2)
    if count % 2 == 0:
        middle = (middle + walsh.smallest(count // 2 + 1)) / 2.0
    return Interval(middle / 2.0, walsh.smallest(k) / 2.0, walsh.smallest(count + 1 - k) / 2.0, attained)


@lru_cache(maxsize=256)
def tukey_rank(n: int, confidence: float) -> tuple[int, float]:
    """Rank of the lower limit among the n (n + 1) / 2 Walsh averages, from 1, and the confidence."""
    tail = (1.0 - confidence) / 2.0
    if n <= EXACT:
        below = np.cumsum(signed_rank_null(untied(n))[::2])
        k = max(1, int(np.searchsorted(below, tail, side="right")))
        return k, 1.0 - 2.0 * float(below[k - 1])
    centre, deviation = n * (n + 1) / 4.0, math.sqrt(n * (n + 1) * (2 * n + 1) / 24.0)
    k = max(1, math.floor(centre + 0.5 + float(special.ndtri(tail)) * deviation))
    return k, 1.0 - 2.0 * float(special.ndtr((k - 0.5 - centre) / deviation))
