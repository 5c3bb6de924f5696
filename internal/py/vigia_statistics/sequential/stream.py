"""Running sums of a series that depends on its own past, and what they say of its mean.

Everything is computed for many series at once, shape (size,): the simulations that the guarantees are
measured with run the very code that a single pair runs with size 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vigia_statistics.samples import Floats

__all__ = ["LEVELS", "Stream"]

LEVELS = 13
"""Sizes of batches, in powers of two: up to 8192 windows, five days and a half of minutes."""

_SIZES = 2.0 ** np.arange(1, LEVELS + 1)[:, None]

_FEWEST = 12
"""Batches of a size that say something about a variance."""

_LOOKED_AT = 3
"""A batch of 8 windows that is full is when batches are looked at."""

_STRONGEST = 0.985
"""Lag-1 correlation that is assumed at most."""


class Stream:
    """Means of ``size`` series of equally long windows; a value may be missing (nan).

    The long-run variance, by which the mean of a dependent series strays, is s2 (1 + r) / (1 - r) of a
    first-order autoregression, or what means of batches of 2, 4, 8 ... windows show where that is more for
    sure.
    """

    def __init__(self, size: int, ridge: float, caution: float) -> None:
        """Begin. ``ridge``: a deviation that is added as one window's; ``caution``: standard errors added
        to r."""
        self.size, self.ridge, self.caution = size, ridge, caution
        self.n = np.zeros(size)
        self.origin = np.zeros(size)
        """The first value: sums are of distances from it, so that nothing cancels."""
        self.total = np.zeros(size)
        self.squares = np.zeros(size)
        self.products = np.zeros(size)
        """Of neighbours."""
        self.last = np.zeros(size)
        self.open = np.full((LEVELS, size), np.nan)
        """Half of a batch, waiting for the other one."""
        self.count = np.zeros((LEVELS, size))
        self.batch_total = np.zeros((LEVELS, size))
        self.batch_squares = np.zeros((LEVELS, size))
        self.inflation = np.ones(size)
        """By how much the long-run variance is above a window's, as far as batches showed it for sure."""
        self._moments: tuple[Floats, Floats, Floats] | None = None

    def state(self) -> dict[str, Floats]:
        """Return all that it has seen, by name."""
        return {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}

    def restore(self, state: dict[str, Floats]) -> None:
        """Go on from what ``state`` gave."""
        vars(self).update(state)
        self._moments = None

    def update(self, values: Floats) -> None:
        """Take one window of each series, nan where it is missing. O(1), a carry into batches included."""
        self._moments = None
        known = np.isfinite(values)
        self.origin = np.where(known & (self.n == 0.0), values, self.origin)
        x = np.where(known, values - self.origin, 0.0)
        self.products = self.products + np.where(self.n > 0.0, x * self.last, 0.0)
        self.last = np.where(known, x, self.last)
        self.n = self.n + known
        self.total = self.total + x
        self.squares = self.squares + x * x
        self._carry(x, known)

    def _carry(self, x: Floats, known: NDArray[np.bool_]) -> None:
        """Add x to the batches, as one adds 1 to a binary number."""
        level = 0
        for level in range(LEVELS):
            waiting = self.open[level]
            full = known & np.isfinite(waiting)
            batch = np.where(full, (waiting + x) / 2.0, 0.0)
            self.open[level] = np.where(full, np.nan, np.where(known, x, waiting))
            if not full.any():
                break
            x = batch
            self.count[level] += full
            self.batch_total[level] += x
            self.batch_squares[level] += x * x
            known = full
        if level >= _LOOKED_AT:
            self.inflation = self._by_batches()

    @property
    def mean(self) -> Floats:
        """Of each series; nan before its first value."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.origin + self.total / self.n)

    def moments(self) -> tuple[Floats, Floats, Floats]:
        """Return mean (nan before the first window), variance of a window, and how many independent ones
        there are."""
        if self._moments is None:
            self._moments = self._computed()
        return self._moments

    def _computed(self) -> tuple[Floats, Floats, Floats]:
        n = np.maximum(self.n, 1.0)
        mean = self.total / n
        spread = np.maximum(self.squares - n * mean * mean, 0.0)
        variance = (spread + self.ridge**2) / n
        # Of neighbours, around the mean: both sums lack an end, the first value (0 from the origin) or the
        # last.
        neighbours = self.products - mean * (2.0 * self.total - self.last) + (n - 1.0) * mean * mean
        with np.errstate(invalid="ignore", divide="ignore"):
            r = np.clip(np.where(spread > 0.0, neighbours / spread, 0.0), 0.0, 1.0)
        r = r + (1.0 + 3.0 * r) / n + self.caution * np.sqrt((1.0 - r * r) / n)
        r = np.minimum(r, _STRONGEST)
        inflation = np.maximum((1.0 + r) / (1.0 - r), self.inflation)
        return np.where(self.n > 0.0, self.origin + mean, np.nan), variance, self.n / inflation

    def _by_batches(self) -> Floats:
        n = np.maximum(self.n, 1.0)
        variance = np.maximum(self.squares / n - (self.total / n) ** 2, 1e-300)
        count = np.maximum(self.count, 1.0)
        spread = self.batch_squares / count - (self.batch_total / count) ** 2
        sure = _SIZES * spread * np.maximum(1.0 - np.sqrt(2.0 / count), 0.0) / variance
        return np.asarray(np.maximum(np.where(self.count >= _FEWEST, sure, 1.0).max(axis=0), 1.0))
