"""Judging levels of a factor against each other, a repetition being the unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from vigia.report.data import Floats
from vigia_statistics import (
    Comparison,
    Direction,
    Verdict,
    compare,
    judge,
    mean_interval,
    median_interval,
    winner,
)
from vigia_text.numbers import interval, probability

__all__ = ["Judged", "bar", "judged", "mean_text", "median_text", "pair_row"]

PAIR_HEADER = ("comparison", "n", "shift (Hodges-Lehmann)", "p (Holm)", "Cliff's δ", "verdict")


@dataclass(frozen=True)
class Judged:
    """A family of comparisons of the same metric."""

    family: Sequence[Comparison]
    best: str | None
    """Who beats every other, None for a tie."""
    decidable: bool
    """Whether there was enough data for anybody to win."""

    @property
    def shown(self) -> str:
        """The winner, tie, or that there is too little data."""
        return self.best or ("tie" if self.decidable else "too few data")


def judged(values: Mapping[str, Floats], better: Direction, confidence: float) -> Judged:
    """Compare every pair; values are one number per repetition."""
    usable = {name: v for name, v in values.items() if v.size >= 2}
    family = judge(
        [compare(a, b, usable[a], usable[b], confidence=confidence) for a, b in combinations(usable, 2)],
        better,
        alpha=1 - confidence,
    )
    enough = bool(family) and all(c.verdict is not Verdict.NOT_ENOUGH_DATA for c in family)
    return Judged(family, winner(list(values), family), enough and len(usable) == len(values))


def pair_row(c: Comparison, unit: str) -> list[str]:
    """Return one comparison as a row under PAIR_HEADER."""
    name = {Verdict.A: f"{c.a} wins", Verdict.B: f"{c.b} wins"}.get(c.verdict, str(c.verdict))
    return [
        f"{c.a} − {c.b}",
        f"{c.samples_a}, {c.samples_b}",
        interval(c.shift, c.lower, c.upper, unit),
        probability(c.adjusted_p_value),
        f"{c.effect_size:+.2f}",
        name,
    ]


def mean_text(values: Floats, unit: str, confidence: float) -> str:
    """Return the mean with its t-interval, as papers print it."""
    if values.size < 2:
        return interval(values[0], values[0], values[0], unit) if values.size else "–"
    i = mean_interval(values, confidence)
    return interval(i.estimate, i.lower, i.upper, unit)


def median_text(values: Floats, unit: str, confidence: float) -> str:
    """Return the median with its exact interval."""
    if not values.size:
        return "–"
    i = median_interval(values, confidence)
    return interval(i.estimate, i.lower, i.upper, unit)


def bar(values: Floats, confidence: float, scale: float = 1.0) -> tuple[float, float, float] | None:
    """Return the mean with its t-interval for a plot, divided by scale."""
    if values.size < 2:
        return None
    i = mean_interval(values, confidence)
    return i.estimate / scale, i.lower / scale, i.upper / scale
