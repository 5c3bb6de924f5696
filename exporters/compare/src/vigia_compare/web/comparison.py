"""What the page of the comparison shows of an evaluation: banners, the heat table, charts, evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from markupsafe import Markup

from vigia_compare.evaluation import Evaluation, PathSeries, PathSummary
from vigia_compare.findings import NO_COMMON_HOSTS, Finding
from vigia_compare.measures import MEASURES, Measure
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_compare.report import pair_row
from vigia_compare.standings import Standing
from vigia_compare.web import charts
from vigia_text import numbers

__all__ = ["MOST_COLUMNS", "Banner", "Column", "Comparison", "Wanted", "comparison"]

MOST_COLUMNS = 16
"""Measures of the heat table."""

NAMES: Mapping[str, str] = {
    "rtt": "RTT",
    "rtt_p99": "RTT p99",
    "jitter": "Jitter",
    "loss": "Loss",
    "tcp_throughput": "TCP",
    "udp_throughput": "UDP",
    "tcp_rtt": "RTT under TCP load",
    "udp_jitter": "Jitter under UDP load",
}

_BOUNDS = (1.05, 1.3, 2.0, 5.0)
"""Times the best median up to which a value is as good, a little worse, worse, much worse."""

_SHARES = (0.001, 0.01, 0.05, 0.2)
"""The same of losses, as differences."""

_ARTICLE = {"lower": "smallest", "higher": "largest"}


@dataclass(frozen=True)
class Wanted:
    """What the page is asked to show; empty: what suits best."""

    placement: str = ""
    probe: str = ""
    machines: str = ""
    """Of bulk tests: how many machines transfer at the same time."""
    show: str = ""
    """The key of the column whose charts and evidence are shown."""


@dataclass(frozen=True)
class Column:
    """One measure of the heat table."""

    cell: Cell

    @property
    def key(self) -> str:
        """What it is called in addresses."""
        return f"{self.cell.metric}/{self.cell.machines}/{self.cell.probe}"

    @property
    def measure(self) -> Measure:
        """The metric."""
        return MEASURES[self.cell.metric]

    @property
    def name(self) -> str:
        """The metric, in words."""
        name = NAMES[self.cell.metric]
        _, _, rate = self.cell.probe.partition(" ")
        return f"{name} {rate}" if rate else name

    @property
    def more(self) -> str:
        """What else tells it from other columns."""
        return f"{self.cell.machines} machines" if self.cell.machines else self.cell.probe

    @property
    def better(self) -> str:
        """Which way is better."""
        return f"{self.measure.better} is better"


@dataclass(frozen=True)
class Banner:
    """The answer to one measure."""

    column: Column
    state: str
    """won, equal, open or alone."""
    answer: str
    by: str = ""
    """How far the winner is ahead, with the interval, and of whom."""
    since: float = 0.0
    progress: float = 1.0
    note: str = ""


@dataclass(frozen=True)
class Value:
    """One cell of the heat table."""

    text: str
    times: str = ""
    heat: str = ""
    """Class: h0 to h4."""
    mark: str = ""
    """wins, equal, or nothing."""


@dataclass(frozen=True)
class Row:
    """A path in the heat table."""

    path: str
    values: Sequence[Value]


@dataclass(frozen=True)
class Pair:
    """A line of the evidence."""

    kind: str
    cells: Sequence[str]


@dataclass
class Comparison:
    """All of the page."""

    wanted: Wanted
    placements: Sequence[str]
    probes: Sequence[str]
    machines: Sequence[str]
    columns: Sequence[Column] = ()
    more_columns: int = 0
    banners: Sequence[Banner] = ()
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """By group: competing, others, reference."""
    shown: Column | None = None
    times: Markup | None = None
    shares: Markup | None = None
    more_lines: int = 0
    pairs: Sequence[Pair] = ()
    words: Sequence[str] = ()
    asked_in_vain: str = ""
    """What was asked for and is not measured."""


def comparison(found: Evaluation, wanted: Wanted) -> Comparison:
    """Return what is shown."""
    cells = sorted({p.cell for p in found.paths} | {f.cell for f in found.findings})
    placements = sorted({c.placement for c in cells}, key=lambda p: (p != "remote", p))
    placement = wanted.placement if wanted.placement in placements else next(iter(placements), "")
    here = [c for c in cells if c.placement == placement]
    counts: dict[str, int] = {}
    for p in found.paths:
        if p.cell.placement == placement and not MEASURES[p.cell.metric].runs:
            counts[p.cell.probe] = counts.get(p.cell.probe, 0) + 1
    rivals: dict[str, int] = {}
    for s in found.standings:
        if s.cell.placement == placement:
            rivals[s.cell.probe] = rivals.get(s.cell.probe, 0) + len(s.paths)
    # Shown first is what most compete on: a probe of many paths may have no contest at all.
    probes = sorted(
        counts, key=lambda p: (-rivals.get(p, 0), not p.startswith("stamp"), -counts[p], len(p), p)
    )
    probe = wanted.probe if wanted.probe in probes else next(iter(probes), "")
    several = sorted({c.machines for c in here if c.machines}, key=lambda m: (len(m), m))
    machines = wanted.machines if wanted.machines in several else next(iter(several), "")
    columns = _columns(here, probe, machines)
    shown = next((c for c in columns if c.key == wanted.show), next(iter(columns), None))
    missing = [
        f"{what} {asked}"
        for what, asked, there in (
            ("placement", wanted.placement, placements),
            ("probe", wanted.probe, probes),
            ("number of machines", wanted.machines, several),
            ("measure", wanted.show, [c.key for c in columns]),
        )
        if asked and asked not in there
    ]
    page = Comparison(
        Wanted(placement, probe, machines, shown.key if shown else ""),
        placements,
        sorted(probes),
        several,
        columns[:MOST_COLUMNS],
        max(0, len(columns) - MOST_COLUMNS),
        asked_in_vain=", ".join(missing),
    )
    by_cell = {s.cell: s for s in found.standings}
    pairs = _by_cell(found.findings)
    page.banners = [_banner(c, by_cell.get(c.cell)) for c in page.columns]
    references = {f.b for f in found.findings if f.kind is Kind.REFERENCE}
    page.rows = _rows(page.columns, found.paths, by_cell, references)
    if shown is not None:
        page.shown = shown
        _charts(page, shown, found.series, references, by_cell.get(shown.cell))
        mine = pairs.get(shown.cell, ())
        page.pairs = [_pair(f, shown.measure.unit) for f in mine if f.verdict != NO_COMMON_HOSTS]
        page.words = list(dict.fromkeys(f.words for f in mine if f.words))
    return page


def _columns(cells: Sequence[Cell], probe: str, machines: str) -> list[Column]:
    order = list(NAMES)
    wanted = [c for c in cells if (c.machines == machines if MEASURES[c.metric].runs else c.probe == probe)]
    return [
        Column(c)
        for c in sorted(wanted, key=lambda c: (order.index(c.metric), c.machines, _natural(c.probe)))
    ]


def _natural(text: str) -> tuple[float, str]:
    """Return what puts 100Mbit before 1Gbit; a text without a rate goes first."""
    digits = "".join(c for c in text.partition(" ")[2] if c.isdigit())
    return float(digits[:12] or 0.0) * (1000.0 if "Gbit" in text else 1.0), text


def _by_cell(findings: Sequence[Finding]) -> dict[Cell, list[Finding]]:
    out: dict[Cell, list[Finding]] = {}
    for f in findings:
        out.setdefault(f.cell, []).append(f)
    return out


def _banner(column: Column, standing: Standing | None) -> Banner:
    if standing is None:
        return Banner(column, "alone", "nothing competes")
    state = "won" if standing.winner else "equal" if standing.level else "open"
    answer = standing.winner or standing.said
    return Banner(column, state, answer, standing.by, standing.since, standing.progress, standing.note)


def _rows(
    columns: Sequence[Column],
    paths: Sequence[PathSummary],
    standings: Mapping[Cell, Standing],
    references: set[str],
) -> dict[str, list[Row]]:
    medians = {(p.cell, p.path): p.median.estimate for p in paths}
    names = {p.path for p in paths if any(p.cell == c.cell for c in columns)}
    ranks: dict[str, float] = {}
    for c in columns:
        s = standings.get(c.cell)
        for path, rank in zip(s.paths, s.ranks, strict=True) if s else ():
            ranks[path] = ranks.get(path, 0.0) + rank / len(s.paths) if s else 0.0
    competing = sorted(set(ranks) & names, key=lambda n: (ranks[n], n))
    groups = {
        "competing": competing,
        "others": sorted(names - set(competing) - references),
        "reference": sorted((references & names) - set(competing)),
    }
    best = {c: _best([medians.get((c.cell, n), math.nan) for n in competing], c.measure) for c in columns}
    return {
        group: [
            Row(
                n,
                [
                    _value(c, n, medians.get((c.cell, n), math.nan), best[c], standings.get(c.cell))
                    for c in columns
                ],
            )
            for n in members
        ]
        for group, members in groups.items()
        if members
    }


def _best(values: Sequence[float], measure: Measure) -> float:
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return math.nan
    return min(known) if measure.better == "lower" else max(known)


def _value(column: Column, path: str, value: float, best: float, standing: Standing | None) -> Value:
    if not math.isfinite(value):
        return Value(numbers.MISSING)
    mark = ""
    if standing is not None:
        mark = "wins" if path == standing.winner else "equal" if path in standing.level else ""
    text = numbers.quantity(value, column.measure.unit)
    if not math.isfinite(best):
        return Value(text, mark=mark)
    if column.measure.rare:
        heat = sum(value - best > bound for bound in _SHARES)
        return Value(text, "", f"h{heat}", mark)
    low, high = (best, value) if column.measure.better == "lower" else (value, best)
    times = high / low if low > 0.0 else math.inf
    heat = sum(times > bound for bound in _BOUNDS)
    return Value(text, f"×{numbers.times(times)}" if 0.995 <= times < 10_000.0 else "", f"h{heat}", mark)


def _charts(
    page: Comparison,
    column: Column,
    series: Sequence[PathSeries],
    references: set[str],
    standing: Standing | None,
) -> None:
    mine = [s for s in series if s.cell == column.cell]
    if not mine:
        return
    order = list(standing.paths) if standing else []
    mine.sort(key=lambda s: (s.path in references, order.index(s.path) if s.path in order else 99, s.path))
    kept = [s for s in mine if s.path not in references][: charts.MOST_LINES]
    kept += [s for s in mine if s.path in references][:1]
    page.more_lines = len(mine) - len(kept)
    lines = [charts.Line(s.path, s.values, s.path in references) for s in kept]
    unit, grid = column.measure.unit, kept[0].grid
    first = min(int(np.flatnonzero(np.isfinite(s.values))[0]) for s in kept)
    first = min(first, grid.count - 2)  # a path of one window alone is a dot, and not at the margin
    lines = [replace(x, values=x.values[max(0, first) :]) for x in lines]
    medians = "; ".join(
        f"{s.path}: median {numbers.quantity(float(np.nanmedian(s.values)), unit)}" for s in kept
    )
    what = f"{column.name} ({column.more}), {page.wanted.placement}"
    told = f"{medians}. The table of paths and measures has the same numbers."
    page.times = charts.over_time(
        lines, grid.start + max(0, first) * grid.window, grid.end, unit, f"{what}, by time", told
    )
    page.shares = charts.distribution(lines, unit, f"{what}, share of windows at or below a value", told)


_KINDS = {Kind.CONTEST: "competing", Kind.REFERENCE: "above the underlay", Kind.ELEMENT: "cost of an element"}


def _pair(f: Finding, unit: str) -> Pair:
    return Pair(_KINDS[f.kind], [str(c) for c in pair_row(f, unit)])
