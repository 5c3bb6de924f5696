"""E1: who wins and who loses, and throughput, delay, jitter and loss behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vigia.campaign.model import Campaign, Factor
from vigia.report import compare, figures
from vigia.report.answers import Answer, Standing, capital, evaluate, standings, sureness, tally
from vigia.report.data import Data, Floats, jitter, mean, median, published
from vigia.report.document import Document, Figure, Section, Summary, Table
from vigia_statistics import minimum_detectable_loss
from vigia_text.numbers import percent

__all__ = ["build"]

_PLACEMENTS = {"same-node": "same node", "cross-node": "across nodes"}
_METRICS: Mapping[str, tuple[str, str]] = {
    "latency": ("latency (median RTT under TCP)", "lowest_latency"),
    "jitter": ("jitter (under TCP)", "lowest_jitter"),
    "udp_loss": ("loss of UDP", "lowest_loss"),
    "tcp_throughput": ("TCP throughput", "highest_tcp_throughput"),
    "udp_throughput": ("UDP throughput", "highest_udp_throughput"),
    "tcp_both_ways": ("TCP throughput, both ways", ""),
}
"""Hypothesis: how it is called, and its row in the published table."""


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    found = evaluate(campaign.hypotheses, data, campaign.confidence)
    ranked = {name: standings(found[name]) for name in _METRICS if found.get(name)}
    sections = [
        Section("Winners and losers", tables=[_winners(ranked)]),
        *(_traffic(campaign, data, p) for p in _PLACEMENTS if list(data.where(placement=p))),
        _delay(campaign, data),
    ]
    return Document(
        campaign.title,
        campaign.question,
        _answer(data, ranked),
        sections,
        _summary(data, ranked, found.get("fragments", [])),
    )


def _answer(data: Data, ranked: Mapping[str, Sequence[Standing]]) -> str:
    every = [s for standing in ranked.values() for s in standing]
    under = f"{capital(data.conditions)}: " if data.conditions else ""
    text = tally(every)
    return f"{under}{text[:1].lower() + text[1:] if under else text}"


def _userspace(data: Data) -> bool:
    return "Open vSwitch with its userspace datapath" in data.conditions


def _summary(data: Data, ranked: Mapping[str, Sequence[Standing]], fragments: Sequence[Answer]) -> Summary:
    found = [f"{capital(_METRICS[name][0])}: {tally(standing)}" for name, standing in ranked.items()]
    for f in fragments:
        where = " ".join(str(v) for k, v in f.question.stratum.items() if k in ("path", "placement", "rate"))
        found.append(
            f"UDP in fragments loses {_more(f).shown} of what is sent more than in datagrams that fit, {where}: {_said(f)}."
        )
    silent = []
    if _userspace(data):
        silent.append(
            "Whether Open vSwitch or the Linux bridge is the better one: the bridge forwards in the kernel here, and "
            "Open vSwitch does not. It compares these two as they run on this machine."
        )
    silent += [
        "Anything about real networks: all nodes are namespaces of one machine, and traffic never leaves it.",
        "Which is better at loads, sizes or numbers of machines that are not in the tables.",
    ]
    same, other, none = _against_published(ranked)
    reason = " Likely reason: in the study both switches forwarded in the kernel, on machines of their own."
    verdict = (
        "agrees"
        if same and not other
        else "disagrees"
        if other > same
        else "partly agrees"
        if same
        else "open"
    )
    agreement = (
        f"{verdict}: of {same + other + none} published winners, ours names the same for {same} and another for {other}; "
        f"for {none} it names none.{reason if other and _userspace(data) else ''}"
    )
    paper = (
        "no technology wins throughout: Linux bridge has the lowest loss across nodes and the lowest latency of few "
        "machines, Open vSwitch with GRE the highest throughput on one node with more of them"
    )
    return Summary(found, [], silent, paper, agreement, _confidence(ranked, _userspace(data)))


def _more(f: Answer) -> Answer:
    """Return what fragments lose more, whichever of the two was compared with the other."""
    if f.question.first == "fragments":
        return f
    return replace(f, estimate=-f.estimate, lower=-f.upper, upper=-f.lower)


def _said(f: Answer) -> str:
    return "decided" if f.winner else f.verdict


def _confidence(ranked: Mapping[str, Sequence[Standing]], userspace: bool) -> str:
    every = [s for standing in ranked.values() for s in standing]
    decided = sum(bool(s.winners or s.losers or s.shown == "equivalent") and not s.failed for s in every)
    limit = "it is about these datapaths, not about the switches as such" if userspace else ""
    return sureness(decided, len(every), "rankings", limit)


def _against_published(ranked: Mapping[str, Sequence[Standing]]) -> tuple[int, int, int]:
    """Return how many published winners ours agrees with, how many it contradicts, and for how many it names none."""
    same = other = none = 0
    for row in published("overlays", "winners"):
        names = [n for n, (_, key) in _METRICS.items() if key == row["metric"] and n in ranked]
        for machines in (2, 4, 8):
            theirs = row[f"vms{machines}"]
            ours = [
                s
                for n in names
                for s in ranked[n]
                if (s.stratum["placement"], str(s.stratum["machines"])) == (row["placement"], str(machines))
            ]
            if not theirs or not ours:
                continue
            best = {w for s in ours for w in s.winners}
            same += best == {theirs}
            other += bool(best) and best != {theirs}
            none += not best
    return same, other, none


def _winners(ranked: Mapping[str, Sequence[Standing]]) -> Table:
    rows = []
    reference = {(r["metric"], r["placement"]): r for r in published("overlays", "winners")}
    for name, standing in ranked.items():
        shown, key = _METRICS[name]
        for s in standing:
            load = _load_name({"direction": "one-way", "datagram": "fits", **s.stratum})
            theirs = (
                reference.get((key, str(s.stratum["placement"])), {}).get(f"vms{s.stratum['machines']}")
                or "–"
            )
            rows.append([shown, _PLACEMENTS[str(s.stratum["placement"])], load, s.shown, theirs])
    return Table(
        "Who wins and who loses",
        ["metric", "placement", "traffic", "ours", "published winner"],
        rows,
        "A winner beats every other one, a loser is beaten and beats nobody; beaten: the whole interval of the ratio (of "
        "loss: the difference) lies beyond the margin. Loss and throughput of UDP are what its receiver counted. Latency and "
        "jitter are those of the probe's packets. Published: the best mean of 30 repetitions; the study names no ties and no "
        "losers, and its UDP loss is that of 56 KB messages.",
    )


def _traffic(campaign: Campaign, data: Data, placement: str) -> Section:
    rows = []
    scale, unit = (1e9, "Gbit/s") if placement == "same-node" else (1e6, "Mbit/s")
    loads = _loads(data, placement)
    groups = [_load_name(cell) for cell in loads]
    paths = [str(p) for p in data.levels("path")]
    rates: dict[str, list[Floats]] = {p: [] for p in paths}
    losses: dict[str, list[Floats]] = {p: [] for p in paths}
    for cell, name in zip(loads, groups, strict=True):
        for path in paths:
            received = data.each("throughput", mean, path=path, **cell)
            loss = data.each("traffic_loss", mean, path=path, **cell)
            rates[path].append(received / scale)
            losses[path].append(loss)
            if received.size:
                rows.append(_traffic_row(campaign, data, name, path, cell, received, loss))
    table = Table(
        f"Throughput per connection, {_PLACEMENTS[placement]}",
        ["traffic", "path", "n", "throughput", "way back", "UDP loss", "of which nothing arrived"],
        rows,
        f"Means over repetitions with {percent(campaign.confidence)} intervals. UDP loss is of the traffic itself, by what "
        "the receiver got.",
    )
    drawn = [
        _dots(campaign, f"Throughput per connection, {_PLACEMENTS[placement]}", groups, rates, unit, log=True)
    ]
    udp = [n for n, cell in enumerate(loads) if cell["protocol"] == "udp"]
    if udp:
        only = {p: [100 * values[n] for n in udp] for p, values in losses.items()}
        caption = f"Loss of UDP by its receiver, {_PLACEMENTS[placement]}"
        drawn.append(_dots(campaign, caption, [groups[n] for n in udp], only, "% lost", log=False))
    return Section(f"Traffic, {_PLACEMENTS[placement]}", tables=[table], figures=drawn)


def _traffic_row(  # noqa: PLR0913
    campaign: Campaign,
    data: Data,
    name: str,
    path: str,
    cell: Mapping[str, Factor],
    received: Floats,
    loss: Floats,
) -> list[str]:
    back = data.each("throughput_back", mean, path=path, **cell)
    return [
        name,
        path,
        str(received.size),
        compare.mean_text(received, "bit/s", campaign.confidence),
        compare.mean_text(back, "bit/s", campaign.confidence),
        compare.mean_text(loss, "ratio", campaign.confidence),
        f"{int((received <= 0).sum())} of {received.size}",
    ]


def _dots(  # noqa: PLR0913
    campaign: Campaign,
    caption: str,
    groups: list[str],
    series: Mapping[str, list[Floats]],
    unit: str,
    *,
    log: bool,
) -> Figure:
    means = {
        p: [compare.bar(v, "" if log else "ratio", campaign.confidence) for v in values]
        for p, values in series.items()
    }
    return figures.dots(caption, groups, series, means, unit, log=log)


def _loads(data: Data, placement: str) -> list[dict[str, Factor]]:
    names = ("machines", "protocol", "direction", "rate", "datagram")
    found: list[dict[str, Factor]] = []
    for r in data.where(placement=placement):
        load: dict[str, Factor] = {"placement": placement, **{n: r.factors[n] for n in names}}
        if load not in found:
            found.append(load)

    def order(c: Mapping[str, Factor]) -> tuple[str, str, str, str, int]:
        return str(c["protocol"]), str(c["datagram"]), str(c["direction"]), str(c["rate"]), int(c["machines"])

    return sorted(found, key=order)


def _load_name(cell: Mapping[str, Factor]) -> str:
    ways = ", both ways" if cell["direction"] == "both-ways" else ""
    rate = "" if cell["rate"] == "unlimited" else f" {cell['rate']}"
    fragments = " in fragments" if cell["datagram"] == "fragments" else ""
    return f"{cell['machines']} × {cell['protocol']}{rate}{fragments}{ways}"


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
        "the smallest loss that so many packets would have shown. These are the probe's packets, not the traffic.",
    )
    return Section("Latency, jitter and loss of timed packets", tables=[table], figures=plots)


def _delay_plot(data: Data, placement: str, cell: Mapping[str, Factor]) -> Figure:
    series = {str(p): data.pooled("rtt", path=p, **cell) * 1e3 for p in data.levels("path", **cell)}
    caption = f"Round trips during {_load_name(cell)}, {_PLACEMENTS[placement]}"
    return figures.cdf(caption, series, "RTT in ms")
