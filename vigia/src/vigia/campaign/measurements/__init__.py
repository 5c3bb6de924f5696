"""How one repetition of each study is made: one module per study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vigia.campaign.bed import Bed
from vigia.campaign.folder import Series
from vigia.campaign.model import Factor, Settings

__all__ = ["Estimate", "Factors", "Measurement", "level", "whole"]

Factors = Mapping[str, Factor]


@dataclass(frozen=True)
class Estimate:
    """What one repetition costs at most."""

    seconds: float
    bytes: float


class Measurement(Protocol):
    """One study's way to measure."""

    factors: Mapping[str, Sequence[str] | None]
    """Each factor that a cell must have, with its levels if they are a closed list."""

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""

    def measure(self, factors: Factors, settings: Settings, bed: Bed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""


def level(factors: Factors, name: str) -> str:
    """Return a factor's level as text."""
    return str(factors[name])


def whole(factors: Factors, name: str) -> int:
    """Return a factor's level as a whole number."""
    return int(factors[name])
