"""What a dashboard is made of, before it becomes Grafana's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Dashboard", "Kind", "Panel", "Query", "Row", "Variable", "bits"]

Kind = Literal["timeseries", "stat", "table", "matrix", "smoke", "state"]

Unit = Literal[
    "s", "percentunit", "bps", "Bps", "pps", "short", "none", "bytes", "dateTimeFromNow", "ops", "cps"
]


@dataclass(frozen=True)
class Query:
    """A PromQL expression and the name of its series."""

    expression: str
    legend: str = ""


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
    """Table: labels shown, in order; the value follows."""
    words: Sequence[tuple[str, str, str]] = ()
    """Value, word and colour: what is coloured is named as well."""
    decimals: int | None = None
    bounds: Sequence[tuple[float, str]] = ()
    """From which value on a cell has which colour; the number stays in it."""
    drill: str = ""
    """Address that a click on a cell opens, one page down."""

    @property
    def instant(self) -> bool:
        """Whether it shows the latest values alone, so that Grafana asks for one instant."""
        return self.kind in ("stat", "table", "matrix")


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
