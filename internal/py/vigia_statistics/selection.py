"""Order statistics of all pairwise sums, without holding all pairs when there are many.

A run has few values, but raw campaigns have tens of thousands: 10 000 by
10 000 differences are 800 MB. Bisection on the value, counting pairs below it
by binary search, narrows the range until few enough pairs are left to sort.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vigia_statistics.samples import Floats

Indices: TypeAlias = NDArray[np.intp]

FEW = 1 << 20
"""Pairs that are sorted at once."""


class Pairs:
    """The multiset of x[i] + y[j], or of (x[i] + x[j]) with i <= j when ``y`` is left out."""

    def __init__(self, x: Floats, y: Floats | None = None) -> None:
        self._x = np.sort(x)
        self._half = y is None
        self._y = self._x if y is None else np.sort(y)
        self._sorted = self._all() if len(self) <= FEW else None

    def __len__(self) -> int:
        n = self._x.size
        return n * (n + 1) // 2 if self._half else n * self._y.size

    def smallest(self, k: int) -> float:
        """The k-th smallest pair, k from 1 to len(self)."""
        if self._sorted is not None:
            return float(self._sorted[k - 1])
        low, high = float(self._x[0] + self._y[0]), float(self._x[-1] + self._y[-1])
        below, upto = 0, len(self)  # pairs under low, pairs up to high
        while upto - below > FEW:
            middle = low + (high - low) / 2
            if not low < middle < high:
                break
            count = self._count(middle)
            if count >= k:
                high, upto = middle, count
            else:
                low, below = float(np.nextafter(middle, np.inf)), count
        if upto - below > FEW:  # more equal values than fit: low and high are neighbours
            return low if self._count(low) >= k else high
        inside = self._between(low, high)
        return float(np.partition(inside, k - below - 1)[k - below - 1])

    def _all(self) -> Floats:
        sums = np.add.outer(self._x, self._y)
        return np.sort(sums[np.triu_indices(self._x.size)] if self._half else sums, axis=None)

    def _starts(self) -> Indices:
        return np.arange(self._x.size) if self._half else np.zeros(self._x.size, dtype=np.intp)

    def _ends(self, value: float, start: Indices) -> Indices:
        """For each x the end of the run of y with x + y <= value, in the arithmetic of the sums."""
        end = np.searchsorted(self._y, value - self._x, side="right")
        while True:  # rounding of value - x may be off by one value of y
            up = (end < self._y.size) & (self._x + self._y[np.minimum(end, self._y.size - 1)] <= value)
            down = (end > 0) & (self._x + self._y[np.maximum(end, 1) - 1] > value)
            if not up.any() and not down.any():
                return np.maximum(end, start)
            end = end + up - down

    def _count(self, value: float) -> int:
        start = self._starts()
        return int((self._ends(value, start) - start).sum())

    def _between(self, low: float, high: float) -> Floats:
        start = self._starts()
        first = self._ends(float(np.nextafter(low, -np.inf)), start)
        last = self._ends(high, start)
        parts = [self._x[i] + self._y[first[i] : last[i]] for i in np.flatnonzero(last > first)]
        return np.concatenate(parts)
