"""One pair of paths and one metric, watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from vigia_statistics.sequential.question import Question
from vigia_statistics.sequential.verdict import Evidence, Verdict


class Pair:
    """Two paths on one metric of one value a window: medians, p99, jitter, throughput.

    Feed it windows of both paths that end at the same moment, oldest first: of about 15 s in the first hour (as short as
    5 s; then what is obvious is said within a minute), of a minute from then on. Windows of a minute from the
    beginning are fine as well. Longer ones (bulk transfers every few minutes) count as one each.
    """

    def __init__(self, question: Question, started: float) -> None:
        """Begin at ``started``, Unix time, when the first window begins."""
        raise NotImplementedError

    @property
    def question(self) -> Question:
        """What is asked."""
        raise NotImplementedError

    @property
    def started(self) -> float:
        """Unix time of the last start anew."""
        raise NotImplementedError

    @property
    def last(self) -> float:
        """Unix time at which the newest window ends that was taken; ``started`` before the first."""
        raise NotImplementedError

    def update(self, at: float, a: float | None, b: float | None) -> bool:
        """Take the window that ends at ``at``: values in the metric's unit, None or nan for missing.

        Returns whether it was taken: one that is not newer than the last one changes nothing, so that windows may
        be read twice. Raises ValueError for an infinite or negative value, naming it.
        """
        raise NotImplementedError

    def evidence(self, alpha: float = 0.05) -> Evidence:
        """Return what is known by itself, with an interval of confidence 1 - alpha."""
        raise NotImplementedError

    def verdict(self, at: float, alpha: float = 0.05) -> Verdict:
        """Judge this pair at ``at`` as the only one of its family, and latch what is found; see Family.judge."""
        raise NotImplementedError

    def reset(self, at: float) -> None:
        """Forget everything and start anew at ``at``: a path's configuration changed, or somebody asked."""
        raise NotImplementedError

    def as_data(self) -> dict[str, Any]:
        """Return the whole state (some 60 numbers) as JSON holds it."""
        raise NotImplementedError

    @classmethod
    def from_data(cls, question: Question, data: Mapping[str, Any]) -> Self:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such, or of another question."""
        raise NotImplementedError


class LossPair(Pair):
    """Two paths on loss, from counts of probes sent and lost. Judged minute by minute, not probe by probe."""

    def update_counts(self, at: float, lost_a: float, sent_a: float, lost_b: float, sent_b: float) -> bool:
        """Take the window that ends at ``at``; see ``update``, which is refused here (TypeError).

        Counts may be fractions (rates times seconds). A window in which a path sent nothing is missing.
        Raises ValueError for counts that are negative, not finite, or more lost than sent.
        """
        raise NotImplementedError
