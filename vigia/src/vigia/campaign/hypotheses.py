"""What a campaign asks, stated before it runs: which cells are compared, and what would be worth seeing.

Every question is a contrast: a weighted sum of one number per cell, computed within a block, which holds
every combination once. So all questions are judged alike, and what drifts from block to block cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from vigia_config import Strict, fault
from vigia_text.numbers import percent, quantity

__all__ = [
    "Bound",
    "Cell",
    "Contrast",
    "Factor",
    "Growth",
    "Hypothesis",
    "Pairs",
    "Part",
    "Question",
    "Term",
    "Word",
    "families",
]

Word = Annotated[str, StringConstraints(pattern="^[a-z][a-z0-9_]{0,31}$")]
Factor = str | int
"""A level of a factor. Rates are written with their unit, as text."""
Cell = Mapping[str, Factor]


class Pairs(Strict):
    """Every two levels of a factor, or each with a reference, where all other factors are equal."""

    kind: Literal["pairs"]
    factor: Word
    reference: Factor | None = Field(default=None, description="Compare each level with this one only.")


class Growth(Strict):
    """Whether a metric grows along the levels of a factor: its slope for ten times as much."""

    kind: Literal["trend"]
    factor: Word
    at: dict[str, Annotated[float, Field(gt=0)]] = Field(
        description="Level: the number that it stands for.", min_length=3
    )


class Term(Strict):
    """One cell in a contrast."""

    metric: str
    weight: float
    where: dict[Word, Factor] = Field(description="Levels that choose the cell.")


class Contrast(Strict):
    """A weighted sum over named cells, for example an interaction."""

    kind: Literal["contrast"]
    terms: list[Term] = Field(min_length=2)


class Bound(Strict):
    """Whether every cell reaches a value. All must, so their number needs no correction."""

    kind: Literal["bound"]
    at_least: float


class Hypothesis(Strict):
    """A claim, how it is tested, and the smallest effect worth seeing."""

    name: Word
    claim: str = Field(description="What the tests may find.", max_length=300)
    metric: str = Field(description="Metric of the samples; a repetition gives one number of it.")
    unit: str = Field(default="", description="What an effect is counted in, if not in parts.")
    reduce: Literal["mean", "median", "jitter", "lost"] = Field(
        default="mean", description="How the samples of a repetition become one number."
    )
    better: Literal["lower", "higher"] = Field(default="lower", description="Which way is better.")
    where: dict[Word, list[Factor]] = Field(
        default={}, description="Only cells that have one of these levels."
    )
    test: Annotated[Pairs | Growth | Contrast | Bound, Field(discriminator="kind")]
    scale: Literal["ratio", "difference"] = Field(
        default="ratio", description="Whether effects multiply, as those of times and rates do, or add."
    )
    smallest_effect: float = Field(
        description="The smallest effect worth seeing: 0.2 is 20 % (ratio), or 0.2 of the unit (difference).",
        gt=0,
    )
    margin: float = Field(
        default=0.0, description="Effects up to this are taken for equal, in the same terms.", ge=0
    )
    spread: float = Field(
        description="Standard deviation between repetitions of a cell, of a pilot: of logarithms (ratio), or "
        "of the unit (difference).",
        gt=0,
    )

    family: Word | None = Field(
        default=None,
        description="Hypotheses of the same family are corrected together; without, each is its own.",
    )
    fails_at: float | None = Field(
        default=None,
        description="A repetition whose number is this or more failed, such as a loss of everything. Of "
        "ratios, one of zero or less always did: nothing arrived.",
    )

    @model_validator(mode="after")
    def _effect_beyond_margin(self) -> Hypothesis:
        if self.smallest_effect <= self.margin:
            raise fault(("smallest_effect",), "is not larger than margin", "write a larger one")
        return self

    def scaled(self, effect: float) -> float:
        """Return an effect in the contrast's unit: logarithms, or the unit itself."""
        return math.log1p(effect) if self.scale == "ratio" else effect

    def shown(self, effect: float) -> str:
        """Return an effect for people."""
        if self.scale == "ratio":
            return percent(effect)
        return f"{100 * effect:g} points" if self.unit in ("", "ratio") else quantity(effect, self.unit)

    def questions(self, cells: Sequence[Cell]) -> list[Question]:
        """Return what is asked of these cells."""
        chosen = [c for c in cells if all(_among(c.get(n), levels) for n, levels in self.where.items())]
        match self.test:
            case Pairs() as test:
                return [q for group in _groups(chosen, test.factor) for q in self._pairs(test, *group)]
            case Growth() as test:
                return [q for group in _groups(chosen, test.factor) for q in self._trend(test, *group)]
            case Contrast() as test:
                return self._contrast(test, chosen)
            case Bound():
                return [Question(self, c, (Part(1.0, self.metric, c),)) for c in chosen]

    def confidence(self, questions: int, confidence: float) -> float:
        """Return the confidence of one interval, so that all of so many questions of a family hold together.

        Bonferroni; a bound is one-sided and all cells must reach it, which needs no correction.
        """
        alpha = 1.0 - confidence
        return 1.0 - 2 * alpha if isinstance(self.test, Bound) else 1.0 - alpha / max(1, questions)

    def _pairs(self, test: Pairs, stratum: Cell, cells: Sequence[Cell]) -> Iterator[Question]:
        by_level = {str(c[test.factor]): c for c in cells}
        wanted = list(combinations(by_level, 2))
        if test.reference is not None:
            wanted = [(x, str(test.reference)) for x in by_level if x != str(test.reference)]
        for first, second in wanted:
            if first in by_level and second in by_level:
                parts = Part(1.0, self.metric, by_level[first]), Part(-1.0, self.metric, by_level[second])
                yield Question(self, stratum, parts, first, second)

    def _trend(self, test: Growth, stratum: Cell, cells: Sequence[Cell]) -> Iterator[Question]:
        here = {at: c for c in cells if (at := test.at.get(str(c[test.factor]))) is not None}
        if len(here) < 3:
            return
        decades = {at: math.log10(at) for at in here}
        middle = sum(decades.values()) / len(decades)
        square = sum((d - middle) ** 2 for d in decades.values())
        parts = tuple(Part((decades[at] - middle) / square, self.metric, c) for at, c in sorted(here.items()))
        yield Question(self, stratum, parts)

    def _contrast(self, test: Contrast, cells: Sequence[Cell]) -> list[Question]:
        parts = []
        for term in test.terms:
            fitting = [c for c in cells if all(str(c.get(n)) == str(v) for n, v in term.where.items())]
            if len(fitting) != 1:
                return []
            parts.append(Part(term.weight, term.metric, fitting[0]))
        return [Question(self, {}, tuple(parts))]


@dataclass(frozen=True)
class Part:
    """A cell's number in a contrast."""

    weight: float
    metric: str
    factors: Cell


@dataclass(frozen=True)
class Question:
    """One contrast of a hypothesis."""

    hypothesis: Hypothesis
    stratum: Cell
    """The factors that all of its cells share."""
    parts: Sequence[Part]
    first: str = ""
    second: str = ""
    """Of two levels: the contrast is the first minus the second."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the contrast between blocks, in the unit of the contrast."""
        return self.hypothesis.spread * math.sqrt(sum(p.weight**2 for p in self.parts))


def families(
    hypotheses: Sequence[Hypothesis], cells: Sequence[Cell]
) -> list[tuple[Hypothesis, list[Question], int]]:
    """Return each hypothesis that asks of these cells, what it asks, and how many its family asks."""
    asked = [(h, questions) for h in hypotheses if (questions := h.questions(cells))]
    sizes: dict[str, int] = {}
    for h, questions in asked:
        family = h.family or f"/{h.name}"
        sizes[family] = sizes.get(family, 0) + len(questions)
    return [(h, questions, sizes[h.family or f"/{h.name}"]) for h, questions in asked]


def _among(level: Factor | None, levels: Sequence[Factor]) -> bool:
    return str(level) in {str(v) for v in levels}


def _groups(cells: Sequence[Cell], factor: str) -> list[tuple[Cell, list[Cell]]]:
    """Return cells that differ in one factor only, by what they share."""
    found: list[tuple[Cell, list[Cell]]] = []
    for cell in cells:
        if factor not in cell:
            continue
        stratum = {n: v for n, v in cell.items() if n != factor}
        for shared, group in found:
            if shared == stratum:
                group.append(cell)
                break
        else:
            found.append((stratum, [cell]))
    return found
