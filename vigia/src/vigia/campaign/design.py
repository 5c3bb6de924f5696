"""Whether a plan can answer what it asks: power by simulation, before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vigia.campaign.hypotheses import Bound, Cell, Hypothesis, Question, families
from vigia.errors import VigiaError

__all__ = ["POWER", "Ability", "abilities", "check"]

POWER = 0.8
"""Probability with which a plan must find the smallest effect worth seeing."""


@dataclass(frozen=True)
class Ability:
    """What a plan can say about a hypothesis."""

    hypothesis: Hypothesis
    questions: int
    repetitions: int
    power: float
    """Probability that the smallest effect worth seeing is found."""
    equivalence: float
    """Probability that two which are alike are found to be so."""
    needed: int | None
    """Fewest repetitions with POWER; None if no number up to 200 has it."""

    @property
    def enough(self) -> bool:
        """Whether the plan can separate what it asks."""
        return self.power >= POWER


def abilities(
    hypotheses: Sequence[Hypothesis], cells: Sequence[Cell], repetitions: int, confidence: float
) -> list[Ability]:
    """Return what so many repetitions of these cells can say about each hypothesis that asks of them."""
    return [
        _ability(h, questions, h.confidence(family, confidence), repetitions)
        for h, questions, family in families(hypotheses, cells)
    ]


def _ability(h: Hypothesis, asked: Sequence[Question], level: float, repetitions: int) -> Ability:
    from vigia_statistics import signed_rank_power, smallest_number  # noqa: PLC0415 - loads scipy

    effect, deviation = h.scaled(h.smallest_effect), max(q.deviation for q in asked)
    margin = 0.0 if isinstance(h.test, Bound) else h.scaled(h.margin)
    power = signed_rank_power(repetitions, effect, deviation, margin=margin, confidence=level)
    needed: int | None = repetitions
    if power.separates < POWER:
        needed = smallest_number(POWER, effect, deviation, margin=margin, confidence=level)
    return Ability(h, len(asked), repetitions, power.separates, power.equivalent, needed)


def check(name: str, found: Sequence[Ability]) -> None:
    """Raise VigiaError if a plan cannot separate what its hypotheses ask."""
    if not found:
        raise VigiaError(
            f"campaign {name} cannot answer anything: no hypothesis is about its combinations; write "
            "hypotheses, or run it with --size smoke, which shows that it runs and answers nothing"
        )
    weak = [a for a in found if not a.enough]
    if weak:
        raise VigiaError(
            f"campaign {name} cannot separate what it asks: {'; '.join(map(_weakness, weak))}; write more "
            "repetitions or a larger smallest_effect, or run it with --size smoke, which answers nothing"
        )


def _weakness(a: Ability) -> str:
    h = a.hypothesis
    count = f"{a.questions} comparison{'s' if a.questions > 1 else ''}"
    fix = f"{a.needed} repetitions would do" if a.needed else "200 repetitions would not do"
    return (
        f"{h.name} ({count}) finds an effect of {h.shown(h.smallest_effect)} with "
        f"probability {a.power:.2f} in {a.repetitions} repetitions, not {POWER}: {fix}"
    )
