"""Figures as text: tables, the fitted lines, budgets."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sitecost.measure import ON_TIME, Cell, PanelTime
from sitecost.node import Price

CORES_PER_NODE = 0.002
BYTES_PER_NODE = 2 << 20
CORES_OF_1000 = 8.0
AGENTS_CORES = 0.015
AGENTS_BYTES = 90 << 20
SHARE_OF_INTERVAL = 0.1
PANEL_SECONDS = 1.0
GROWTH = 1.1
"""A month of data may cost so much more than an hour, for measurements waver."""
MIB = float(1 << 20)


@dataclass(frozen=True)
class Line:
    """cost = intercept + slope x nodes, by least squares of the relative errors."""

    intercept: float
    slope: float
    residuals: Sequence[tuple[int, float]]
    """For each number of nodes, how far the line is off, in percent of what was measured."""

    def at(self, nodes: int) -> float:
        """Return the line's value."""
        return self.intercept + self.slope * nodes


@dataclass(frozen=True)
class Budget:
    """One thing that must be so."""

    what: str
    measured: str
    budget: str
    met: bool

    def text(self) -> str:
        """Return a line of the report."""
        return f"{'met' if self.met else 'MISSED':<7} {self.what}: {self.measured} (budget {self.budget})"


def fit(points: Sequence[tuple[int, float]]) -> Line:
    """Fit a line through the costs of sites by their nodes: each point counts by its own size, not the largest alone."""
    if len({n for n, _ in points}) < 2:
        nodes, cost = points[0]
        return Line(0.0, cost / nodes, [(nodes, 0.0)])
    weights = [1.0 / max(y, 1e-12) ** 2 for _, y in points]
    total = sum(weights)
    x = sum(w * n for w, (n, _) in zip(weights, points, strict=True)) / total
    y = sum(w * c for w, (_, c) in zip(weights, points, strict=True)) / total
    covariance = sum(w * (n - x) * (c - y) for w, (n, c) in zip(weights, points, strict=True))
    slope = covariance / sum(w * (n - x) ** 2 for w, (n, _) in zip(weights, points, strict=True))
    line = Line(y - slope * x, slope, [])
    return Line(line.intercept, slope, [(n, 100.0 * (line.at(n) - c) / c) for n, c in points])


def cell(c: Cell) -> str:
    """Return what was measured of one site."""
    per = c.nodes
    out = [
        f"## {c.nodes} nodes, data of {c.age} ({c.seconds:.0f} s, load {c.load:.1f}; {c.program})",
        f"  {c.samples:.0f} samples/s, {c.samples / per:.1f} a node; {c.scrapes:.1f} scrapes/s of {c.due:.1f}; up {c.up:.1%}",
        f"  {c.series:.0f} series, {c.series / per:.0f} a node; a scrape: "
        + ", ".join(f"{job} {n:.0f}" for job, n in sorted(c.jobs.items())),
        f"  Prometheus {c.cores:.3f} cores, {c.cores / per:.2%} of a core a node (the pages' server {c.pages_cores:.3f})",
        f"  memory {c.anonymous / MIB:.0f} MiB anonymous and {c.file_backed / MIB:.0f} MiB of files, heap"
        f" {c.heap / MIB:.0f} MiB; {c.anonymous / MIB / per:.2f} MiB a node",
        "  group                      interval   median    worst   share  missed",
    ]
    out += [
        f"  {name:<26} {g.interval:7.0f}s {g.median:8.4f} {g.worst:8.4f} {g.share:7.2%} {g.missed:7d}"
        for name, g in sorted(c.groups.items(), key=lambda item: -item[1].share)
    ]
    rules = [
        (seconds, g.interval, f"{name} {rule}")
        for name, g in c.groups.items()
        for rule, seconds in g.rules.items()
    ]
    rules.sort(key=lambda r: -r[0] / r[1])
    out += ["  costliest rules, of a core: " + "; ".join(f"{what} {s / i:.2%}" for s, i, what in rules[:8])]
    out += [
        "  most series: "
        + ", ".join(f"{name} {n / per:.1f}" for name, n in list(c.families.items())[:12])
        + " a node"
    ]
    slow = sorted(c.panels, key=lambda p: -p.one)[:5]
    out += [f"  panel {_panel(p)}" for p in slow]
    out += [f"  comparison: {k} {v:.4g}" for k, v in c.comparison.items()]
    return "\n".join(out)


def _panel(p: PanelTime) -> str:
    at_all = "" if p.every is None else f", at All {p.every:.3f} s"
    failed = f" FAILED {p.failed}" if p.failed else ""
    return f"{p.dashboard}: {p.title}: {p.one:.3f} s{at_all}{failed}"


def _sizes(cells: Sequence[Cell]) -> list[Cell]:
    """Return for each number of nodes the cell with the youngest data: the sizes are compared alike.

    A site for which the machine was too small is left out, unless there is no other: what it would have cost is not known.
    """
    best: dict[int, Cell] = {}
    for c in [c for c in cells if not c.starved] or cells:
        best.setdefault(c.nodes, c)
    return list(best.values())


def lines(cells: Sequence[Cell]) -> tuple[Line, Line, Line]:
    """Return the lines of cores, of bytes of memory and of series."""
    sizes = _sizes(cells)
    return (
        fit([(c.nodes, c.cores) for c in sizes]),
        fit([(c.nodes, float(c.anonymous)) for c in sizes]),
        fit([(c.nodes, c.series) for c in sizes]),
    )


def summary(cells: Sequence[Cell]) -> str:
    """Return the fitted lines."""
    cores, memory, series = lines(cells)

    def shown(line: Line) -> str:
        return ", ".join(f"{n} nodes {r:+.0f} %" for n, r in line.residuals)

    return "\n".join(
        [
            "## Fitted by least squares of relative errors",
            f"  cores  = {cores.intercept:.3f} + {cores.slope:.5f} x nodes ({shown(cores)})",
            f"  MiB    = {memory.intercept / MIB:.0f} + {memory.slope / MIB:.2f} x nodes ({shown(memory)})",
            f"  series = {series.intercept:.0f} + {series.slope:.0f} x nodes ({shown(series)})",
        ]
    )


def markdown(cells: Sequence[Cell]) -> str:
    """Return the table of docs/concepts/cost.md."""
    out = [
        "| nodes | data of | samples/s a node | series a node | of a core a node | MiB a node | of files | slowest group | of its interval | slowest panel, s | comparison, query-s/s |",
        "|--:|---|--:|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    for c in cells:
        name, group = max(c.groups.items(), key=lambda item: item[1].share)
        panel = max((p.one for p in c.panels), default=0.0)
        asked = f"{c.comparison['query_seconds']:.3f}" if "query_seconds" in c.comparison else ""
        out.append(
            f"| {c.nodes} | {c.age} | {c.samples / c.nodes:.0f} | {c.series / c.nodes:.0f} | {c.cores / c.nodes:.2%} "
            f"| {c.anonymous / MIB / c.nodes:.1f} | {c.file_backed / MIB / c.nodes:.1f} | `{name}` | {group.share:.2%} "
            f"| {panel:.2f} | {asked} |"
        )
    return "\n".join(out) + "\n"


def agents(prices: Mapping[str, Price]) -> str:
    """Return what the agents of one node take."""
    return "\n".join(
        ["## One node's agents, each target probed once a second, pages scraped each second and every 15"]
        + [
            f"  {agent:<10} {p.cores:7.2%} of a core {p.resident / MIB:6.1f} MiB"
            for agent, p in prices.items()
        ]
    )


def of_agents(prices: Mapping[str, Price]) -> list[Budget]:
    """Return what must be so of a node's own agents; node_exporter is not one."""
    own = [p for agent, p in prices.items() if agent != "node"]
    cores, resident = sum(p.cores for p in own), sum(p.resident for p in own)
    return [
        Budget("a node's agents", f"{cores:.2%} of a core", f"{AGENTS_CORES:.1%}", cores <= AGENTS_CORES),
        Budget(
            "memory of a node's agents",
            f"{resident / MIB:.0f} MiB",
            f"{AGENTS_BYTES / MIB:.0f} MiB",
            resident <= AGENTS_BYTES,
        ),
    ]


def budgets(cells: Sequence[Cell]) -> list[Budget]:
    """Return what must be so, and whether it is."""
    cores, memory, _ = lines(cells)
    out = [
        Budget(
            "Prometheus per node",
            f"{cores.slope:.2%} of a core",
            f"{CORES_PER_NODE:.1%}",
            cores.slope <= CORES_PER_NODE,
        ),
        Budget(
            "memory per node",
            f"{memory.slope / MIB:.2f} MiB",
            f"{BYTES_PER_NODE / MIB:.0f} MiB",
            memory.slope <= BYTES_PER_NODE,
        ),
        Budget(
            "1 000 nodes",
            f"{cores.at(1000):.2f} cores",
            f"{CORES_OF_1000:.0f} cores",
            cores.at(1000) <= CORES_OF_1000,
        ),
    ]
    made, at = min(((c.scrapes / c.due, c) for c in cells), key=lambda s: s[0])
    out.append(
        Budget(
            "scrapes that are made",
            f"{made:.1%} at {at.nodes} nodes and {at.age}",
            f"{ON_TIME:.0%}; with less the machine is too small for that site",
            made >= ON_TIME,
        )
    )
    shares = [(g.share, c, name) for c in cells for name, g in c.groups.items()]
    share, at, name = max(shares, key=lambda s: s[0])
    out.append(
        Budget(
            "slowest group",
            f"{name} at {at.nodes} nodes and {at.age}: {share:.2%} of its interval",
            f"{SHARE_OF_INTERVAL:.0%}",
            share <= SHARE_OF_INTERVAL,
        )
    )
    missed = sum(g.missed for c in cells for g in c.groups.values())
    out.append(Budget("missed evaluations", str(missed), "0", missed == 0))
    if asked := [(p.one, c, p) for c in cells for p in c.panels]:
        took, at, panel = max(asked, key=lambda s: s[0])
        out.append(
            Budget(
                "slowest panel",
                f"{panel.dashboard}, {panel.title}, at {at.nodes} nodes and {at.age}: {took:.2f} s",
                f"{PANEL_SECONDS:.0f} s",
                took <= PANEL_SECONDS,
            )
        )
    out += _growth(cells)
    return out


def _growth(cells: Sequence[Cell]) -> list[Budget]:
    """Compare sites of one size by the age of their data."""
    out = []
    for nodes in sorted({c.nodes for c in cells}):
        same = {c.age: c for c in cells if c.nodes == nodes}
        young = same.get("1h")
        for age in ("24h", "30d"):
            if young is None or age not in same:
                continue
            old = same[age]
            for what, a, b in (
                ("cores", young.cores, old.cores),
                ("rules", _rules(young), _rules(old)),
                ("panels", _panels(young), _panels(old)),
            ):
                ratio = b / a if a else 1.0
                out.append(
                    Budget(
                        f"{what}, {age} against 1h, {nodes} nodes",
                        f"{ratio:.2f} times",
                        f"{GROWTH:.1f} times",
                        ratio <= GROWTH,
                    )
                )
    return out


def _rules(c: Cell) -> float:
    return sum(g.share for g in c.groups.values())


def _panels(c: Cell) -> float:
    return statistics.median(p.one for p in c.panels) if c.panels else 0.0
