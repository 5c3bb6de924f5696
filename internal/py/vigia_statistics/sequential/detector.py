"""One path by itself: did its level change for good?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vigia_statistics.sequential.question import Question


@dataclass(frozen=True)
class Change:
    """A level that is not the usual one any more."""

    at: float
    """Unix time at which it was found."""
    since: float
    """Unix time at which it most likely began."""
    worse: bool
    estimate: float
    """Of the level since then over the usual one, or minus it, by the question's scale."""


class Detector:
    """The level of one path on one metric, from windows of a minute: an e-detector on blocks of 15 minutes.

    The first day (``season``) is learned and nothing is said; without a season, the first four hours.
    """

    def __init__(
        self,
        question: Question,
        started: float,
        season: float | None = 86400.0,
        false_alarms_per_month: float = 0.1,
    ) -> None:
        """Begin at ``started``, Unix time.

        A change is a level beyond the question's margin. ``season`` is the length of the cycle that the level
        has anyway; None: it has none.
        """
        raise NotImplementedError

    @property
    def learning(self) -> bool:
        """Whether the usual level is not known yet."""
        raise NotImplementedError

    @property
    def change(self) -> Change | None:
        """The change that was found; it stays until ``reset``."""
        raise NotImplementedError

    def update(self, at: float, value: float | None) -> Change | None:
        """Take the window that ends at ``at``; returns a change in the moment it is found, else None.

        One that is not newer than the last one changes nothing. Raises ValueError for an infinite or negative value.
        """
        raise NotImplementedError

    def reset(self, at: float) -> None:
        """Forget everything and learn anew from ``at``: what is now is usual, or the configuration changed."""
        raise NotImplementedError

    def as_data(self) -> dict[str, Any]:
        """Return the whole state as JSON holds it."""
        raise NotImplementedError

    @classmethod
    def from_data(cls, question: Question, data: Mapping[str, Any]) -> Self:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such, or of another question."""
        raise NotImplementedError
