"""Two campaigns beside each other: the same combination measured at two times, or in two places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from vigia.campaign.folder import Folder
from vigia.errors import VigiaError
from vigia.report.data import Data, load, mean
from vigia_statistics import Comparison, Verdict, holm
from vigia_statistics import compare as compare_samples
from vigia_text.numbers import interval, probability

__all__ = ["HEADER", "Pair", "pairs"]

HEADER = ("combination", "metric", "n", "first − second", "p (Holm)", "significant")


@dataclass(frozen=True)
class Pair:
    """One combination and metric in both campaigns."""

    combination: str
    metric: str
    unit: str
    comparison: Comparison
    p_value: float
    """After Holm over everything that was compared."""
    significant: bool

    def as_text(self) -> Sequence[str]:
        """Return a row under HEADER."""
        c = self.comparison
        return (
            self.combination,
            self.metric,
            f"{c.samples_a}, {c.samples_b}",
            interval(c.shift, c.lower, c.upper, self.unit),
            probability(self.p_value),
            "yes" if self.significant else "no",
        )

    def as_json(self) -> dict[str, object]:
        """Return it as data."""
        comparison = {k: str(v) if isinstance(v, Verdict) else v for k, v in asdict(self.comparison).items()}
        return {**asdict(self), "comparison": comparison}


def pairs(one: Folder, other: Folder, metric: str | None) -> list[Pair]:
    """Compare means of repetitions for every combination that both have. Raises VigiaError if there is none."""
    first, second = load(one), load(other)
    names = list(dict.fromkeys(m for m in first.units if m in second.units and metric in (None, m)))
    found: list[tuple[str, str, Comparison]] = []
    for factors in _combinations(first):
        for m in names:
            x, y = first.each(m, mean, **factors), second.each(m, mean, **factors)
            if min(x.size, y.size) >= 2 and not (np.ptp(x) == np.ptp(y) == 0 and x[0] == y[0]):
                confidence = one.campaign.confidence
                shown = " ".join(map(str, factors.values()))
                found.append((shown, m, compare_samples(one.name, other.name, x, y, confidence=confidence)))
    if not found:
        wanted = f" of {metric}" if metric else ""
        raise VigiaError(
            f"{one.name} and {other.name} have no combination{wanted} that both measured at least twice"
        )
    adjusted = holm([c.p_value for _, _, c in found])
    alpha = 1 - one.campaign.confidence
    return [
        Pair(shown, m, first.units[m], c, float(p), bool(p <= alpha))
        for (shown, m, c), p in zip(found, adjusted, strict=True)
    ]


def _combinations(data: Data) -> list[dict[str, str | int]]:
    found: list[dict[str, str | int]] = []
    for r in data.repetitions:
        if dict(r.factors) not in found:
            found.append(dict(r.factors))
    return found
