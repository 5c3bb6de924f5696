"""Null distributions of rank statistics, exact also when values are tied.

The shift algorithm of Streitberg and Röhmel (1986) adds one observation at a
time to a table of how many subsets reach which rank sum. Ranks are doubled, so
that the midranks of tied values are whole numbers. All terms are positive, so
that float64 keeps its relative precision where counts pass 2**53.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vigia_statistics.samples import Floats


@lru_cache(maxsize=128)
def rank_sum_null(doubled_ranks: tuple[int, ...], m: int) -> Floats:
    """Probabilities of the sum of m of the doubled ranks, by sum, shape (sum of all + 1,)."""
    total = sum(doubled_ranks)
    table = np.zeros((m + 1, total + 1))
    table[0, 0] = 1.0
    for seen, rank in enumerate(doubled_ranks, start=1):
        top = min(seen, m)
        table[1 : top + 1, rank:] += table[0:top, : total + 1 - rank].copy()
    return np.asarray(table[m] / table[m].sum(), dtype=np.float64)


@lru_cache(maxsize=128)
def signed_rank_null(doubled_ranks: tuple[int, ...]) -> Floats:
    """Probabilities of the doubled sum of the ranks with positive sign, shape (sum + 1,)."""
    out = np.zeros(sum(doubled_ranks) + 1)
    out[0] = 1.0
    for rank in doubled_ranks:
        out[rank:] += out[: out.size - rank].copy()
        out *= 0.5
    return out


def untied(n: int) -> tuple[int, ...]:
    """The doubled ranks of n distinct values."""
    return tuple(range(2, 2 * n + 1, 2))


def two_sided(null: Floats, statistic: int) -> float:
    """Twice the smaller tail of null at statistic, at most 1."""
    low = float(null[: statistic + 1].sum())
    high = float(null[statistic:].sum())
    return min(1.0, 2.0 * min(low, high))
