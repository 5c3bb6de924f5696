"""Many pairs and metrics: the chance of any false verdict among all of them, ever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from vigia_statistics.samples import Floats, Samples
from vigia_statistics.sequential.pair import LossPair, Pair
from vigia_statistics.sequential.question import Question
from vigia_statistics.sequential.verdict import Verdict


def closed(e_values: Samples) -> Floats:
    """Return e-values adjusted by closed testing with averages, in the order given, shape (n,).

    Each is the smallest average of a set that it is in (Vovk and Wang 2021). Rejecting those at or above 1 / alpha keeps
    the chance of any false rejection at alpha, at all times, however the processes depend on each other.
    """
    raise NotImplementedError


class Family:
    """All pairs and metrics that are shown together; the order in which they come does not matter."""

    def __init__(self, alpha: float = 0.05) -> None:
        """Keep the chance that any "better" is false at ``alpha``, and that of any "equivalent" as well."""
        raise NotImplementedError

    @property
    def pairs(self) -> Mapping[str, Pair]:
        """All pairs by their keys."""
        raise NotImplementedError

    def watch(self, key: str, question: Question, started: float) -> Pair:
        """Return the pair of this key; begin at ``started`` where there is none, or one of another question."""
        raise NotImplementedError

    def watch_loss(self, key: str, question: Question, started: float) -> LossPair:
        """As ``watch``, for loss."""
        raise NotImplementedError

    def forget(self, key: str) -> None:
        """Leave a pair out from now on; nothing happens where there is none."""
        raise NotImplementedError

    def judge(self, at: float) -> dict[str, Verdict]:
        """Say what is known of every pair at ``at``, by key.

        Latches: what was said stays, with the time since which. A pair whose evidence later proves the
        contrary (the other one is better; the difference is beyond the margin after all) has changed its
        nature: it starts anew, and is not known yet.
        """
        raise NotImplementedError

    def as_data(self) -> dict[str, Any]:
        """Return the whole state as JSON holds it."""
        raise NotImplementedError

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such."""
        raise NotImplementedError
