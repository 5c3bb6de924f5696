"""What is asked of two paths: which way is better, and how small a difference does not matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vigia_statistics.verdict import Direction


class Scale(StrEnum):
    """How an effect is told."""

    RATIO = "ratio"
    """a over b, 1 where they are alike: values are compared by their logarithms."""
    DIFFERENCE = "difference"
    """a minus b in the metric's unit, 0 where they are alike."""


@dataclass(frozen=True)
class Question:
    """One metric of two paths. Raises ValueError naming the field that does not fit."""

    better: Direction
    scale: Scale
    margin: float
    """Practical equivalence. RATIO: 0.05 means within 5 %, from 1/1.05 to 1.05; DIFFERENCE: in the unit."""
    floor: float = 1e-7
    """RATIO only, in the unit: the resolution of the metric; smaller values, 0 too, count as this one."""
    noise: float | None = None
    """RATIO only: how far the mean log ratio of half a minute or more of two identical paths strays, as the
    scale of a sub-Gaussian; 0.5 is a factor of 1.65. What is far beyond it is said within the first minute.
    None: never so soon."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin > 0.0):
            raise ValueError(f"margin: {self.margin} is not above 0; write for example 0.05")
        if self.scale is Scale.RATIO and not (math.isfinite(self.floor) and self.floor > 0.0):
            raise ValueError(f"floor: {self.floor} is not above 0; write the metric's resolution, as 1e-7")
        if self.noise is not None and not (math.isfinite(self.noise) and self.noise > 0.0):
            raise ValueError(f"noise: {self.noise} is not above 0; write for example 0.5, or none")
        if self.noise is not None and self.scale is not Scale.RATIO:
            raise ValueError(f"noise: {self.noise} is for ratios; leave it out for differences")

    @property
    def bound(self) -> float:
        """The margin on the scale that is computed with: logarithms for RATIO, else the unit."""
        return math.log1p(self.margin) if self.scale is Scale.RATIO else self.margin

    def told(self, value: float) -> float:
        """Return an effect on the scale that is computed with as it is told: a ratio, or a difference."""
        if self.scale is Scale.DIFFERENCE:
            return value
        return math.exp(value) if value < 700.0 else math.inf


QUESTIONS: Mapping[str, Question] = {
    "rtt": Question(Direction.LOWER, Scale.RATIO, 0.05, 1e-7, 0.5),
    "rtt_p99": Question(Direction.LOWER, Scale.RATIO, 0.10, 1e-7, 0.7),
    "jitter": Question(Direction.LOWER, Scale.RATIO, 0.20, 1e-7, 0.7),
    "loss": Question(Direction.LOWER, Scale.DIFFERENCE, 0.001),
    "tcp_throughput": Question(Direction.HIGHER, Scale.RATIO, 0.05, 1.0, 0.5),
    "udp_throughput": Question(Direction.HIGHER, Scale.RATIO, 0.05, 1.0, 0.5),
    "tcp_rtt": Question(Direction.LOWER, Scale.RATIO, 0.10, 1e-7),
    "udp_jitter": Question(Direction.LOWER, Scale.RATIO, 0.20, 1e-7),
}
"""By the names of vigia-compare's measures; loss is for LossPair, all others for Pair."""
