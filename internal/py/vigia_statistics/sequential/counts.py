"""The evidence that counts of lost probes give: which path lost the larger share, minute by minute.

Losses come in bursts, so a minute is one throw of a coin however many probes it lost, and bursts last for
minutes, so the coin remembers its last throw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vigia_statistics.samples import Floats
from vigia_statistics.sequential.engine import STEADY_CAUTION, Minutes
from vigia_statistics.sequential.grounds import LARGEST, Ground, Studentised
from vigia_statistics.sequential.plain import arrays, plain
from vigia_statistics.sequential.stream import Stream

__all__ = ["Counts"]

MEMORY = 0.5
"""How much of a burst is left after a minute: see Coin."""
_STAKES = np.array([0.3, 0.6, 0.95])
"""Shares of its fortune that a bettor puts on the same side again and again."""
_SCALE = 0.2
_LOST_BESIDE = 4.0
"""Probes that are added to those lost where the variance of so few is at stake: that of none lost is not
0."""
_UNEQUAL = 1.25
"""A minute in which one path sent that much more than the other says nothing about who loses more."""


class Coin:
    """Bets on one side: that it comes more often than a fair coin with a memory would show it.

    Null: given the past, the side comes in the next minute in which the paths differ with probability
    (1 + MEMORY^g) / 2 at most if it came the last time, g minutes before, and 1/2 otherwise. Under it the
    fortune of each bettor is a non-negative supermartingale, and so is their mean.
    """

    def __init__(self, size: int) -> None:
        """Begin with a fortune of 1 each."""
        self.fortunes = np.zeros((_STAKES.size, size))
        """Logarithms."""

    def bet(self, came: Floats, differ: Floats, chance: Floats) -> None:
        """Settle the bets of a minute; all of shape (size,): 1 or 0, 1 or 0, and the chance under the
        null."""
        stake = _STAKES[:, None]
        won, lost = np.log1p(stake * (1.0 - chance) / chance), np.log1p(-stake)
        self.fortunes = self.fortunes + differ * np.where(came > 0.0, won, lost)

    @property
    def log_e(self) -> Floats:
        """The logarithm of the mean fortune."""
        return np.asarray(np.logaddexp.reduce(self.fortunes, axis=0) - math.log(_STAKES.size))


class Counts:
    """Evidence on ``size`` pairs at once from counts that share their times."""

    def __init__(self, size: int, ridge: float) -> None:
        """Begin; for ``ridge`` see Stream."""
        self.size = size
        self.differences = Stream(size, ridge, STEADY_CAUTION)
        self.parts = [Minutes(size) for _ in range(4)]
        """Lost and sent of a, lost and sent of b."""
        self.sums = np.zeros((4, size))
        """The same since the start."""
        self.worse = (Coin(size), Coin(size))
        """That a loses more, that b does."""
        self.side = np.zeros(size)
        """Who lost more the last time they differed: 1 for a, -1 for b, 0 before."""
        self.side_at = np.zeros(size)
        """In which minute that was."""
        self.last = np.zeros(())

    def update(self, at: float, lost_a: Floats, sent_a: Floats, lost_b: Floats, sent_b: Floats) -> None:
        """Take the window that ends ``at`` seconds after the start, later than the last one; nan where it
        is missing."""
        known = (sent_a > 0.0) & (sent_b > 0.0) & np.isfinite(lost_a) & np.isfinite(lost_b)
        over = [
            part.add(at, np.where(known, v, np.nan))
            for part, v in zip(self.parts, (lost_a, sent_a, lost_b, sent_b), strict=True)
        ]
        for minute in zip(*over, strict=True):
            number, _, windows = minute[0]
            self._minute(number, np.array([total for _, total, _ in minute]), windows > 0.0)
        self.last = np.asarray(at)

    def _minute(self, number: float, counts: Floats, known: NDArray[np.bool_]) -> None:
        counts = np.where(known, counts, 1.0)
        a, sent, b, other = counts
        self.sums = self.sums + np.where(known, counts, 0.0)
        self.differences.update(np.where(known, a / sent - b / other, np.nan))
        fewest = np.minimum(sent, other)
        more = np.where(
            known & (np.maximum(sent, other) <= _UNEQUAL * fewest), fewest * (a / sent - b / other), 0.0
        )
        side = np.where(np.abs(more) >= 0.5, np.sign(more), 0.0)
        memory = MEMORY ** np.maximum(number - self.side_at, 1.0)
        for coin, way in zip(self.worse, (1.0, -1.0), strict=True):
            chance = np.where(self.side == way, (1.0 + memory) / 2.0, 0.5)
            coin.bet((side == way) * 1.0, (side != 0.0) * 1.0, chance)
        self.side_at = np.where(side != 0.0, number, self.side_at)
        self.side = np.where(side != 0.0, side, self.side)

    def log_e(self) -> tuple[Floats, Floats]:
        """Return the log e-values against "a does not lose more" and "b does not": half a share each."""
        a, b = (np.minimum(coin.log_e - math.log(2.0), LARGEST) for coin in self.worse)
        return a, b

    def grounds(self) -> list[Ground]:
        """Return what is known of the size of the difference: for the interval, and for equivalence."""
        mean, variance, effective = self.differences.moments()
        lost_a, sent_a, lost_b, sent_b = self.sums
        minutes = np.maximum(self.differences.n, 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.minimum((lost_a + lost_b + _LOST_BESIDE) / (sent_a + sent_b + 2.0 * _LOST_BESIDE), 0.5)
            binomial = minutes * ratio * (1.0 - ratio) * (1.0 / sent_a + 1.0 / sent_b)
        floor = np.where(np.isfinite(binomial), binomial, 0.0)
        return [
            Studentised(
                mean, np.maximum(variance, floor), effective, self.differences.n, _SCALE, 0.0, rare=1.0
            )
        ]

    def estimate(self) -> Floats:
        """Return the mean of the differences of the minutes; nan before the first."""
        return self.differences.mean

    def as_data(self) -> dict[str, Any]:
        """Return the state as JSON holds it."""
        return {
            "differences": plain(self.differences.state()),
            "parts": [plain(vars(m)) for m in self.parts],
            "worse": [plain(vars(c)) for c in self.worse],
            "sides": plain({k: getattr(self, k) for k in _SIDES}),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such."""
        self.differences.restore(arrays("differences", data.get("differences"), self.differences.state()))
        for name, things in (("parts", self.parts), ("worse", self.worse)):
            listed = data.get(name)
            if not isinstance(listed, list) or len(listed) != len(things):
                raise ValueError(f"{name}: is not a list of {len(things)}; start anew")
            for found, thing in zip(listed, things, strict=True):
                vars(thing).update(arrays(name, found, vars(thing)))
        vars(self).update(arrays("sides", data.get("sides"), {k: getattr(self, k) for k in _SIDES}))


_SIDES = ("sums", "side", "side_at", "last")
