"""The mesh as a table: who probes whom, and what the worst path between two nodes is like."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from markupsafe import Markup

from vigia_compare.site import BAD_LOSS, SOME_LOSS, Mesh
from vigia_text import numbers

__all__ = ["MOST_WRITTEN", "Field", "Matrix", "Worst", "matrix"]

MOST_WRITTEN = 16
"""Nodes up to which numbers are written into the fields; beyond that a sign."""

MOST_WORST = 20

_DELAYS = (1e-3, 5e-3, 20e-3)
"""Seconds of p99 up to which a pair is quick, usual, slow."""


@dataclass(frozen=True)
class Field:
    """One pair of nodes."""

    heat: str
    """Class: h0 to h4, or none."""
    text: str

    @cached_property
    def cell(self) -> Markup:
        """The field as a cell of the table: 100 nodes have 10 000, too many for a template."""
        kind = Markup(' class="{}"').format(self.heat) if self.heat else ""
        return Markup("<td{}>{}</td>").format(kind, self.text)


@dataclass(frozen=True)
class Worst:
    """A pair, for the list."""

    src: str
    dst: str
    loss: float
    p99: float


@dataclass(frozen=True)
class Matrix:
    """All of the table."""

    nodes: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Field]]]
    worst: Sequence[Worst]
    written: bool
    pairs: int
    lossy: int


def matrix(mesh: Mesh) -> Matrix:
    """Return the table of a mesh."""
    written = len(mesh.nodes) <= MOST_WRITTEN
    nowhere = (math.nan, math.nan)
    rows = [
        (src, [_field(*mesh.pairs.get((src, dst), nowhere), written) for dst in mesh.nodes])
        for src in mesh.nodes
    ]
    listed = [Worst(*ends, *values) for ends, values in mesh.pairs.items()]
    listed.sort(key=lambda w: (-_known(w.loss), -_known(w.p99), w.src, w.dst))
    lossy = sum(_known(w.loss) >= SOME_LOSS for w in listed)
    return Matrix(mesh.nodes, rows, listed[:MOST_WORST], written, len(listed), lossy)


def _known(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _field(loss: float, p99: float, written: bool) -> Field:
    if not (math.isfinite(loss) or math.isfinite(p99)):
        return _sign("", "")
    if _known(loss) >= SOME_LOSS:
        heat = "h4" if loss >= BAD_LOSS else "h3"
        return (
            Field(heat, f"{numbers.percent(loss)} lost")
            if written
            else _sign(heat, "!" if heat == "h4" else "-")
        )
    heat = f"h{bisect_left(_DELAYS, _known(p99))}"
    return Field(heat, numbers.quantity(p99, "seconds")) if written else _sign(heat, "·")


@cache
def _sign(heat: str, text: str) -> Field:
    """Return a field of a large table, one and the same for all that look alike."""
    return Field(heat, text)
