"""One pair of paths and one metric, watched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from vigia_statistics.samples import Floats, checked_confidence
from vigia_statistics.sequential import grounds
from vigia_statistics.sequential.counts import Counts
from vigia_statistics.sequential.engine import Engine
from vigia_statistics.sequential.plain import number
from vigia_statistics.sequential.question import Question, Scale
from vigia_statistics.sequential.verdict import Effect, Evidence, Latch, Said, Verdict
from vigia_statistics.verdict import Direction

__all__ = ["EARLIER", "LossPair", "Pair", "Standing", "asked", "value_of"]

LARGEST = 1e15
"""Of a value, in any unit: squares of larger ones have no digits left."""
EARLIER = 1e-3
"""Seconds by which a window has to be newer than the last one."""


class Standing(NamedTuple):
    """An e-value among others."""

    adjusted: float
    """For the family."""
    required: float
    """Of the e-value itself, for the adjusted one to be what is needed."""


class Pair:
    """Two paths on one metric of one value a window: medians, p99, jitter, throughput.

    Feed it windows of both paths that end at the same moment, oldest first: of about 15 s in the first hour
    (as short as 5 s; then what is obvious is said within a minute), of a minute from then on. Windows of a
    minute from the beginning are fine as well. Longer ones (bulk transfers every few minutes) count as one
    each.
    """

    def __init__(self, question: Question, started: float) -> None:
        """Begin at ``started``, Unix time, when the first window begins."""
        self._question = question
        self._started = self._last = number("started", started)
        self._latch = Latch()
        self._engine = self._begin()

    def _begin(self) -> Engine | Counts:
        return Engine(1, self._question.bound, self._question.noise)

    @property
    def question(self) -> Question:
        """What is asked."""
        return self._question

    @property
    def started(self) -> float:
        """Unix time of the last start anew."""
        return self._started

    @property
    def last(self) -> float:
        """Unix time at which the newest window ends that was taken; ``started`` before the first."""
        return self._last

    def update(self, at: float, a: float | None, b: float | None) -> bool:
        """Take the window that ends at ``at``: values in the metric's unit, None or nan for missing.

        Returns whether it was taken: one that is not newer than the last one changes nothing, so that
        windows may be read twice. Raises ValueError for an infinite or negative value, naming it.
        """
        x, y = value_of("a", a), value_of("b", b)
        if self._question.scale is Scale.RATIO:
            floor = self._question.floor
            x, y = math.log(max(x, floor)), math.log(max(y, floor))  # max keeps a nan that comes first
        return self._take(at, np.array([x - y]))

    def _take(self, at: float, *values: Floats) -> bool:
        if not number("at", at) > self._last + EARLIER:
            return False
        self._engine.update(at - self._started, *values)
        self._last = at
        return True

    def evidence(self, alpha: float = 0.05) -> Evidence:
        """Return what is known by itself, with an interval of confidence 1 - alpha."""
        checked_confidence(1.0 - alpha)
        engine, question = self._engine, self._question
        assert isinstance(engine, Engine)  # noqa: S101 - what _begin gives
        known = engine.grounds()
        estimate = float(engine.estimate()[0])
        return _evidence(question, known, estimate, float(grounds.against(known, 0.0)[0]), alpha)

    def verdict(self, at: float, alpha: float = 0.05) -> Verdict:
        """Judge this pair at ``at`` as the only one of its family, and latch what is found; see
        Family.judge."""
        found = self.evidence(alpha)
        alone = Standing(found.e_value, 1.0 / alpha), Standing(found.e_equivalent, 1.0 / alpha)
        return self.settle(at, found, *alone, alpha)

    def settle(
        self, at: float, found: Evidence, different: Standing, equivalent: Standing, alpha: float
    ) -> Verdict:
        """Latch what the evidence says in the family, and say it; Family.judge calls it."""
        needed = 1.0 / alpha
        e_value, e_equivalent = different.adjusted, equivalent.adjusted
        if self._latch.contradicted(found, e_value, needed):
            self.reset(at)
            found = self.evidence(alpha)
            e_value, e_equivalent = min(1.0, found.e_value), min(1.0, found.e_equivalent)
        self._latch.take(at, found, e_value, e_equivalent, needed)
        said, since = self._latch.said
        asked_of = {
            Said.EQUIVALENT: equivalent.required,
            Said.UNKNOWN: max(different.required, equivalent.required),
        }
        effect = found.effect(1.0 / asked_of.get(said, different.required))
        return Verdict(
            said=said,
            since=since,
            ahead=found.ahead,
            e_value=found.e_value,
            adjusted_e_value=e_value,
            e_equivalent=e_equivalent,
            needed=needed,
            estimate=effect.estimate,
            lower=effect.lower,
            upper=effect.upper,
            confidence=1.0 - alpha,
            scale=self._question.scale,
            windows=found.windows,
            effective=found.effective,
            started=self._started,
        )

    def reset(self, at: float) -> None:
        """Forget everything and start anew at ``at``: a path's configuration changed, or somebody asked."""
        self._started = self._last = number("at", at)
        self._latch = Latch()
        self._engine = self._begin()

    def as_data(self) -> dict[str, Any]:
        """Return the whole state (some 300 numbers) as JSON holds it."""
        return {
            "version": 1,
            "question": asked(self._question),
            "started": self._started,
            "last": self._last,
            "latch": asdict(self._latch),
            "engine": self._engine.as_data(),
        }

    @classmethod
    def from_data(cls, question: Question, data: Mapping[str, Any]) -> Self:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such, or of another
        question."""
        if not isinstance(data, Mapping) or data.get("version") != 1:
            raise ValueError("version: is not 1; start anew")
        if data.get("question") != asked(question):
            raise ValueError("question: is another one than is asked now; start anew")
        out = cls(question, number("started", data.get("started")))
        out._last = number("last", data.get("last"))
        out._latch = Latch.of(data.get("latch"))
        engine = data.get("engine")
        if not isinstance(engine, Mapping):
            raise ValueError("engine: is not an object; start anew")
        out._engine.restore(engine)
        return out


class LossPair(Pair):
    """Two paths on loss, from counts of probes sent and lost. Judged minute by minute, not probe by probe."""

    def __init__(self, question: Question, started: float) -> None:
        """See Pair. Raises ValueError where the question is not of a difference."""
        if question.scale is not Scale.DIFFERENCE:
            raise ValueError(f"scale: {question.scale.value} does not fit counts; write difference")
        super().__init__(question, started)

    def _begin(self) -> Engine | Counts:
        return Counts(1, self._question.bound)

    def update(self, at: float, a: float | None, b: float | None) -> bool:
        """Not for loss: its certainty depends on how many probes were sent. Raises TypeError."""
        raise TypeError("loss is compared by counts; call update_counts")

    def update_counts(self, at: float, lost_a: float, sent_a: float, lost_b: float, sent_b: float) -> bool:
        """Take the window that ends at ``at``; returns whether it was newer than the last one, as
        ``update`` does.

        Counts may be fractions (rates times seconds). A window in which a path sent nothing is missing.
        Raises ValueError for counts that are negative, not finite, or more lost than sent.
        """
        for name, lost, sent in (("a", lost_a, sent_a), ("b", lost_b, sent_b)):
            if not 0.0 <= lost <= sent <= LARGEST:
                raise ValueError(f"lost_{name}, sent_{name}: {lost} of {sent}; need 0 <= lost <= sent")
        return self._take(at, *(np.array([float(v)]) for v in (lost_a, sent_a, lost_b, sent_b)))

    def evidence(self, alpha: float = 0.05) -> Evidence:
        """See Pair."""
        checked_confidence(1.0 - alpha)
        engine = self._engine
        assert isinstance(engine, Counts)  # noqa: S101 - what _begin gives
        a_worse, b_worse = (float(e[0]) for e in engine.log_e())
        estimate = float(engine.estimate()[0])
        found = _evidence(self._question, engine.grounds(), estimate, max(a_worse, b_worse), alpha)
        if a_worse == b_worse or math.isnan(estimate):
            return found
        a_ahead = (b_worse > a_worse) == (self._question.better is Direction.LOWER)
        return found.with_ahead(Said.A if a_ahead else Said.B)


def _evidence(
    question: Question, known: list[grounds.Ground], estimate: float, log_e: float, alpha: float
) -> Evidence:
    effect = partial(_effect, question, known, estimate)
    found = effect(alpha)
    alike = question.told(0.0)
    ahead = None
    if found.estimate != alike and not math.isnan(found.estimate):
        ahead = Said.A if (found.estimate < alike) == (question.better is Direction.LOWER) else Said.B
    steady = known[0]
    assert isinstance(steady, grounds.Studentised)  # noqa: S101 - the first one always is
    return Evidence(
        e_value=math.exp(log_e),
        e_equivalent=math.exp(float(grounds.within(known, question.bound)[0])),
        e_beyond=math.exp(float(grounds.beyond(known, question.bound)[0])),
        estimate=found.estimate,
        lower=found.lower,
        upper=found.upper,
        ahead=ahead,
        windows=int(steady.windows[0]),
        effective=float(steady.effective[0]),
        effect=effect,
    )


def _effect(question: Question, known: list[grounds.Ground], estimate: float, alpha: float) -> Effect:
    """Return the effect as it is told, with an interval of confidence 1 - alpha."""
    lower, upper = (float(end[0]) for end in grounds.covering(known, alpha))
    if not math.isnan(estimate) and lower <= upper:
        estimate = min(max(estimate, lower), upper)
    middle = math.nan if math.isnan(estimate) else question.told(estimate)
    return Effect(middle, question.told(lower), question.told(upper))


def asked(question: Question) -> dict[str, Any]:
    """Return a question as JSON holds it."""
    return {k: str(v) if isinstance(v, str) else v for k, v in asdict(question).items()}


def value_of(name: str, value: float | None) -> float:
    """Return a window's value, nan for none. Raises ValueError for what no metric can be."""
    if value is None or math.isnan(value):
        return math.nan
    if not 0.0 <= value <= LARGEST:
        raise ValueError(f"{name}: {value} is not a number from 0 to {LARGEST:g}")
    return float(value)
