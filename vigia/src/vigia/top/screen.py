"""A site on a terminal: one line of what is wrong, tenants, paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from vigia.top.site import Path, SiteMoment, Tenant
from vigia_text import numbers, terminal

__all__ = ["draw"]

_HEAD = 6
"""Lines beside the rows of both tables."""


def draw(site: SiteMoment, lines: int | None = None) -> RenderableType:
    """Return what a site is like; of tenants and paths as many as fit into so many lines, all without."""
    room = max(2, lines - _HEAD) if lines is not None else None
    tenants = site.tenants if room is None else site.tenants[: max(1, room // 2)]
    bad = [p for p in site.paths if p.state]
    paths = bad if room is None else bad[: max(1, room - len(tenants))]
    parts: list[RenderableType] = [_wrong(site), _tenants(tenants)]
    hidden = len(site.tenants) - len(tenants) + site.more_tenants
    if hidden:
        parts.append(Text(f"and {hidden} more tenants", style="dim"))
    parts.append(_paths(paths) if bad else Text("no path is worse than usual", style="green"))
    if len(bad) > len(paths):
        parts.append(Text(f"and {len(bad) - len(paths)} more paths", style="dim"))
    return Group(*parts)


def _wrong(site: SiteMoment) -> Text:
    at = datetime.fromtimestamp(site.at, UTC).strftime("%H:%M:%S UTC")
    line = Text(f"{at}  ")
    said = [
        (len(site.floods), "flood", "bold red"),
        (len(site.limits), "limit in force", "yellow"),
        (len(site.alerts), "alert", "yellow"),
        (site.waiting, "action waiting for approval", "bold yellow"),
        (site.silent, "silent target", "yellow"),
        (site.down, "failed scrape", "yellow"),
    ]
    shown = [(n, what, style) for n, what, style in said if n]
    for n, what, style in shown:
        words = what if n == 1 else what.replace("limit ", "limits ").replace("action ", "actions ")
        line.append(f"{n} {words}{'s' if n > 1 and words == what else ''}  ", style=style)
    if site.kill_switch:
        line.append("the kill switch is on", style="bold red")
    if not shown and not site.kill_switch:
        line.append("no flood, no limit, no alert", style="green")
    return line


_LEAST = 6
"""Columns of a terminal that a name keeps."""


@dataclass(frozen=True)
class _Column:
    name: str
    number: bool = False
    spare: int = 0
    """Where there is no room for all, the column with the highest is left out first; 0: it never is."""


_TENANT = (
    _Column("TENANT"),
    _Column("STATE"),
    _Column("BOUGHT", True, 1),
    _Column("SENDS", True),
    _Column("RECEIVES", True, 2),
    _Column("LOST", True),
    _Column("RTT p99", True),
    _Column("DROPPED", True, 3),
)
_PATH = (
    _Column("PATH"),
    _Column("FROM"),
    _Column("TO"),
    _Column("TENANT", spare=1),
    _Column("PROBE", spare=2),
    _Column("STATE"),
    _Column("LOST", True),
    _Column("RTT p99", True),
    _Column("OF USUAL", True, 3),
)


@dataclass(frozen=True)
class _Fitting:
    """A table in the room that there is: columns move together, some go, names are cut, but no number."""

    columns: Sequence[_Column]
    rows: Sequence[Sequence[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        kept, gap, widths = list(range(len(self.columns))), 2, self._widths()
        if _taken(kept, widths, gap) > room:
            gap = 1
        for i in sorted(kept, key=lambda i: -self.columns[i].spare):
            if _taken(kept, widths, gap) > room and self.columns[i].spare:
                kept.remove(i)
        names = [i for i in kept if not self.columns[i].number]
        while _taken(kept, widths, gap) > room and any(widths[i] > _LEAST for i in names):
            widths[max(names, key=lambda i: widths[i])] -= 1
        yield self._table(kept, gap, widths)

    def _widths(self) -> list[int]:
        cells = [[len(c.name) for c in self.columns], *([t.cell_len for t in row] for row in self.rows)]
        return [max(column) for column in zip(*cells, strict=True)]

    def _table(self, kept: Sequence[int], gap: int, widths: Sequence[int]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        for i in kept:
            justify: Literal["left", "right"] = "right" if self.columns[i].number else "left"
            table.add_column(
                self.columns[i].name,
                justify=justify,
                no_wrap=True,
                overflow="ellipsis",
                min_width=widths[i],
                max_width=widths[i],
            )
        for row in self.rows:
            table.add_row(*(row[i] for i in kept))
        return table


def _taken(kept: Sequence[int], widths: Sequence[int], gap: int) -> int:
    return sum(widths[i] for i in kept) + gap * (len(kept) - 1)


def _tenants(tenants: Sequence[Tenant]) -> _Fitting:
    rows = []
    for t in tenants:
        dropped = sum(v for v in t.drops.values() if v is not None)
        numeric = (
            _rate(t.bought),
            _rate(t.sent),
            _rate(t.received),
            numbers.percent(_number(t.loss)),
            numbers.seconds(_number(t.p99)),
            numbers.count(dropped) if dropped or not t.drops else "first",
        )
        state = _state(", ".join(t.state) or "well", t.loss, bool(t.state))
        rows.append([_text(t.tenant), state, *map(Text, numeric)])
    return _Fitting(_TENANT, rows)


def _paths(paths: Sequence[Path]) -> _Fitting:
    rows = []
    for p in paths:
        numeric = (
            numbers.percent(_number(p.loss)),
            numbers.seconds(_number(p.p99)),
            f"{numbers.times(p.times_usual)}x" if p.times_usual is not None else numbers.MISSING,
        )
        names = map(_text, (p.path, p.src, p.dst, p.tenant, p.probe))
        rows.append([*names, _state(p.state, p.loss, True), *map(Text, numeric)])
    return _Fitting(_PATH, rows)


def _state(words: str, loss: float | None, wrong: bool) -> Text:
    bad = (loss or 0.0) >= 0.01 or "floods" in words or "hurt" in words
    return Text(terminal.clean(words), style="bold red" if bad else "yellow" if wrong else "green")


def _text(value: str) -> Text:
    """Return a label's value, which is neither markup nor moves the cursor."""
    return Text(terminal.clean(value))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _rate(value: float | None) -> str:
    return numbers.quantity(_number(value), "bytes_per_second")
