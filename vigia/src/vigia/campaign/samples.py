"""What a repetition leaves: its samples, and the record of how they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vigia.campaign.model import Factor

__all__ = ["Record", "Series"]


@dataclass(frozen=True)
class Series:
    """Samples of one metric in one repetition."""

    metric: str
    unit: str
    """s, bit/s, ratio, packets/s, or what a benchmark counts."""
    values: Sequence[float]
    """In the order of measurement; NaN is a packet that was lost."""
    connection: int = 0


@dataclass(frozen=True)
class Record:
    """A repetition that was made, or that failed."""

    run: int
    block: int
    cell: int
    factors: Mapping[str, Factor]
    began: float
    """Unix time."""
    seconds: float
    samples: int
    status: str = "done"
    """done or failed."""
    reason: str = ""
    load: tuple[float, float] = (0.0, 0.0)
    """Load average over one minute before and after."""
    events: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """What happened meanwhile: at (Unix time), what."""
