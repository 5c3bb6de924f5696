"""The evidence that windows of two paths give.

Three e-processes, each with its share: looks at the first two minutes, against a bound that is known
beforehand; the fine windows of the first hour; and minutes, from the first to the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vigia_statistics.samples import Floats
from vigia_statistics.sequential.grounds import Bounded, Ground, Studentised
from vigia_statistics.sequential.plain import arrays, plain
from vigia_statistics.sequential.stream import Stream

__all__ = ["MINUTE", "Engine", "Minutes"]

MINUTE = 60.0
FINE_PERIOD = 3600.0
"""For how long windows shorter than a minute are looked at by themselves."""
FINE = 45.0
"""Seconds: a window that is shorter is a fine one."""

LOOKS = (30.0, 60.0, 120.0)
"""Seconds after which the mean of all windows so far is compared with the bound of noise."""
LOOK_WEIGHT, FINE_WEIGHT = 0.03, 0.36
"""The share of each look, and of the fine windows; minutes have the rest."""
FINE_SCALE, STEADY_SCALE = 0.25, 0.15
"""Effects that are seen best, in deviations of a window."""
FINE_CAUTION, STEADY_CAUTION = 0.55, 0.5
"""Standard errors that are added to correlations; see Stream."""


class Minutes:
    """Sums over whole minutes since the start; each of the minutes is given out once, when it is over."""

    def __init__(self, size: int) -> None:
        """Begin with the first minute."""
        self.minute = np.zeros(())
        """Which minute is being filled, from 1."""
        self.total = np.zeros(size)
        self.count = np.zeros(size)

    def add(self, at: float, values: Floats) -> list[tuple[float, Floats, Floats]]:
        """Take a window that ends ``at`` seconds after the start, nan where it is missing.

        Returns what is over: the number of the minute, sums, and how many windows are in each.
        """
        over = []
        minute = math.ceil(at / MINUTE - 1e-6)
        if minute != self.minute:
            over += self._close()
            self.minute = np.asarray(float(minute))
        known = np.isfinite(values)
        self.total = self.total + np.where(known, values, 0.0)
        self.count = self.count + known
        if at >= minute * MINUTE - 1e-3:
            over += self._close()
        return over

    def _close(self) -> list[tuple[float, Floats, Floats]]:
        if not self.count.any():
            return []
        closed = (float(self.minute), self.total, self.count)
        self.total, self.count = np.zeros_like(self.total), np.zeros_like(self.count)
        return [closed]


class Engine:
    """Evidence on ``size`` pairs at once, from differences (a minus b, or of logarithms) that share their
    times."""

    def __init__(self, size: int, ridge: float, noise: float | None) -> None:
        """Begin; for ``ridge`` see Stream, for ``noise`` Question."""
        self.size, self.noise = size, noise
        self.fine = Stream(size, ridge, FINE_CAUTION)
        self.steady = Stream(size, ridge, STEADY_CAUTION)
        self.minutes = Minutes(size)
        self.last = np.zeros(())
        """Seconds from the start to the end of the newest window."""
        self.fineness = np.zeros(())
        """By the first window: 1 where it is a fine one, -1 where it is not; 0 before."""
        self.early = np.zeros((2, size))
        """Sums of the first minutes, for looks: of differences times seconds, and of seconds."""
        self.looks = np.full((len(LOOKS), size), np.nan)
        """Means at the looks, nan before."""

    def update(self, at: float, d: Floats) -> None:
        """Take the window that ends ``at`` seconds after the start, later than the last one; nan where it
        is missing."""
        length = at - float(self.last)
        self._look(at, d, min(length, MINUTE))
        fine = length < FINE and at <= FINE_PERIOD
        if self.fineness == 0.0:
            self.fineness = np.asarray(1.0 if fine else -1.0)
        if self.fineness == 1.0 and fine:
            self.fine.update(d)
        for _, total, count in self.minutes.add(at, d):
            self.steady.update(np.where(count > 0.0, total / np.maximum(count, 1.0), np.nan))
        self.last = np.asarray(at)

    def _look(self, at: float, d: Floats, length: float) -> None:
        last = float(self.last)
        if self.noise is None or last >= LOOKS[-1]:
            return
        known = np.isfinite(d)
        self.early = self.early + np.where(
            known, np.array([np.where(known, d, 0.0) * length, length + 0.0 * d]), 0.0
        )
        for i, look in enumerate(LOOKS):
            if last < look <= at:
                # Half a minute of windows at least: the bound does not hold for less.
                enough = self.early[1] >= LOOKS[0] - 1e-3
                self.looks[i] = np.where(enough, self.early[0] / np.maximum(self.early[1], 1.0), np.nan)

    def grounds(self) -> list[Ground]:
        """Return what is known now. Shares depend on how long windows are, never on their values."""
        looks = LOOK_WEIGHT * len(LOOKS) if self.noise is not None else 0.0
        fine = FINE_WEIGHT if self.fineness > 0.0 else 0.0
        out: list[Ground] = [
            Studentised(*self.steady.moments(), self.steady.n, STEADY_SCALE, math.log(1.0 - looks - fine)),
        ]
        if fine:
            out.append(Studentised(*self.fine.moments(), self.fine.n, FINE_SCALE, math.log(fine)))
        if self.noise is not None:
            out += [Bounded(m, self.noise, math.log(LOOK_WEIGHT)) for m in self.looks]
        return out

    def estimate(self) -> Floats:
        """Return the mean of all minutes; of fine windows while there is none. nan before the first
        window."""
        return np.where(self.steady.n > 0.0, self.steady.mean, self.fine.mean)

    def as_data(self) -> dict[str, Any]:
        """Return the state as JSON holds it."""
        return {
            "fine": plain(self.fine.state()),
            "steady": plain(self.steady.state()),
            "minutes": plain(vars(self.minutes)),
            "first": plain({k: getattr(self, k) for k in ("last", "fineness", "early", "looks")}),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such."""
        for name, stream in (("fine", self.fine), ("steady", self.steady)):
            stream.restore(arrays(name, data.get(name), stream.state()))
        vars(self.minutes).update(arrays("minutes", data.get("minutes"), vars(self.minutes)))
        state = {k: getattr(self, k) for k in ("last", "fineness", "early", "looks")}
        vars(self).update(arrays("first", data.get("first"), state))
