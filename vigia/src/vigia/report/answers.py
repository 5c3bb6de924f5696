"""From hypotheses and samples to verdicts: who wins and who loses, what is equal, what cannot be told, what failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from vigia.campaign.hypotheses import Bound, Factor, Hypothesis, Question, families
from vigia.report.data import REDUCE, Data, Floats
from vigia_statistics import holm, signed_rank
from vigia_text.numbers import interval, percent, quantity

__all__ = ["Answer", "Said", "Standing", "capital", "evaluate", "place", "standings", "sureness", "tally"]

_TOLERATED = 0.2
"""Part of a cell's repetitions that may fail before it is not ranked."""


class Said(StrEnum):
    """What the whole interval of a contrast says, beside the margin of equivalence."""

    ABOVE = "above"
    BELOW = "below"
    EQUAL = "equivalent"
    OPEN = "undecided"
    TOO_FEW = "too few repetitions"
    FAILED = "measurement failed"


@dataclass(frozen=True)
class Answer:
    """A question and its answer. Effects are in the contrast's unit: logarithms where they multiply."""

    question: Question
    outcome: Said
    values: Floats
    """The contrast of each block."""
    estimate: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    p_value: float = math.nan
    adjusted: float = math.nan
    """After Holm over the hypothesis."""
    reason: str = ""

    @property
    def hypothesis(self) -> Hypothesis:
        """What was stated."""
        return self.question.hypothesis

    @property
    def winner(self) -> str | None:
        """The better one of two levels, None if none is."""
        q = self.question
        if not q.first or self.outcome not in (Said.ABOVE, Said.BELOW):
            return None
        higher_is_better = self.hypothesis.better == "higher"
        return q.first if (self.outcome is Said.ABOVE) == higher_is_better else q.second

    @property
    def loser(self) -> str | None:
        """The worse one of two levels, None if none is."""
        q = self.question
        return None if self.winner is None else ({q.first, q.second} - {self.winner}).pop()

    @property
    def effect(self) -> tuple[float, float, float]:
        """Estimate and interval: a ratio, or a difference, or what is held against a bound."""
        found = self.estimate, self.lower, self.upper
        if self.hypothesis.scale == "ratio":
            return tuple(math.exp(v) for v in found)  # type: ignore[return-value]
        base = self.hypothesis.test.at_least if isinstance(self.hypothesis.test, Bound) else 0.0
        return tuple(v + base for v in found)  # type: ignore[return-value]

    @property
    def shown(self) -> str:
        """The effect for people."""
        if not math.isfinite(self.estimate):
            return "–"
        if self.outcome is Said.TOO_FEW:  # an interval would hold less than it says
            return f"about {self._estimated}"
        if self.hypothesis.scale == "ratio":
            return f"× {interval(*self.effect, '').strip()}"
        return interval(*self.effect, self.hypothesis.unit or "ratio")

    @property
    def _estimated(self) -> str:
        if self.hypothesis.scale == "ratio":
            return f"× {quantity(self.effect[0], '').strip()}"
        return quantity(self.effect[0], self.hypothesis.unit or "ratio")

    @property
    def verdict(self) -> str:
        """The verdict for people."""
        if self.winner:
            return f"{self.winner} wins, {self.loser} loses"
        if self.reason:
            return f"{self.outcome}: {self.reason}"
        if isinstance(self.hypothesis.test, Bound):
            return {Said.ABOVE: "reached", Said.BELOW: "not reached"}.get(self.outcome, str(self.outcome))
        return {Said.ABOVE: "grows", Said.BELOW: "falls"}.get(self.outcome, str(self.outcome))


def evaluate(hypotheses: Sequence[Hypothesis], data: Data, confidence: float) -> dict[str, list[Answer]]:
    """Answer every question, by hypothesis; intervals of a family hold together at the campaign's confidence.

    A hypothesis about a metric of which there is no sample at all is left out: it was not measured.
    """
    measured = {metric for r in data.repetitions for metric in r.samples}
    found: dict[str, list[Answer]] = {}
    shared: dict[str, list[tuple[str, int]]] = {}
    for h, questions, family in families(hypotheses, data.cells):
        if not any(p.metric in measured for q in questions for p in q.parts):
            continue
        level = h.confidence(family, confidence)
        found[h.name] = [_judged(q, data, level) for q in questions]
        places = shared.setdefault(h.family or f"/{h.name}", [])
        places += [(h.name, n) for n, f in enumerate(found[h.name]) if math.isfinite(f.p_value)]
    for places in shared.values():
        adjusted = holm([found[name][n].p_value for name, n in places])
        for (name, n), p in zip(places, adjusted, strict=True):
            found[name][n] = replace(found[name][n], adjusted=float(p))
    return found


def _judged(q: Question, data: Data, level: float) -> Answer:
    h = q.hypothesis
    reduce, blocks = REDUCE[h.reduce], data.blocks
    columns = []
    for part in q.parts:
        numbers = data.by_block(part.metric, reduce, part.factors)
        failed = [b for b in blocks if not _measured(h, numbers.get(b, math.nan))]
        if len(failed) > _TOLERATED * len(blocks):
            why = _why(h, numbers, part.metric)
            name = str(next((v for k, v in part.factors.items() if q.stratum.get(k) != v), part.metric))
            reason = f"{name}: {why} in {len(failed)} of {len(blocks)} repetitions"
            return Answer(q, Said.FAILED, np.empty(0), reason=reason)
        columns.append({b: v for b, v in numbers.items() if b not in failed})
    whole = [b for b in blocks if all(b in c for c in columns)]
    scale = math.log if h.scale == "ratio" else float
    weights = [p.weight for p in q.parts]
    offset = h.test.at_least if isinstance(h.test, Bound) else 0.0
    values = np.array(
        [sum(w * scale(c[b]) for w, c in zip(weights, columns, strict=True)) - offset for b in whole]
    )
    return _decided(q, values, level)


def _decided(q: Question, values: Floats, level: float) -> Answer:
    needed = math.ceil(1 - math.log2(1 - level) - 1e-9)
    if values.size < 2:
        return Answer(q, Said.TOO_FEW, values, reason=f"{values.size}, and {needed} are needed")
    # Rounded, so that what is equal but for the last bits of a logarithm is equal.
    signed = signed_rank(np.round(values, 12), level)
    shift = signed.shift
    found = Answer(q, Said.OPEN, values, shift.estimate, shift.lower, shift.upper, signed.p_value)
    if values.size < needed:
        return replace(found, outcome=Said.TOO_FEW, reason=f"{values.size}, and {needed} are needed")
    margin = 0.0 if isinstance(q.hypothesis.test, Bound) else q.hypothesis.scaled(q.hypothesis.margin)
    if isinstance(q.hypothesis.test, Bound):
        outcome = Said.ABOVE if shift.lower >= 0 else Said.BELOW if shift.upper < 0 else Said.OPEN
    elif shift.lower > margin:
        outcome = Said.ABOVE
    elif shift.upper < -margin:
        outcome = Said.BELOW
    else:
        outcome = Said.EQUAL if -margin <= shift.lower and shift.upper <= margin else Said.OPEN
    return replace(found, outcome=outcome)


def _measured(h: Hypothesis, value: float) -> bool:
    """Whether a number is one: it is there, and something arrived."""
    if not math.isfinite(value) or (h.scale == "ratio" and value <= 0):
        return False
    return h.fails_at is None or value < h.fails_at


def _why(h: Hypothesis, numbers: Mapping[int, float], metric: str) -> str:
    present = [v for v in numbers.values() if math.isfinite(v)]
    if not present:
        return f"no {metric}"
    worst = max(present) if h.fails_at is not None else min(present)
    unit = h.unit or "ratio"
    return f"{metric} {percent(worst) if unit == 'ratio' else f'{worst:g} {unit}'}"


@dataclass(frozen=True)
class Standing:
    """How the levels of a factor stand against each other, all else equal."""

    stratum: Mapping[str, Factor]
    winners: Sequence[str]
    """Who beats every other."""
    losers: Sequence[str]
    """Who is beaten and beats nobody."""
    findings: Sequence[Answer]

    @property
    def failed(self) -> Sequence[str]:
        """Why some are not ranked."""
        reasons = [f.reason for f in self.findings if f.outcome is Said.FAILED]
        return list(dict.fromkeys(reasons))

    @property
    def shown(self) -> str:
        """The standing for people, in a few words."""
        parts = [f"{w} wins" for w in self.winners]
        if self.losers:
            parts.append(f"{', '.join(self.losers)} lose{'s' if len(self.losers) == 1 else ''}")
        parts += [f"not ranked: {reason}" for reason in self.failed]
        if parts:
            return "; ".join(parts)
        outcomes = {f.outcome for f in self.findings}
        if outcomes == {Said.EQUAL}:
            return "equivalent"
        return "too few repetitions" if Said.TOO_FEW in outcomes else "undecided"


def standings(found: Sequence[Answer]) -> list[Standing]:
    """Return who wins and who loses, for each combination of the other factors."""
    groups: list[tuple[Mapping[str, Factor], list[Answer]]] = []
    for f in found:
        for stratum, group in groups:
            if stratum == f.question.stratum:
                group.append(f)
                break
        else:
            groups.append((f.question.stratum, [f]))
    return [_standing(stratum, group) for stratum, group in groups]


def _standing(stratum: Mapping[str, Factor], group: Sequence[Answer]) -> Standing:
    names = list(dict.fromkeys(n for f in group for n in (f.question.first, f.question.second)))
    beaten: dict[str, set[str]] = {n: set() for n in names}
    for f in group:
        if f.winner and f.loser:
            beaten[f.winner].add(f.loser)
    lost = set().union(*beaten.values())
    winners = [n for n in names if len(names) > 1 and beaten[n] == set(names) - {n}]
    losers = [n for n in names if n in lost and not beaten[n]]
    return Standing(stratum, winners, losers, group)


def place(q: Question, found: Sequence[Answer]) -> str:
    """Return where a question is asked: those shared factors in which the questions differ."""
    varied = [name for name in q.stratum if len({str(f.question.stratum.get(name)) for f in found}) > 1]
    return " ".join(str(q.stratum[n]) for n in varied)


def tally(ranked: Sequence[Standing]) -> str:
    """Return how often each level wins and loses, and how many rankings say nothing, for people."""
    names = dict.fromkeys(
        n for s in ranked for f in s.findings for n in (f.question.first, f.question.second)
    )
    counted = {n: (sum(n in s.winners for s in ranked), sum(n in s.losers for s in ranked)) for n in names}
    parts = [f"{name} wins {won} and loses {lost}" for name, (won, lost) in counted.items() if won or lost]
    if not parts:
        parts = ["nobody wins or loses"]
    failed = sum(bool(s.failed) for s in ranked)
    none = [s for s in ranked if not (s.winners or s.losers or s.failed)]
    equal = sum(s.shown == "equivalent" for s in none)
    few = sum(s.shown == "too few repetitions" for s in none)
    for count, what in (
        (equal, "equivalent within the margin"),
        (len(none) - equal - few, "undecided"),
        (few, "of too few repetitions to decide"),
        (failed, "not ranked in full because a measurement failed"),
    ):
        if count:
            parts.append(f"{count} {'is' if count == 1 else 'are'} {what}")
    word = "ranking" if len(ranked) == 1 else "rankings"
    return f"Of {len(ranked)} {word}, {'; '.join(parts)}." if ranked else "Nothing was ranked."


def sureness(decided: int, asked: int, what: str, limit: str = "") -> str:
    """Say how sure a report is, from how many of its questions are decided; limit is what that leaves out."""
    if not decided:
        return "none: nothing is decided"
    word = "high" if decided > 0.8 * asked else "moderate" if decided > 0.4 * asked else "low"
    return f"{word}: {decided} of {asked} {what} are decided{f'; {limit}' if limit else ''}"


def capital(text: str) -> str:
    """Return text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
