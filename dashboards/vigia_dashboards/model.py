"""What a dashboard is made of, before it becomes Grafana's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

__all__ = ["Dashboard", "Kind", "Panel", "Query", "Row", "Unit", "Variable", "bits", "or_none", "per_minute"]

Kind = Literal["timeseries", "stat", "table", "matrix", "smoke", "state"]

Unit = Literal[
    "s",
    "percentunit",
    "bps",
    "Bps",
    "pps",
    "short",
    "none",
    "bytes",
    "B",
    "dateTimeFromNow",
    "ops",
    "cps",
    "cpm",
]
"""Grafana's names of units; cpm: events per minute, for what is rare; B: bytes of a packet, in full."""


@dataclass(frozen=True)
class Query:
    """A PromQL expression and the name of its series."""

    expression: str
    legend: str = ""
    unit: Unit | None = None
    """Of a table's column, if it is not the panel's."""
    decimals: int | None = None
    words: Sequence[tuple[str, str, str]] = ()
    """As the panel's, for this column alone."""
    bounds: Sequence[tuple[float, str]] = ()
    """As the panel's, for this column alone."""
    hidden: bool = False
    """Whether it is there for addresses of links alone."""


@dataclass(frozen=True)
class Panel:
    """One panel; the title says what, the description how to read it."""

    kind: Kind
    title: str
    description: str
    queries: Sequence[Query]
    unit: Unit
    width: int = 12
    height: int = 8
    quiet: str = ""
    """If what the panel has no data though all is well; empty if it always has data then."""
    columns: Sequence[str] = ()
    """Table: labels shown, in order; the values follow, and then those of after."""
    after: Sequence[str] = ("probe", "placement", "machines", "note")
    """Table: labels that qualify a row: a narrow screen shows what decides first."""
    words: Sequence[tuple[str, str, str]] = ()
    """Value, word and colour: what is coloured is named as well."""
    decimals: int | None = None
    bounds: Sequence[tuple[float, str]] = ()
    """From which value on a cell has which colour; the number stays in it."""
    drill: str = ""
    """Address that a click on a cell opens, one page down; of a table, on a cell of its first column."""
    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Table: what is shown for the values of a column's label."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Table: headings of columns that are not their labels."""
    clicks: Mapping[str, str] = field(default_factory=dict)
    """Table: addresses that a click on a cell of a column opens."""
    wide: Mapping[str, int] = field(default_factory=dict)
    """Table: widths of columns in pixels, where the usual one is too small."""
    filters: bool = True
    """Table: whether headings have a filter beside them, which takes the width of three characters."""
    order: str = ""
    """Table: heading of the column that rows are sorted by, the largest first."""
    ascending: bool = False
    """Whether the smallest is first instead."""
    missing: str = ""
    """Table: what a cell without a value says, where that is normal."""
    signed: bool = False
    """Whether values may be below zero: delays then have a linear axis, others a logarithmic one."""
    cells: bool = False
    """Whether a table's bounds colour the whole cell: a heat table."""

    worst: bool = False
    """Stat: whether it shows the largest value of the time range, not the latest."""

    @property
    def instant(self) -> bool:
        """Whether it shows the latest values alone, so that Grafana asks for one instant."""
        return self.kind in ("table", "matrix")

    @property
    def asked(self) -> Sequence[Query]:
        """The queries as they are asked.

        Those of a table are aggregated to the labels that it shows: rows of several
        queries are one row only where all their labels are equal, and the names of
        metrics, jobs and instances are not.
        """
        if self.kind != "table":
            return self.queries
        by = ", ".join(self.columns)
        return [replace(q, expression=f"max by ({by}) ({q.expression})") for q in self.queries]


@dataclass(frozen=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of the dashboard: the values of a label."""

    name: str
    label: str
    query: str
    single: bool = False
    """Whether one value is chosen, the first: of all of them a page on one thing reads too much."""


@dataclass(frozen=True)
class Dashboard:
    """A page."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]
    links: Sequence[tuple[str, str]] = ()
    """Uid and words of the pages one level down."""


def bits(expression: str) -> str:
    """Return bytes per second as bits per second: the one place that multiplies by eight."""
    return f"8 * ({expression})"


def per_minute(expression: str) -> str:
    """Return events per second as events per minute: what happens now and then is no milli-event a second."""
    return f"60 * ({expression})"


def or_none(expression: str, there: str) -> str:
    """Return zero where an expression finds nothing though what would export it is there.

    A counter of what has not happened yet has no series. Without what is there
    it is still no data: zero would be a claim.
    """
    return f"({expression}) or 0 * {there}"
