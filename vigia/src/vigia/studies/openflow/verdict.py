"""Hardware or software: what the shape of the delay distribution says about where a switch forwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vigia.report.data import Floats
from vigia_statistics import Interval, rank_sum

__all__ = ["CONSTANT", "QUICK", "Forwarding", "forwarding"]

QUICK = 10e-6
"""Seconds that one pass of a hardware pipeline takes at most: look-up, and storing a frame of 256 bytes at
1 Gbit/s (2 µs). Software needs an interrupt and a processor for each packet."""

CONSTANT = 5e-6
"""Seconds that the delay of a hardware pipeline varies at most (quartiles); software shares a processor."""


@dataclass(frozen=True)
class Forwarding:
    """Where a switch forwards, and why that is said."""

    verdict: str
    """hardware, software or undecided."""
    delay: Interval | None
    """Delay of one pass in seconds: half of what the switch adds to the round trip."""
    spread: Interval | None
    """What the switch adds to the interquartile range of the round trip, in seconds."""
    reason: str


def forwarding(
    medians: Floats, ranges: Floats, cable_medians: Floats, cable_ranges: Floats, confidence: float
) -> Forwarding:
    """Judge a switch by medians and interquartile ranges of round trips, one per repetition.

    The cable_ ones are those of the same hosts without the switch: what the
    hosts themselves do is in both. A verdict needs both signs to agree, each
    with its whole interval on one side of its bound.
    """
    if min(map(len, (medians, ranges, cable_medians, cable_ranges))) < 2:
        return Forwarding(
            "undecided", None, None, "the path without the switch was not measured often enough"
        )
    delay = _half(rank_sum(medians, cable_medians, confidence).shift)
    spread = rank_sum(ranges, cable_ranges, confidence).shift
    signs = [_side(delay, QUICK), _side(spread, CONSTANT)]
    if signs == ["software", "software"]:
        return Forwarding(
            "software", delay, spread, "it adds more delay, and more variation, than a pipeline can"
        )
    if signs == ["hardware", "hardware"]:
        return Forwarding("hardware", delay, spread, "what it adds is as short and as constant as a pipeline")
    if "undecided" in signs:
        return Forwarding("undecided", delay, spread, "an interval reaches over its bound: repeat more often")
    return Forwarding("undecided", delay, spread, "delay and variation say different things")


def quartile_range(values: Floats) -> float:
    """Return the interquartile range of what was not lost; NaN if all was."""
    found = values[np.isfinite(values)]
    return float(np.subtract(*np.quantile(found, [0.75, 0.25]))) if found.size else float("nan")


def _half(i: Interval) -> Interval:
    return Interval(i.estimate / 2, i.lower / 2, i.upper / 2, i.confidence)


def _side(i: Interval, bound: float) -> str:
    if i.lower > bound:
        return "software"
    return "hardware" if i.upper < bound else "undecided"
