"""The level of paths in blocks of a quarter of an hour: what is usual, and the evidence that it is not any
more.

An e-detector (Shin, Ramdas and Rinaldo 2024): a Shiryaev-Roberts sum of e-values of single blocks, which
takes c blocks at least on average until it reaches c, where nothing has changed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vigia_statistics.samples import Floats
from vigia_statistics.sequential.plain import arrays, plain

__all__ = ["BLOCK", "Levels"]

BLOCK = 900.0
"""Seconds: long enough for most of what lasts minutes to have passed."""
_UNSEASONED = 16
"""Blocks that are learned where there is no season: four hours."""
_HOUR = 4
"""Blocks of a part of the season that has a level of its own."""
_STAKES = np.array([0.5, 1.0, 2.0])
"""Changes that are seen best, in deviations of a block."""
_WAYS = np.array([1.0, -1.0])
"""Up and down."""
_CLIP = 3.0
"""Deviations beyond what is allowed that a block counts at most: one alone never is a change.

Not deviations of all: where noise is small beside the margin, any change would be within what is allowed."""
_FAR = 6.0
"""Medians of distances from what is near, four deviations: a block of the first day that is farther off
counts as if it were there."""
_PAST = 28.0
"""Blocks of an hour of the day that make what is usual: a week's."""
_WEEK = 672.0
"""Blocks."""
_STRONGEST = 0.9
"""Correlation of neighbouring blocks that is assumed at most."""


class Levels:
    """``size`` paths at once, whose blocks share their times. Values on the scale that is computed with."""

    def __init__(self, size: int, season: int, bound: float) -> None:
        """Begin; ``season`` in blocks, 0 for none; a level that is off by ``bound`` has not changed yet."""
        self.size, self.season, self.bound = size, season, bound
        self.least = (bound / 4.0) ** 2
        """Variance of a block, at least: what always says the same is known to the margin's quarter."""
        self.parts = max(season // _HOUR, 1)
        self.learning = season or _UNSEASONED
        self.learned = np.full((self.learning, size), np.nan)
        """The first blocks."""
        self.seen = np.zeros(())
        """Blocks, missing ones too."""
        self.usual = np.zeros((self.parts, size))
        self.known = np.zeros((self.parts, size))
        """Blocks that each of ``usual`` is the mean of."""
        self.correlation = np.zeros(size)
        self.variance = np.zeros(size)
        """Of what a block has that the one before it did not tell."""
        self.before = np.zeros(size)
        """How far the last block was off what is usual."""
        self.sums = np.full((len(_WAYS), len(_STAKES), size), -np.inf)
        """Logarithms of the Shiryaev-Roberts sums."""
        self.rising = np.zeros((len(_WAYS), size))
        """CUSUMs: where they left 0 the change began."""
        self.since = np.zeros((len(_WAYS), size))
        """The block after which they did."""
        self.off = np.zeros((len(_WAYS), 2, size))
        """Since then: sum of how far blocks were off, and their number."""

    STATE = (
        "learned",
        "seen",
        "usual",
        "known",
        "correlation",
        "variance",
        "before",
        "sums",
        "rising",
        "since",
        "off",
    )

    def update(self, values: Floats) -> None:
        """Take a block of each path, nan where it is missing."""
        index = int(self.seen)
        self.seen = np.asarray(self.seen + 1.0)
        if index < self.learning:
            self.learned[index] = values
            if index + 1 == self.learning:
                self._learn()
            return
        known = np.isfinite(values)
        off = np.where(known, values - self.expected(index), 0.0)
        news = off - self.correlation * self.before
        deviation = np.sqrt(self.variance)
        self._detect(index, known, off, news, deviation)
        most = self.bound + _CLIP * deviation / np.sqrt(1.0 - self.correlation**2)
        self.before = np.where(known, np.clip(off, -most, most), self.before)
        self._adapt(index, known, np.clip(off, -most, most), news)

    def expected(self, index: int) -> Floats:
        """Return the usual level in a block: between smoothed hours of the season, so that it has no
        steps."""
        if self.parts == 1:
            return np.asarray(self.usual[0])
        position = (index % self.season + 0.5) / _HOUR - 0.5
        first = math.floor(position)
        share = position - first
        return np.asarray((1.0 - share) * self._smooth(first) + share * self._smooth(first + 1))

    def _smooth(self, part: int) -> Floats:
        parts = [(part + i) % self.parts for i in (-1, 0, 1)]
        weights = np.array([[0.25], [0.5], [0.25]]) * (self.known[parts] > 0.0)
        total = weights.sum(axis=0)
        mean = (weights * self.usual[parts]).sum(axis=0) / np.maximum(total, 1e-9)
        overall = (self.usual * self.known).sum(axis=0) / np.maximum(self.known.sum(axis=0), 1.0)
        return np.asarray(np.where(total > 0.0, mean, overall))

    def _learn(self) -> None:
        """What is usual, and how blocks stray around it."""
        known = np.isfinite(self.learned)
        values = np.where(known, self.learned, 0.0)
        rough = self._rough(known, values)
        far = _FAR * _middle(np.abs(values - rough), known)
        values = np.where(known, np.clip(values, rough - far, rough + far), 0.0)
        off = np.where(known, values - self._fit(known, values), 0.0)
        count = np.maximum(known.sum(axis=0), 2.0)
        # What smoothing hours has fitted away: three eighths of a parameter for each.
        free = np.maximum(count - 0.375 * self.parts - 1.0, 1.0)
        variance = (off**2).sum(axis=0) / free
        follow = (off[1:] * off[:-1]).sum(axis=0) / np.maximum(variance * free, 1e-300)
        r = np.clip(follow, 0.0, _STRONGEST)
        self.correlation = np.minimum(
            r + (1.0 + 3.0 * r) / count + np.sqrt((1.0 - r * r) / count), _STRONGEST
        )
        spread = np.maximum(variance * (1.0 - r * r), 1e-300)
        # The usual level is known from few blocks itself.
        few = 0.375 / np.maximum(self.known.mean(axis=0), 1.0) if self.season else 1.0 / count
        self.variance = np.maximum(spread * (1.0 + few), self.least)
        self.before = off[-1]

    def _rough(self, known: NDArray[np.bool_], values: Floats) -> Floats:
        """Return the median of two hours around each of the first blocks: a storm does not move it."""
        out = np.empty_like(values)
        for i in range(self.learning):
            near = (i + np.arange(-_HOUR, _HOUR + 1)) % self.learning
            out[i] = _middle(values[near], known[near])
        return out

    def _fit(self, known: NDArray[np.bool_], values: Floats) -> Floats:
        """Make ``usual`` of the first blocks; return what is then expected of them, (learning, size)."""
        part = np.arange(self.learning) // _HOUR if self.season else np.zeros(self.learning, dtype=np.intp)
        part = np.minimum(part, self.parts - 1)
        self.known, self.usual = np.zeros_like(self.known), np.zeros_like(self.usual)
        np.add.at(self.known, part, known)
        np.add.at(self.usual, part, values)
        self.usual = self.usual / np.maximum(self.known, 1.0)
        return np.array([self.expected(i) for i in range(self.learning)])

    def _detect(
        self, index: int, known: NDArray[np.bool_], off: Floats, news: Floats, deviation: Floats
    ) -> None:
        allowed = (1.0 - self.correlation) * self.bound
        for w, way in enumerate(_WAYS):
            stake = _STAKES[:, None] / deviation
            beyond = np.clip(way * news - allowed, -2.0 * allowed - _CLIP * deviation, _CLIP * deviation)
            gained = stake * beyond - 0.5 * _STAKES[:, None] ** 2
            gained = np.where(known, gained, 0.0)
            self.sums[w] = np.where(known, np.logaddexp(self.sums[w], 0.0) + gained, self.sums[w])
            rising = self.rising[w] + gained[1]
            quiet = rising <= 0.0
            self.rising[w] = np.where(quiet, 0.0, rising)
            self.since[w] = np.where(quiet, index + 1.0, self.since[w])
            self.off[w] = np.where(quiet, 0.0, self.off[w] + np.array([off, known * 1.0]))

    def _adapt(self, index: int, known: NDArray[np.bool_], off: Floats, news: Floats) -> None:
        """Follow slowly: a week of the same hour is what is usual, and a week of blocks how they stray."""
        part = min(index % self.season // _HOUR, self.parts - 1) if self.season else 0
        count = np.minimum(self.known[part] + known, _PAST if self.season else _WEEK)
        self.usual[part] = self.usual[part] + np.where(known, off / np.maximum(count, 1.0), 0.0)
        self.known[part] = count
        seen = np.minimum(news**2, _CLIP**2 * self.variance)
        self.variance = self.variance + np.where(known, (seen - self.variance) / _WEEK, 0.0)
        self.variance = np.maximum(self.variance, self.least)

    @property
    def log_e(self) -> Floats:
        """The logarithm of the detector's sum, shape (size,)."""
        return np.asarray(
            np.logaddexp.reduce(self.sums, axis=(0, 1)) - math.log(self.sums.shape[0] * self.sums.shape[1])
        )

    def way(self) -> NDArray[np.intp]:
        """Return 0 where the evidence is for up, 1 for down."""
        return np.asarray(np.logaddexp.reduce(self.sums, axis=1).argmax(axis=0))

    def as_data(self) -> dict[str, Any]:
        """Return the state as JSON holds it."""
        state = {k: getattr(self, k) for k in self.STATE}
        return plain({**state, "sums": np.where(np.isinf(self.sums), np.nan, self.sums)})

    def restore(self, data: object) -> None:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such."""
        for key, value in arrays("levels", data, {k: getattr(self, k) for k in self.STATE}).items():
            setattr(self, key, value)
        self.sums = np.where(np.isnan(self.sums), -np.inf, self.sums)


def _middle(values: Floats, known: NDArray[np.bool_]) -> Floats:
    """Return the median of each column's known values; 0 where there are none."""
    ascending = np.sort(np.where(known, values, np.inf), axis=0)
    index = np.maximum(known.sum(axis=0) - 1, 0) // 2
    found = np.take_along_axis(ascending, index[None, :], axis=0)[0]
    return np.where(np.isfinite(found), found, 0.0)
