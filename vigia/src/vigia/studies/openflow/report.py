"""E2: intervals per match, distributions, speed-up, rule limits, rewriting, hardware or software."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vigia.campaign.model import Campaign, Factor
from vigia.report import compare, figures
from vigia.report.data import Data, Floats, jitter, mean, median, published
from vigia.report.document import Document, Figure, Section, Table
from vigia.studies.openflow import verdict
from vigia_statistics import Direction, rank_sum
from vigia_text.numbers import interval, percent, seconds

__all__ = ["build"]

_BASE: Mapping[str, Factor] = {"rules": "one", "rewrite": "none"}
_MATCHES = ("in_port", "mac", "ip", "udp_port", "exact")
_NO_SWITCH: Mapping[str, Factor] = {"match": "none"}


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    path = next((str(r.factors["path"]) for r in data.where(rules="one")), "ovs-openflow")
    sizes = [int(s) for s in data.levels("size", path=path)]
    size = min(sizes, default=64)
    forwarding = _verdicts(campaign, data, size)
    legacy = _legacy(campaign, data, sizes)
    sections = [
        _match(campaign, data, size),
        legacy,
        _table_size(campaign, data, size),
        _rewriting(campaign, data, size),
        _where(forwarding),
        _tests(campaign, data, size),
    ]
    return Document(campaign.title, campaign.question, _answer(campaign, data, size, forwarding), sections)


def _answer(campaign: Campaign, data: Data, size: int, forwarding: Mapping[str, verdict.Forwarding]) -> str:
    parts = []
    ratio = _speed_up(campaign, data, "exact", size)
    if ratio is not None:
        estimate, low, high = ratio
        worse = "not separable from" if low <= 1 <= high else ("worse than" if high < 1 else "better than")
        parts.append(
            f"With {size}-byte packets OpenFlow (exact match) is {worse} normal mode: "
            f"speed-up {estimate:.3f} [{low:.3f}, {high:.3f}]"
        )
    if "exact" in forwarding:
        f = forwarding["exact"]
        parts.append(
            f"the switch forwards in {f.verdict}"
            if f.delay and f.verdict != "undecided"
            else "where it forwards is undecided"
        )
    return "; ".join(parts) + "." if parts else "There is too little data for an answer."


def _cell(match: str, size: int, **more: Factor) -> dict[str, Factor]:
    return {"match": match, "size": size, **_BASE, **more}


def _match(campaign: Campaign, data: Data, size: int) -> Section:
    rows = []
    matches = [m for m in (*_MATCHES, "normal") if list(data.where(**_cell(m, size)))]
    for m in matches:
        cell = _cell(m, size)
        rows.append(
            [
                m,
                str(data.each("rtt", mean, **cell).size),
                compare.mean_text(data.each("rtt", mean, **cell), "s", campaign.confidence),
                compare.median_text(data.each("rtt", median, **cell), "s", campaign.confidence),
                compare.median_text(data.each("rtt", jitter, **cell), "s", campaign.confidence),
                "{} of {}".format(*data.lost("rtt_application", **cell)),
            ]
        )
    table = Table(
        f"Round trip per kind of match, {size}-byte packets",
        ["match", "n", "mean", "median", "jitter (mean difference)", "lost"],
        rows,
        f"Over repetitions. Mean with {percent(campaign.confidence)} t-interval; median with exact interval, whose "
        "confidence is lower where there are too few repetitions.",
    )
    switches = list(dict.fromkeys(r["switch"] for r in published("openflow", "match_delay_ms")))
    theirs = {
        (r["switch"], r["match"]): f"{r['ci_low']}–{r['ci_high']}"
        for r in published("openflow", "match_delay_ms")
    }
    reference = Table(
        "Published: 99 % interval of the mean delay in ms, 64-byte packets",
        ["match", *switches],
        [[m, *(theirs.get((s, m), "–") for s in switches)] for m in _MATCHES],
    )
    return Section("Kinds of match", tables=[table, reference], figures=_distributions(data, matches, size))


def _distributions(data: Data, matches: list[str], size: int) -> list[Figure]:
    delays: dict[str, Floats] = {m: data.pooled("rtt", **_cell(m, size)) * 1e6 for m in matches}
    steps = {m: np.abs(np.diff(data.pooled("rtt", **_cell(m, size)))) * 1e6 for m in matches}
    none = data.pooled("rtt", **_NO_SWITCH, size=size) * 1e6
    if none.size:
        delays["no switch"] = none
    return [
        figures.cdf(f"Round trips of {size}-byte packets", delays, "RTT in µs"),
        figures.cdf(f"Differences of neighbouring round trips, {size} bytes", steps, "jitter in µs"),
    ]


def _speed_up(campaign: Campaign, data: Data, match: str, size: int) -> tuple[float, float, float] | None:
    """Return legacy delay / OpenFlow delay with its interval: of the differences of logarithms."""
    legacy, ours = (data.each("rtt", mean, **_cell(m, size)) for m in ("normal", match))
    if legacy.size < 2 or ours.size < 2:
        return None
    shift = rank_sum(np.log(legacy), np.log(ours), campaign.confidence).shift
    estimate, low, high = (float(np.exp(v)) for v in (shift.estimate, shift.lower, shift.upper))
    return estimate, low, high


def _legacy(campaign: Campaign, data: Data, sizes: list[int]) -> Section:
    rows = []
    plotted: dict[str, list[figures.Bar | None]] = {}
    for match in _MATCHES:
        bars: list[figures.Bar | None] = [_speed_up(campaign, data, match, s) for s in sizes]
        if any(bars):
            plotted[match] = bars
            rows.append([match, *(interval(*b, "") if b else "–" for b in bars)])
    table = Table(
        "Speed-up: delay in normal mode / delay under OpenFlow",
        ["match", *(f"{s} bytes" for s in sizes)],
        rows,
        "1 is equal, below 1 OpenFlow is worse. Ratio of repetitions' means by Hodges-Lehmann on logarithms.",
    )
    figure = figures.bars(
        "Speed-up over normal mode", [f"{s} bytes" for s in sizes], plotted, "normal / OpenFlow"
    )
    return Section("Normal mode against OpenFlow", tables=[table], figures=[figure])


def _table_size(campaign: Campaign, data: Data, size: int) -> Section:
    held = data.each("rules", mean, rules="full")
    rows = []
    for name, rules in (("one rule", "one"), ("full table", "full")):
        delays = data.each("rtt", mean, match="exact", size=size, rules=rules, rewrite="none")
        rows.append([name, str(delays.size), compare.mean_text(delays, "s", campaign.confidence)])
    most = max((int(v) for v in held), default=0)
    bound = campaign.small.settings.table, campaign.full.settings.table if campaign.full else 0
    search = "the search ended there: it holds at least so many" if most in bound else "more were refused"
    table = Table(
        "One rule and a full table",
        ["table", "n", "mean round trip"],
        rows,
        f"{most} rules were held; {search}." if most else "",
    )
    reference = Table(
        "Published: rules held, and 99 % interval of the mean delay in ms",
        ["switch", "normal", "OpenFlow", "one rule", "full table"],
        [
            [
                r["switch"],
                r["rules_legacy"],
                r["rules_openflow"],
                f"{r['one_rule_low']}–{r['one_rule_high']}",
                f"{r['full_table_low']}–{r['full_table_high']}",
            ]
            for r in published("openflow", "rules")
        ],
    )
    return Section("Number of rules", tables=[table, reference])


def _rewriting(campaign: Campaign, data: Data, size: int) -> Section:
    names = ["none", *(str(r) for r in data.levels("rewrite") if r != "none")]
    theirs = {r["rewrite"]: r for r in published("openflow", "rewrite_delay_ms")}
    switches = ("x460", "x440", "hp", "openwrt", "ovs")
    rows = []
    for name in names:
        cell: dict[str, Factor] = {"match": "udp_port", "size": size, "rules": "one", "rewrite": name}
        delays = data.each("rtt", mean, **cell)
        refused = data.each("supported", mean, **cell)
        ours = (
            "unsupported"
            if refused.size and not refused.any()
            else compare.mean_text(delays, "s", campaign.confidence)
        )
        r = theirs.get(name, {})
        rows.append([name, str(delays.size), ours, *(_range(r, s) for s in switches)])
    table = Table(
        "Mean round trip while a header field is rewritten; published beside it, in ms",
        ["rewritten", "n", "ours", *(f"published, {s}" for s in switches)],
        rows,
        "Before every repetition a packet made by scapy was sent, and its fields were compared at the receiver. "
        "Addresses and ports are put back on the way back, or the client would not know its answer.",
    )
    return Section("Header rewriting", tables=[table])


def _range(row: Mapping[str, str], switch: str) -> str:
    low, high = row.get(f"{switch}_low"), row.get(f"{switch}_high")
    return f"{low}–{high}" if low else "unsupported"


def _verdicts(campaign: Campaign, data: Data, size: int) -> dict[str, verdict.Forwarding]:
    found = {}
    cable: dict[str, Factor] = {**_NO_SWITCH, "size": size}
    for m in (*_MATCHES, "normal"):
        cell = _cell(m, size)
        if not list(data.where(**cell)):
            continue
        found[m] = verdict.forwarding(
            data.each("rtt", median, **cell),
            data.each("rtt", verdict.quartile_range, **cell),
            data.each("rtt", median, **cable),
            data.each("rtt", verdict.quartile_range, **cable),
            campaign.confidence,
        )
    return found


def _where(found: Mapping[str, verdict.Forwarding]) -> Section:
    rows = []
    for m, f in found.items():
        delay = interval(f.delay.estimate, f.delay.lower, f.delay.upper, "s") if f.delay else "–"
        spread = interval(f.spread.estimate, f.spread.lower, f.spread.upper, "s") if f.spread else "–"
        rows.append([m, f.verdict, delay, spread, f.reason])
    text = (
        f"A hardware pipeline takes at most {seconds(verdict.QUICK)} for one pass and varies by at most "
        f"{seconds(verdict.CONSTANT)}; software takes a processor for each packet. What the switch adds is the difference "
        "to the path without it, so what the hosts do cancels out. A verdict needs both signs, each with its whole "
        "interval on one side."
    )
    table = Table(
        "Where the switch forwards",
        ["match", "verdict", "delay of one pass", "added quartile range", "why"],
        rows,
    )
    return Section("Hardware or software", [text], [table])


def _tests(campaign: Campaign, data: Data, size: int) -> Section:
    values = {m: data.each("rtt", mean, **_cell(m, size)) for m in (*_MATCHES, "normal")}
    family = compare.judged(
        {m: v for m, v in values.items() if v.size}, Direction.LOWER, campaign.confidence
    ).family
    table = Table(
        f"Every pair of matches, {size}-byte packets",
        ["comparison", *compare.PAIR_HEADER[1:]],
        [compare.pair_row(c, "s") for c in family],
        "Mann-Whitney on repetitions' means, Holm over the table.",
    )
    return Section("Tests", tables=[table])
