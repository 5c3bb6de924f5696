"""A site on a terminal: one line of what is wrong, tenants, paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
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


def _table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _tenants(tenants: Sequence[Tenant]) -> Table:
    table = _table(
        ("TENANT", False), ("STATE", False), ("BOUGHT", True), ("SENDS", True), ("RECEIVES", True),
        ("LOST", True), ("RTT p99", True), ("DROPPED", True),
    )  # fmt: skip
    for t in tenants:
        dropped = sum(v for v in t.drops.values() if v is not None)
        table.add_row(
            _text(t.tenant),
            _state(", ".join(t.state) or "well", t.loss, bool(t.state)),
            _rate(t.bought),
            _rate(t.sent),
            _rate(t.received),
            numbers.percent(_number(t.loss)),
            numbers.seconds(_number(t.p99)),
            numbers.count(dropped) if dropped or not t.drops else "first",
        )
    return table


def _paths(paths: Sequence[Path]) -> Table:
    table = _table(
        ("PATH", False), ("FROM", False), ("TO", False), ("TENANT", False), ("PROBE", False),
        ("STATE", False), ("LOST", True), ("RTT p99", True), ("OF USUAL", True),
    )  # fmt: skip
    for p in paths:
        usual = f"{numbers.times(p.times_usual)}x" if p.times_usual is not None else numbers.MISSING
        table.add_row(
            *map(_text, (p.path, p.src, p.dst, p.tenant, p.probe)),
            _state(p.state, p.loss, True),
            numbers.percent(_number(p.loss)),
            numbers.seconds(_number(p.p99)),
            usual,
        )
    return table


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
