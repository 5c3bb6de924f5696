"""What one e-process has at a moment: the evidence against any effect, and the interval that follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vigia_statistics.samples import Floats

__all__ = ["LARGEST", "Bounded", "Ground", "Studentised", "against", "beyond", "covering", "within"]

LARGEST = 100.0 * math.log(10.0)
"""Of a log e-value: so that sums stay finite."""


class Ground(Protocol):
    """One e-process of several; all arrays have shape (size,)."""

    @property
    def mean(self) -> Floats:
        """Where the evidence is smallest; nan where there is none yet."""

    @property
    def log_weight(self) -> float:
        """Its share of the whole, at most 0; the shares' sum is at most 1."""

    def log_e(self, distance: Floats) -> Floats:
        """Return log e-values against an effect that is this far from the mean."""

    def radius(self, log_bound: float) -> Floats:
        """Return the distance at which that reaches ``log_bound``; infinite where it never does."""


@dataclass(frozen=True)
class Studentised:
    """The t-test's e-process: a normal prior of ``scale`` deviations on the effect, the right Haar prior on
    the deviation.

    Exact for independent normal windows (Lai 1976; Wang and Ramdas 2024). For dependent ones ``effective``
    is the number of independent windows that they are worth, as Waudby-Smith et al. (2021) put an estimated
    variance into the mixture of a Gaussian process.
    """

    mean: Floats
    variance: Floats
    effective: Floats
    windows: Floats
    scale: float
    log_weight: float
    rare: float = 0.0
    """How far one window can lie off, where that may happen after all that was seen: the term of
    Bernstein's bound for it is added to every distance; 0 for none."""

    @property
    def slack(self) -> Floats:
        """Bernstein's term, at 5 %."""
        return np.asarray(self.rare * math.log(40.0) / 3.0 / np.maximum(self.effective, 1e-9))

    def log_e(self, distance: Floats) -> Floats:
        """See Ground."""
        distance = np.maximum(distance - self.slack, 0.0)
        weight = self.scale**2 * self.effective
        share = distance**2 / np.maximum(distance**2 + self.variance, 1e-300)
        gained = 0.5 * self.effective * np.log1p(-share * weight / (1.0 + weight))
        return np.asarray(-0.5 * np.log1p(weight) - gained)

    def radius(self, log_bound: float) -> Floats:
        """See Ground."""
        weight = self.scale**2 * self.effective
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = log_bound + 0.5 * np.log1p(weight)
            share = -np.expm1(-2.0 * needed / self.effective) * (1.0 + weight) / weight
            inside = np.sqrt(self.variance * share / (1.0 - share))
        return np.asarray(np.where((share < 1.0) & np.isfinite(self.mean), inside + self.slack, math.inf))


@dataclass(frozen=True)
class Bounded:
    """One look at a mean that strays as a sub-Gaussian of scale ``noise``, however its parts depend on each
    other."""

    mean: Floats
    noise: float
    log_weight: float

    WIDE = 16.0
    """Variance of the mixture over effects, in squares of the noise."""

    def log_e(self, distance: Floats) -> Floats:
        """See Ground."""
        gained = 0.5 * self.WIDE / (1.0 + self.WIDE) * (distance / self.noise) ** 2
        return np.asarray(gained - 0.5 * math.log1p(self.WIDE))

    def radius(self, log_bound: float) -> Floats:
        """See Ground."""
        needed = 2.0 * (1.0 + self.WIDE) / self.WIDE * (log_bound + 0.5 * math.log1p(self.WIDE))
        return np.where(np.isfinite(self.mean), self.noise * math.sqrt(needed), math.inf)


def against(grounds: Sequence[Ground], effect: float) -> Floats:
    """Return the log e-values against "the effect is this": the largest of the weighted ones, at most
    LARGEST.

    The largest is below the sum, which is an e-process since its parts are.
    """
    return _largest(grounds, [np.abs(g.mean - effect) for g in grounds])


def beyond(grounds: Sequence[Ground], bound: float) -> Floats:
    """Return the log e-values against "the effect is within ``bound``"."""
    return _largest(grounds, [np.maximum(np.abs(g.mean) - bound, 0.0) for g in grounds])


def within(grounds: Sequence[Ground], bound: float) -> Floats:
    """Return the log e-values against "the effect is ``bound`` or more, to either side": two one-sided
    tests."""
    return _largest(grounds, [np.maximum(bound - np.abs(g.mean), 0.0) for g in grounds])


def covering(grounds: Sequence[Ground], alpha: float) -> tuple[Floats, Floats]:
    """Return the ends of the effects whose e-values are below 1 / alpha; infinite at first.

    Where there are none, for the noise is beyond what a look takes it to be, the ends are those of all
    effects between the means, with what is around them.
    """
    lower, upper = np.full(1, -math.inf), np.full(1, math.inf)
    least, most = np.full(1, math.inf), np.full(1, -math.inf)
    for g in grounds:
        radius = g.radius(-math.log(alpha) - g.log_weight)
        lower, upper = np.fmax(lower, g.mean - radius), np.fmin(upper, g.mean + radius)
        told = np.isfinite(radius)
        least = np.where(told, np.fmin(least, g.mean - radius), least)
        most = np.where(told, np.fmax(most, g.mean + radius), most)
    empty = lower > upper
    return np.where(empty, least, lower), np.where(empty, most, upper)


def _largest(grounds: Sequence[Ground], distances: Sequence[Floats]) -> Floats:
    """Of nothing, where there is no window yet: 1 by the weights, less by what is spent."""
    found = [
        g.log_weight + np.where(np.isfinite(d), g.log_e(np.where(np.isfinite(d), d, 0.0)), 0.0)
        for g, d in zip(grounds, distances, strict=True)
    ]
    return np.asarray(np.minimum(np.max(found, axis=0), LARGEST))
