"""E1: the winners table, and throughput, delay, jitter and loss behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from vigia.campaign.model import Campaign, Factor
from vigia.report import compare, figures
from vigia.report.data import Data, Floats, Reduce, jitter, mean, median, missing, published
from vigia.report.document import Document, Figure, Section, Table
from vigia_statistics import Direction, minimum_detectable_loss
from vigia_text.numbers import percent

__all__ = ["build"]


@dataclass(frozen=True)
class _Metric:
    key: str
    """As in the published table."""
    name: str
    metric: str
    reduce: Reduce
    better: Direction
    unit: str
    protocol: str | None
    """Only under this traffic; None for any."""


_METRICS = (
    _Metric("lowest_latency", "latency (median RTT)", "rtt", median, Direction.LOWER, "s", "tcp"),
    _Metric("lowest_jitter", "jitter", "rtt", jitter, Direction.LOWER, "s", "tcp"),
    _Metric(
        "lowest_loss", "loss of timed packets", "rtt_application", missing, Direction.LOWER, "ratio", "tcp"
    ),
    _Metric("highest_tcp_throughput", "TCP throughput", "throughput", mean, Direction.HIGHER, "bit/s", "tcp"),
    _Metric("highest_udp_throughput", "UDP throughput", "throughput", mean, Direction.HIGHER, "bit/s", "udp"),
)
_PLACEMENTS = {"same-node": "same node", "cross-node": "across nodes"}


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    winners = _Winners(campaign, data)
    sections = [
        winners.section(),
        *(_traffic(campaign, data, p) for p in _PLACEMENTS if list(data.where(placement=p))),
        _delay(campaign, data),
        _tests(campaign, data),
    ]
    return Document(campaign.title, campaign.question, winners.answer(), sections)


class _Winners:
    """Who wins each metric, per placement and number of machines."""

    def __init__(self, campaign: Campaign, data: Data) -> None:
        self._machines = sorted(int(m) for m in data.levels("machines"))
        self._reference = {(r["metric"], r["placement"]): r for r in published("overlays", "winners")}
        self._shown: dict[tuple[str, str, int], str] = {}
        for m in _METRICS:
            for placement in _PLACEMENTS:
                for machines in self._machines:
                    values = _values(data, m, placement, machines)
                    shown = compare.judged(values, m.better, campaign.confidence).shown if values else "–"
                    self._shown[m.key, placement, machines] = shown

    def section(self) -> Section:
        header = ["metric", "placement"]
        header += [f"{n} machines" for n in self._machines]
        header += [f"published, {n}" for n in self._machines]
        rows = []
        for m in _METRICS:
            for placement, shown in _PLACEMENTS.items():
                ours = [self._shown[m.key, placement, n] for n in self._machines]
                reference = self._reference.get((m.key, placement), {})
                theirs = [reference.get(f"vms{n}") or "–" for n in self._machines]
                rows.append([m.name, shown, *ours, *theirs])
        table = Table(
            "Which technology wins",
            header,
            rows,
            "Ours: named only if it beats every other in a Mann-Whitney test on repetitions, adjusted by Holm; "
            "otherwise a tie. Latency, jitter and loss are those of the probe's packets during one-way TCP "
            "traffic. UDP runs as fast as it can on one node, and at the highest rate for all numbers of "
            "machines across nodes. Published: the best mean of 30 repetitions; the study names no ties.",
        )
        return Section("Winners", tables=[table])

    def answer(self) -> str:
        counted = Counter(v for v in self._shown.values() if v not in ("tie", "–", "too few data"))
        judged = sum(v not in ("–", "too few data") for v in self._shown.values())
        if not judged:
            return "There is too little data to name a winner: repeat each combination at least five times."
        if not counted:
            return f"None of {judged} comparisons separates the technologies: a tie throughout."
        ranking = ", ".join(f"{path} wins {n}" for path, n in counted.most_common())
        ties = sum(v == "tie" for v in self._shown.values())
        return f"Of {judged} comparisons (metric, placement, machines), {ranking}; {ties} are ties."


def _values(data: Data, m: _Metric, placement: str, machines: int) -> Mapping[str, Floats]:
    """Return one number per repetition for each path, under the traffic that the metric is read from."""
    wanted: dict[str, Factor] = {"placement": placement, "machines": machines, "direction": "one-way"}
    if m.protocol:
        wanted["protocol"] = m.protocol
    rates = data.levels("rate", **wanted)
    if not rates:
        return {}
    wanted["rate"] = rates[0]
    found = {str(p): data.each(m.metric, m.reduce, path=p, **wanted) for p in data.levels("path", **wanted)}
    return {p: v for p, v in found.items() if v.size}


def _traffic(campaign: Campaign, data: Data, placement: str) -> Section:
    rows = []
    scale, unit = (1e9, "Gbit/s") if placement == "same-node" else (1e6, "Mbit/s")
    groups: list[str] = []
    paths = [str(p) for p in data.levels("path")]
    plotted: dict[str, list[figures.Bar | None]] = {p: [] for p in paths}
    for cell in _loads(data, placement):
        name = _load_name(cell)
        groups.append(name)
        for path in paths:
            received = data.each("throughput", mean, path=path, **cell)
            back = data.each("throughput_back", mean, path=path, **cell)
            loss = data.each("traffic_loss", mean, path=path, **cell)
            plotted[path].append(compare.bar(received, campaign.confidence, scale))
            if received.size:
                rows.append(
                    [
                        name,
                        path,
                        str(received.size),
                        compare.mean_text(received, "bit/s", campaign.confidence),
                        compare.mean_text(back, "bit/s", campaign.confidence),
                        compare.mean_text(loss, "ratio", campaign.confidence),
                    ]
                )
    table = Table(
        f"Throughput per connection, {_PLACEMENTS[placement]}",
        ["traffic", "path", "n", "throughput", "way back", "UDP loss"],
        rows,
        f"Mean over repetitions with its {percent(campaign.confidence)} t-interval.",
    )
    figure = figures.bars(f"Throughput per connection, {_PLACEMENTS[placement]}", groups, plotted, unit)
    return Section(f"Traffic, {_PLACEMENTS[placement]}", tables=[table], figures=[figure])


def _loads(data: Data, placement: str) -> list[dict[str, Factor]]:
    names = ("machines", "protocol", "direction", "rate")
    found: list[dict[str, Factor]] = []
    for r in data.where(placement=placement):
        load: dict[str, Factor] = {"placement": placement, **{n: r.factors[n] for n in names}}
        if load not in found:
            found.append(load)
    return sorted(
        found, key=lambda c: (str(c["protocol"]), str(c["direction"]), str(c["rate"]), int(c["machines"]))
    )


def _load_name(cell: Mapping[str, Factor]) -> str:
    ways = ", both ways" if cell["direction"] == "both-ways" else ""
    rate = "" if cell["rate"] == "unlimited" else f" {cell['rate']}"
    return f"{cell['machines']} × {cell['protocol']}{rate}{ways}"


def _delay(campaign: Campaign, data: Data) -> Section:
    rows, plots = [], []
    for placement, shown in _PLACEMENTS.items():
        loads = _loads(data, placement)
        for cell in loads:
            for path in data.levels("path", **cell):
                each = {"path": path, **cell}
                lost, sent = data.lost("rtt_application", **each)
                least = minimum_detectable_loss(sent, campaign.confidence)
                rows.append(
                    [
                        f"{shown}, {_load_name(cell)}",
                        str(path),
                        compare.median_text(data.each("rtt", median, **each), "s", campaign.confidence),
                        compare.median_text(data.each("rtt", jitter, **each), "s", campaign.confidence),
                        f"{lost} of {sent}"
                        + (f" (≤ {percent(least)})" if lost == 0 else f", {percent(lost / sent)}"),
                    ]
                )
        if loads:
            plots.append(_delay_plot(data, placement, loads[0]))
    table = Table(
        "Round trips of timed packets during the traffic",
        ["traffic", "path", "median RTT", "jitter", "lost"],
        rows,
        "RTT by kernel timestamps, reflector time excluded. Medians over repetitions with exact "
        "order-statistic intervals. Jitter: mean difference of neighbouring delays. Where nothing was lost, "
        "the smallest loss that so many packets would have shown.",
    )
    return Section("Latency, jitter and loss", tables=[table], figures=plots)


def _delay_plot(data: Data, placement: str, cell: Mapping[str, Factor]) -> Figure:
    series = {str(p): data.pooled("rtt", path=p, **cell) * 1e3 for p in data.levels("path", **cell)}
    return figures.cdf(
        f"Round trips during {_load_name(cell)}, {_PLACEMENTS[placement]}", series, "RTT in ms"
    )


def _tests(campaign: Campaign, data: Data) -> Section:
    rows = []
    for m in _METRICS:
        for placement, shown in _PLACEMENTS.items():
            for machines in sorted(int(x) for x in data.levels("machines")):
                values = _values(data, m, placement, machines)
                if len(values) < 2:
                    continue
                for c in compare.judged(values, m.better, campaign.confidence).family:
                    rows.append([f"{m.name}, {shown}, {machines}", *compare.pair_row(c, m.unit)])
    table = Table(
        "Every comparison behind the winners",
        ["metric", *compare.PAIR_HEADER],
        rows,
        "Mann-Whitney on repetitions; the shift is the first minus the second, with Moses' interval; "
        "Holm within each metric, placement and number of machines.",
    )
    return Section("Tests", tables=[table])
