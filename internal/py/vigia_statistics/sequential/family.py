"""Many pairs and metrics: the chance of any false verdict among all of them, ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np

from vigia_statistics.samples import Floats, Samples, checked
from vigia_statistics.sequential.pair import LossPair, Pair, Standing
from vigia_statistics.sequential.plain import number
from vigia_statistics.sequential.question import Question, Scale
from vigia_statistics.sequential.verdict import Verdict
from vigia_statistics.verdict import Direction

__all__ = ["Family", "closed", "required"]

_P = TypeVar("_P", bound=Pair)


def closed(e_values: Samples) -> Floats:
    """Return e-values adjusted by closed testing with averages, in the order given, shape (n,).

    Each is the smallest average of a set that it is in (Vovk and Wang 2021). Rejecting those at or above 1
    / alpha keeps the chance of any false rejection at alpha, at all times, however the processes depend on
    each other. Raises ValueError for values below 0. O(n log n).
    """
    e = checked("e_values", e_values, least=0)
    if (e < 0.0).any():
        raise ValueError("e_values: holds a value below 0")
    order = np.argsort(e, kind="stable")
    ascending = e[order]
    out = np.empty_like(e)
    joined, total = 0, 0.0
    for rank, own in enumerate(ascending):
        # The smallest of the others join while they lower the average; a larger one is joined by no fewer.
        while joined < rank and ascending[joined] * (joined + 1) < own + total:
            total += float(ascending[joined])
            joined += 1
        out[order[rank]] = (own + total) / (joined + 1)
    return out


def required(e_values: Samples, needed: float) -> Floats:
    """Return how large each e-value, the others given, has to be for ``closed`` to make it ``needed``,
    shape (n,).

    Every set that it is in must have that average; the worst one holds all others that are below. Raises
    ValueError for values below 0. O(n).
    """
    lacking = np.maximum(needed - checked("e_values", e_values, least=0), 0.0)
    return np.asarray(needed + lacking.sum() - lacking)


class Family:
    """All pairs and metrics that are shown together; the order in which they come does not matter."""

    def __init__(self, alpha: float = 0.05) -> None:
        """Keep the chance that any "better" is false at ``alpha``, and that of any "equivalent" as well.

        Raises ValueError for an alpha outside (0, 1).
        """
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha: {alpha} is outside (0, 1); write for example 0.05")
        self._alpha = alpha
        self._pairs: dict[str, Pair] = {}

    @property
    def alpha(self) -> float:
        """The chance of a false "better" anywhere, ever."""
        return self._alpha

    @property
    def pairs(self) -> Mapping[str, Pair]:
        """All pairs by their keys."""
        return MappingProxyType(self._pairs)

    def watch(self, key: str, question: Question, started: float) -> Pair:
        """Return the pair of this key; begin at ``started`` where there is none, or one of another
        question."""
        return self._watch(Pair, key, question, started)

    def watch_loss(self, key: str, question: Question, started: float) -> LossPair:
        """As ``watch``, for loss."""
        return self._watch(LossPair, key, question, started)

    def _watch(self, kind: type[_P], key: str, question: Question, started: float) -> _P:
        there = self._pairs.get(key)
        if type(there) is kind and there.question == question:
            return there
        pair = self._pairs[key] = kind(question, started)
        return pair

    def forget(self, key: str) -> None:
        """Leave a pair out from now on; nothing happens where there is none."""
        self._pairs.pop(key, None)

    def judge(self, at: float) -> dict[str, Verdict]:
        """Say what is known of every pair at ``at``, by key.

        Latches: what was said stays, with the time since which. A pair whose evidence later proves the
        contrary (the other one is better; the difference is beyond the margin after all) has changed its
        nature: it starts anew, and is not known yet.
        """
        found = {key: pair.evidence(self._alpha) for key, pair in self._pairs.items()}
        different = self._standings([f.e_value for f in found.values()])
        equivalent = self._standings([f.e_equivalent for f in found.values()])
        return {
            key: self._pairs[key].settle(at, f, d, q, self._alpha)
            for (key, f), d, q in zip(found.items(), different, equivalent, strict=True)
        }

    def _standings(self, e_values: Sequence[float]) -> list[Standing]:
        needed = 1.0 / self._alpha
        both = zip(closed(e_values), required(e_values, needed), strict=True)
        return [Standing(float(adjusted), float(own)) for adjusted, own in both]

    def as_data(self) -> dict[str, Any]:
        """Return the whole state as JSON holds it."""
        pairs = {
            key: {"loss": isinstance(pair, LossPair), **pair.as_data()} for key, pair in self._pairs.items()
        }
        return {"version": 1, "alpha": self._alpha, "pairs": pairs}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such."""
        if not isinstance(data, Mapping) or data.get("version") != 1:
            raise ValueError("version: is not 1; start anew")
        out = cls(number("alpha", data.get("alpha")))
        pairs = data.get("pairs")
        if not isinstance(pairs, Mapping):
            raise ValueError("pairs: is not an object; start anew")
        for key, state in pairs.items():
            try:
                question = _question(state.get("question") if isinstance(state, Mapping) else None)
                kind = LossPair if state.get("loss") is True else Pair
                out._pairs[str(key)] = kind.from_data(question, state)
            except ValueError as e:
                raise ValueError(f"pairs.{key}: {e}") from e
        return out


def _question(data: object) -> Question:
    names = {f.name for f in fields(Question)}
    if not isinstance(data, Mapping) or set(data) != names:
        raise ValueError(f"question: is not an object of {', '.join(sorted(names))}; start anew")
    noise = data["noise"]
    return Question(
        Direction(data["better"]),
        Scale(data["scale"]),
        number("question.margin", data["margin"]),
        number("question.floor", data["floor"]),
        None if noise is None else number("question.noise", noise),
    )
