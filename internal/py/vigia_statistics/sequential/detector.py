"""One path by itself: did its level change for good?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from vigia_statistics.sequential.level import BLOCK, Levels
from vigia_statistics.sequential.pair import EARLIER, asked, value_of
from vigia_statistics.sequential.plain import number
from vigia_statistics.sequential.question import Question, Scale
from vigia_statistics.verdict import Direction

__all__ = ["Change", "Detector"]

MONTH = 30.0 * 86400.0


@dataclass(frozen=True)
class Change:
    """A level that is not the usual one any more."""

    at: float
    """Unix time at which it was found."""
    since: float
    """Unix time at which it most likely began."""
    worse: bool
    estimate: float
    """Of the level since then over the usual one, or minus it, by the question's scale."""


class Detector:
    """The level of one path on one metric, from windows of a minute: an e-detector on blocks of 15 minutes.

    The first day (``season``) is learned and nothing is said; without a season, the first four hours.
    """

    def __init__(
        self,
        question: Question,
        started: float,
        season: float | None = 86400.0,
        false_alarms_per_month: float = 0.1,
    ) -> None:
        """Begin at ``started``, Unix time.

        A change is a level beyond the question's margin. ``season`` is the length of the cycle that the level
        has anyway; None: it has none. Raises ValueError for a season that is not of whole hours, and for a
        rate outside (0, 100].
        """
        if season is not None and not (3600.0 <= season <= 8.0 * 86400.0 and season % 3600.0 == 0.0):
            raise ValueError(f"season: {season} s is not of 1 to 192 whole hours; write for example 86400")
        if not 0.0 < false_alarms_per_month <= 100.0:
            raise ValueError(f"false_alarms_per_month: {false_alarms_per_month} is not in (0, 100]")
        self._question, self._season, self._rate = question, season, false_alarms_per_month
        self._log_bound = math.log(MONTH / BLOCK / false_alarms_per_month)
        self._started = self._last = number("started", started)
        self._levels = self._begin()
        self._change: Change | None = None
        self._block, self._total, self._count = 0, 0.0, 0

    def _begin(self) -> Levels:
        return Levels(1, int((self._season or 0.0) // BLOCK), self._question.bound)

    @property
    def question(self) -> Question:
        """What is asked; a Detector uses its scale, margin and direction."""
        return self._question

    @property
    def learning(self) -> bool:
        """Whether the usual level is not known yet."""
        return bool(self._levels.seen < self._levels.learning)

    @property
    def progress(self) -> float:
        """Evidence for a change over what is needed, both as logarithms: 0 to 1."""
        return min(max(float(self._levels.log_e[0]), 0.0) / self._log_bound, 1.0)

    @property
    def change(self) -> Change | None:
        """The change that was found; it stays until ``reset``."""
        return self._change

    @property
    def last(self) -> float:
        """Unix time at which the newest window ends that was taken."""
        return self._last

    def update(self, at: float, value: float | None) -> Change | None:
        """Take the window that ends at ``at``; returns a change in the moment it is found, else None.

        One that is not newer than the last one changes nothing. Raises ValueError for an infinite or negative
        value.
        """
        x = value_of("value", value)
        if not number("at", at) > self._last + EARLIER:
            return None
        if self._question.scale is Scale.RATIO:
            x = math.log(max(x, self._question.floor))
        block = math.ceil((at - self._started) / BLOCK - 1e-6)
        found = self._close_until(block, at)
        if not math.isnan(x):
            self._total, self._count = self._total + x, self._count + 1
        if at >= self._started + block * BLOCK - EARLIER:
            found = self._close_until(block + 1, at) or found
        self._last = at
        return found

    def _close_until(self, block: int, at: float) -> Change | None:
        """Close blocks before this one. Of a long gap a season is enough: all are missing."""
        gap = self._levels.learning + 1
        if block - self._block > gap and self._block > 0 and not self.learning:
            season = max(self._levels.season, 1)
            skipped = (block - self._block - gap) // season * season
            self._levels.seen = np.asarray(self._levels.seen + skipped)
            self._block += skipped
        found = None
        while self._block < block:
            if self._block > 0:
                found = self._take(at) or found
            self._total, self._count = 0.0, 0
            self._block += 1
        return found

    def _take(self, at: float) -> Change | None:
        if self._change is not None:
            return None
        levels = self._levels
        levels.update(np.array([self._total / self._count if self._count else math.nan]))
        if self.learning or float(levels.log_e[0]) < self._log_bound:
            return None
        way = int(levels.way()[0])
        total, count = levels.off[way, :, 0]
        self._change = Change(
            at=at,
            since=self._started + float(levels.since[way, 0]) * BLOCK,
            worse=(way == 0) == (self._question.better is Direction.LOWER),
            estimate=self._question.told(float(total / max(count, 1.0))),
        )
        return self._change

    def reset(self, at: float) -> None:
        """Forget everything and learn anew from ``at``: what is now is usual, or the configuration
        changed."""
        self._started = self._last = number("at", at)
        self._levels = self._begin()
        self._change = None
        self._block, self._total, self._count = 0, 0.0, 0

    def as_data(self) -> dict[str, Any]:
        """Return the whole state as JSON holds it."""
        return {
            "version": 1,
            "question": asked(self._question),
            "season": self._season,
            "false_alarms_per_month": self._rate,
            "started": self._started,
            "last": self._last,
            "open": [self._block, self._total, self._count],
            "change": None if self._change is None else asdict(self._change),
            "levels": self._levels.as_data(),
        }

    @classmethod
    def from_data(cls, question: Question, data: Mapping[str, Any]) -> Self:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such, or of another
        question."""
        if not isinstance(data, Mapping) or data.get("version") != 1:
            raise ValueError("version: is not 1; start anew")
        if data.get("question") != asked(question):
            raise ValueError("question: is another one than is asked now; start anew")
        season = data.get("season")
        out = cls(
            question,
            number("started", data.get("started")),
            None if season is None else number("season", season),
            number("false_alarms_per_month", data.get("false_alarms_per_month")),
        )
        out._last = number("last", data.get("last"))
        parts = data.get("open")
        if not isinstance(parts, list) or len(parts) != 3:
            raise ValueError("open: is not a list of 3 numbers; start anew")
        block, total, count = (number("open", p) for p in parts)
        out._block, out._total, out._count = int(block), total, int(count)
        out._change = _change(data.get("change"))
        out._levels.restore(data.get("levels"))
        return out


def _change(data: object) -> Change | None:
    if data is None:
        return None
    if not isinstance(data, Mapping) or not isinstance(data.get("worse"), bool):
        raise ValueError("change: is not a change; start anew")
    at, since, estimate = (number(f"change.{k}", data.get(k)) for k in ("at", "since", "estimate"))
    return Change(at, since, data["worse"], estimate)
