"""Figures derived from pairs of paths: cost of an element (E3), speed-up of OpenFlow (E2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vigia_compare.findings import Finding
from vigia_compare.paths import Kind, Known, PathAttributes, elements
from vigia_compare.readings import Cell
from vigia_statistics.sequential import Scale

__all__ = ["Cost", "Speedup", "costs", "speedups"]


@dataclass(frozen=True)
class Cost:
    """What an element costs one way, in seconds; the bounds hold at all times."""

    element: str
    path: str
    without: str
    cell: Cell
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
    cell: Cell
    ratio: float
    lower: float
    upper: float


def costs(findings: Sequence[Finding], known: Known) -> list[Cost]:
    """Return the cost of every element that two paths on round trips differ in.

    Half the shift of the round trip between the path with the element and the
    one without it (the element is passed once each way, or once by each of two).
    """
    return [
        Cost(element, f.a, f.b, f.cell, f.shift[1] / 2.0, f.shift[0] / 2.0, f.shift[2] / 2.0)
        for f in findings
        if f.cell.metric == "rtt" and f.kind is not Kind.CONTEST and f.scale is Scale.DIFFERENCE and f.windows
        if (element := _element(f, known.by_path.get(f.a), known.by_path.get(f.b), f.a))
    ]


def _element(f: Finding, path: PathAttributes | None, without: PathAttributes | None, name: str) -> str:
    """Name what path has and the other lacks: the whole overlay, or one attribute."""
    if path is None or without is None:
        return ""
    if f.kind is Kind.REFERENCE:
        overlay = (
            path.layer == "overlay" and without.layer == "underlay" and path.security == without.security
        )
        return elements(path, without) or (f"overlay {name}" if overlay else "")
    return elements(path, without)


def speedups(findings: Sequence[Finding], known: Known) -> list[Speedup]:
    """Return the speed-up of every OpenFlow path against its path in normal mode."""
    out = []
    for f in findings:
        if f.cell.metric != "rtt" or f.kind is not Kind.ELEMENT or f.ratio is None or not f.windows:
            continue
        a, b = known.by_path.get(f.a), known.by_path.get(f.b)
        if a is None or b is None:
            continue
        lower, ratio, upper = f.ratio
        if elements(a, b) == "mode openflow" and ratio > 0.0:
            most = 1.0 / lower if lower > 0.0 else math.inf
            out.append(Speedup(f.a, f.b, f.cell, 1.0 / ratio, 1.0 / upper, most))
    return out
