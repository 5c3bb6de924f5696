"""E2: intervals per match, distributions, speed-up, rule limits, rewriting, hardware or software."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vigia.campaign.model import Campaign, Factor
from vigia.report import compare, figures
from vigia.report.answers import Answer, Said, capital, evaluate, standings, sureness, tally
from vigia.report.data import Data, Floats, jitter, mean, median, published
from vigia.report.document import Document, Figure, Section, Summary, Table
from vigia.studies.openflow import verdict
from vigia.studies.openflow.measurement import TABLES
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
    found = evaluate(campaign.hypotheses, data, campaign.confidence)
    modes = {
        (str(f.question.first), int(f.question.stratum["size"])): f for f in found.get("openflow_mode", [])
    }
    trend = next(iter(found.get("table_size", [])), None)
    sections = [
        _match(campaign, data, sizes),
        _legacy(modes, sizes),
        _table_size(campaign, data, size, trend),
        _rewriting(campaign, data, size),
        _where(forwarding),
    ]
    answer = _answer(data, modes, size, trend, forwarding)
    summary = _summary(data, modes, trend, found, forwarding)
    return Document(campaign.title, campaign.question, answer, sections, summary)


_Modes = Mapping[tuple[str, int], Answer]
_WORDS = {Said.ABOVE: "slower than", Said.BELOW: "faster than", Said.EQUAL: "equivalent to"}


def _answer(
    data: Data, modes: _Modes, size: int, trend: Answer | None, forwarding: Mapping[str, verdict.Forwarding]
) -> str:
    parts = []
    mode = modes.get(("exact", size))
    if mode:
        word = _WORDS.get(mode.outcome)
        said = f"is {word} normal mode" if word else f"beside normal mode: {mode.verdict}"
        parts.append(f"with {size}-byte packets OpenFlow (exact match) {said}, delay {mode.shown}")
    if trend:
        parts.append(_trend_words(trend))
    if "exact" in forwarding:
        f = forwarding["exact"]
        decided = f.delay and f.verdict != "undecided"
        parts.append(f"the switch forwards in {f.verdict}" if decided else "where it forwards is undecided")
    if not parts:
        return "There is too little data for an answer."
    under = [data.conditions] if data.conditions else []
    return capital(f"{': '.join([*under, '; '.join(parts)])}.")


def _trend_words(trend: Answer) -> str:
    words = {
        Said.ABOVE: "delay grows with the table",
        Said.BELOW: "delay falls as the table grows",
        Said.EQUAL: "delay does not depend on the number of rules",
    }
    said = words.get(trend.outcome, f"whether delay grows with the table: {trend.verdict}")
    return f"{said}, {trend.shown} for ten times as many rules"


def _summary(
    data: Data,
    modes: _Modes,
    trend: Answer | None,
    found: Mapping[str, Sequence[Answer]],
    forwarding: Mapping[str, verdict.Forwarding],
) -> Summary:
    lines = [
        f"{m} beside normal mode, {size} bytes: delay {f.shown} ({_beside_normal(f)})."
        for (m, size), f in modes.items()
        if m == "exact"
    ]
    lines += [f"Kinds of match: {tally(standings(found['match_kinds']))}"] if found.get("match_kinds") else []
    lines.append(
        f"{capital(_trend_words(trend))}."
        if trend
        else "Whether delay grows with the table was not measured."
    )
    for f in found.get("rewriting", []):
        lines.append(f"Rewriting {f.question.first}: delay {f.shown} beside none ({f.verdict}).")
    silent = [
        "Anything about switches of hardware: one switch was measured, in software.",
        "Where the time goes: the hosts' own share of the round trip is in both modes alike.",
    ]
    paper = (
        "OpenFlow is as fast as legacy mode on the hardware switches and on Open vSwitch; the kind of match and a full "
        "table change little, but on one access point"
    )
    return Summary(lines, [], silent, paper, _agreement(modes, trend), _confidence(modes, forwarding))


def _beside_normal(mode: Answer) -> str:
    word = _WORDS.get(mode.outcome)
    return f"{word} normal mode" if word else mode.verdict


def _agreement(modes: _Modes, trend: Answer | None) -> str:
    decided = [f for f in modes.values() if f.outcome in _WORDS]
    if not decided:
        return "open: no comparison with normal mode is decided"
    equal = all(f.outcome is Said.EQUAL for f in decided)
    table = (
        ""
        if trend is None or trend.outcome not in _WORDS
        else (
            "; a growing table costs nothing here, either"
            if trend.outcome is Said.EQUAL
            else "; the table's size matters here"
        )
    )
    slower = sum(f.outcome is Said.ABOVE for f in decided)
    if equal:
        return f"agrees: all {len(decided)} decided comparisons are equivalent{table}"
    return (
        f"partly agrees: of {len(decided)} decided comparisons OpenFlow is slower in {slower}{table}; likely reason: a "
        "userspace datapath classifies each packet itself, and NORMAL learns addresses beside it"
    )


def _confidence(modes: _Modes, forwarding: Mapping[str, verdict.Forwarding]) -> str:
    decided = sum(f.outcome in _WORDS for f in modes.values())
    where = "high" if {f.verdict for f in forwarding.values()} in ({"software"}, {"hardware"}) else "low"
    return f"{sureness(decided, len(modes), 'comparisons with normal mode')}; {where} on where it forwards"


def _cell(match: str, size: int, **more: Factor) -> dict[str, Factor]:
    return {"match": match, "size": size, **_BASE, **more}


def _match(campaign: Campaign, data: Data, sizes: Sequence[int]) -> Section:
    rows = []
    cells = [(m, size) for size in sizes for m in (*_MATCHES, "normal") if list(data.where(**_cell(m, size)))]
    for m, size in cells:
        cell = _cell(m, size)
        means = data.each("rtt", mean, **cell)
        rows.append(
            [
                m,
                str(size),
                str(means.size),
                compare.mean_text(means, "s", campaign.confidence),
                compare.median_text(data.each("rtt", median, **cell), "s", campaign.confidence),
                compare.median_text(data.each("rtt", jitter, **cell), "s", campaign.confidence),
                "{} of {}".format(*data.lost("rtt_application", **cell)),
            ]
        )
    table = Table(
        "Round trip per kind of match",
        ["match", "bytes", "n", "mean", "median", "jitter (mean difference)", "lost"],
        rows,
        f"Over repetitions. Mean with {percent(campaign.confidence)} interval; median with exact interval, whose "
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
    drawn = [_beside_published(campaign, data, min(sizes, default=64))]
    for size in sizes:
        drawn += _distributions(data, [m for m, s in cells if s == size], size)
    return Section("Kinds of match", tables=[table, reference], figures=drawn)


def _beside_published(campaign: Campaign, data: Data, size: int) -> Figure:
    ours = [data.each("rtt", mean, **_cell(m, size)) * 1e3 for m in _MATCHES]
    theirs: dict[str, dict[str, float]] = {}
    for r in published("openflow", "match_delay_ms"):
        theirs.setdefault(r["switch"], {})[r["match"]] = (float(r["ci_low"]) + float(r["ci_high"])) / 2
    return figures.dots(
        f"Mean round trip, {size} bytes: ours per repetition, published values beside them (other hardware)",
        _MATCHES,
        {"ours": ours},
        {"ours": [compare.bar(v, "s", campaign.confidence) for v in ours]},
        "RTT in ms",
        published={name: [values.get(m) for m in _MATCHES] for name, values in theirs.items()},
    )


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


def _legacy(modes: _Modes, sizes: Sequence[int]) -> Section:
    rows = []
    plotted: dict[str, list[figures.Bar | None]] = {}
    for match in _MATCHES:
        found = [modes.get((match, s)) for s in sizes]
        bars = [None if f is None or not f.values.size else _speed_up(f) for f in found]
        if any(bars):
            plotted[match] = bars
            texts = [
                "–"
                if b is None or f is None
                else f"{interval(*b, '').strip()} ({_WORDS.get(f.outcome, f.verdict)})"
                for b, f in zip(bars, found, strict=True)
            ]
            rows.append([match, *texts])
    table = Table(
        "Speed-up: delay in normal mode / delay under OpenFlow",
        ["match", *(f"{s} bytes" for s in sizes)],
        rows,
        "1 is equal, below 1 OpenFlow is worse. The inverse of the tests' ratio, compared within blocks; the word says how "
        "OpenFlow stands to normal mode.",
    )
    caption, groups = "Speed-up over normal mode; the line is equality", [f"{s} bytes" for s in sizes]
    drawn = [figures.bars(caption, groups, plotted, "normal / OpenFlow", line=1.0)] if rows else []
    return Section("Normal mode against OpenFlow", tables=[table], figures=drawn)


def _speed_up(f: Answer) -> tuple[float, float, float]:
    """Return legacy delay / OpenFlow delay with its interval."""
    estimate, low, high = f.effect
    return 1 / estimate, 1 / high, 1 / low


def _table_size(campaign: Campaign, data: Data, size: int, trend: Answer | None) -> Section:
    held = data.each("rules", mean, rules="full")
    rows, groups, values = [], [], []
    levels = ["one", *(str(n) for n in TABLES), "full"]
    for rules in levels:
        delays = data.each("rtt", mean, match="exact", size=size, rules=rules, rewrite="none")
        if delays.size:
            rows.append([rules, str(delays.size), compare.mean_text(delays, "s", campaign.confidence)])
            groups.append(rules)
            values.append(delays * 1e3)
    most = max((int(v) for v in held), default=0)
    search = (
        "the search ended there: it holds at least so many"
        if most == data.settings.table
        else "more were refused"
    )
    table = Table(
        "Round trip by the number of rules",
        ["rules", "n", "mean round trip"],
        rows,
        f"{most} rules were held in a full table; {search}." if most else "",
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
    drawn = figures.dots(
        "Mean round trip by the number of rules, a dot for each repetition",
        groups,
        {"exact match": values},
        {"exact match": [compare.bar(v, "s", campaign.confidence) for v in values]},
        "RTT in ms",
    )
    said = (
        [f"{capital(_trend_words(trend))}."]
        if trend
        else ["A trend needs three sizes of table, which were not measured."]
    )
    return Section("Number of rules", said, tables=[table, reference], figures=[drawn] if groups else [])


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
