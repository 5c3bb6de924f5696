"""Figures derived from comparisons: cost of an element (E3), speed-up of OpenFlow (E2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from vigia_compare.engine import Group, PathAttributes
from vigia_compare.units import independent
from vigia_statistics import Comparison, rank_sum

__all__ = ["Cost", "Speedup", "costs", "speedups"]

_NOTHING = {"encap": ("none",), "security": ("none",), "mode": ("normal",), "dataplane": ("none",)}
"""Values of attributes that say that the element is not there."""


@dataclass(frozen=True)
class Cost:
    """What an element costs one way, in seconds."""

    element: str
    path: str
    without: str
    placement: str
    probe: str
    estimate: float
    lower: float
    upper: float

    @property
    def rate(self) -> float | None:
        """Packets per second that the element processes; None unless its cost is surely above zero."""
        return 1.0 / self.estimate if self.lower > 0.0 else None


@dataclass(frozen=True)
class Speedup:
    """Round trip in normal mode over that in OpenFlow mode."""

    path: str
    baseline: str
    placement: str
    probe: str
    ratio: float
    lower: float
    upper: float


def costs(group: Group, known: Mapping[str, PathAttributes]) -> list[Cost]:
    """Return the cost of every element that two paths of a group on round trips differ in.

    Half the shift of the round trip between the path with the element and the
    one without it (the element is passed once each way, or once by each of two).
    """
    return [
        Cost(element, path, without, group.placement, group.probe, shift / 2.0, lower / 2.0, upper / 2.0)
        for path, without, shift, lower, upper in _both_ways(group.pairs)
        for element in _element(known.get(path), known.get(without), path)
    ]


def _both_ways(pairs: Iterable[Comparison]) -> Iterable[tuple[str, str, float, float, float]]:
    for c in pairs:
        yield c.a, c.b, c.shift, c.lower, c.upper
        yield c.b, c.a, -c.shift, -c.upper, -c.lower


def _element(path: PathAttributes | None, without: PathAttributes | None, name: str) -> list[str]:
    """Name what path has and the other lacks, if it is one thing: an attribute, or the whole overlay."""
    if path is None or without is None:
        return []
    differing = [
        f.name
        for f in fields(PathAttributes)
        if f.name not in ("layer", "placement") and getattr(path, f.name) != getattr(without, f.name)
    ]
    if len(differing) == 1 and getattr(without, differing[0]) in _NOTHING[differing[0]]:
        return [f"{differing[0]} {getattr(path, differing[0])}"]
    if path.layer == "overlay" and without.layer == "underlay" and path.security == without.security:
        return [f"overlay {name}"]
    return []


def speedups(group: Group, known: Mapping[str, PathAttributes], confidence: float) -> list[Speedup]:
    """Return the speed-up of every OpenFlow path against its path in normal mode."""
    out = []
    for openflow in group.paths:
        for normal in group.paths:
            if not _same_but_mode(known.get(openflow.path), known.get(normal.path)):
                continue
            x, y = independent(normal.values, openflow.values, rare=False)
            if min(x.size, y.size) < 2 or min(x.min(), y.min()) <= 0.0:
                continue
            shift = rank_sum(np.log(x), np.log(y), confidence).shift
            ratio, lower, upper = (float(np.exp(v)) for v in (shift.estimate, shift.lower, shift.upper))
            out.append(Speedup(openflow.path, normal.path, group.placement, group.probe, ratio, lower, upper))
    return out


def _same_but_mode(openflow: PathAttributes | None, normal: PathAttributes | None) -> bool:
    if openflow is None or normal is None or (openflow.mode, normal.mode) != ("openflow", "normal"):
        return False
    same: Sequence[str] = ("placement", "dataplane", "encap", "security", "layer")
    return all(getattr(openflow, n) == getattr(normal, n) for n in same)
