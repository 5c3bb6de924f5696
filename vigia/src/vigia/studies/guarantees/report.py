"""E5, experiment A: what each tenant got of its guarantee, by traffic and by how they were kept apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vigia.campaign.model import Campaign, Factor
from vigia.report import compare, figures
from vigia.report.answers import Answer, Said, capital, evaluate, sureness
from vigia.report.data import Data, Floats, mean
from vigia.report.document import Document, Figure, Section, Summary, Table
from vigia_text.numbers import interval, percent

__all__ = ["build"]

_PAYLOAD = {"tcp": 1448 / 1514, "udp": 1400 / 1442}  # of full frames; guarantees count frames
_KEEPS = {"A": ("a_keeps",), "B": ("b_keeps_tcp", "b_keeps_udp")}

_Found = Mapping[str, Sequence[Answer]]


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    found = evaluate(campaign.hypotheses, data, campaign.confidence)
    controls = [str(c) for c in data.levels("control")]
    sections = [
        Section("Who keeps what it bought", tables=[_kept_table(found, controls)]),
        Section("Shares", tables=[_shares(campaign, data)], figures=_figures(campaign, data)),
    ]
    answer = _answer(data, found, controls)
    return Document(campaign.title, campaign.question, answer, sections, _summary(data, found, controls))


def _of(found: _Found, names: Sequence[str], control: str) -> list[Answer]:
    """Return the answers of some hypotheses under one control."""
    return [f for name in names for f in found.get(name, []) if str(f.question.stratum["control"]) == control]


def _verdict(answers: Sequence[Answer]) -> str:
    """Say whether every cell reached its bound: kept, not kept, open, or – if none was measured."""
    if not answers:
        return "–"
    if any(f.outcome is Said.BELOW for f in answers):
        return "not kept"
    if all(f.outcome is Said.ABOVE for f in answers):
        return "kept"
    return "open"


def _cell(f: Answer) -> str:
    c = f.question.stratum
    return f"{c['direction']}, A {c['a']}, B {c['b']}"


def _kept_table(found: _Found, controls: Sequence[str]) -> Table:
    rows = []
    for control in controls:
        row = [control]
        for names in (*_KEEPS.values(), ("idle_is_lent",)):
            answers = _of(found, names, control)
            failing = [f for f in answers if f.outcome is Said.BELOW]
            reached = sum(f.outcome is Said.ABOVE for f in answers)
            worst = min(failing, key=lambda f: f.estimate, default=None)
            row.append(_verdict(answers))
            row.append(f"{reached} of {len(answers)}" if answers else "–")
            row.append(f"{_cell(worst)}: {percent(worst.effect[0])}" if worst else "–")
        rows.append(row)
    header = ["control"]
    for what in ("A keeps", "B keeps", "idle is lent"):
        header += [what, "cells", "worst that does not"]
    return Table(
        "Guarantees kept, over all traffic of both tenants",
        header,
        rows,
        "Kept: in every cell the whole interval of the share lies at or above 95 % of the guarantee's payload (of the link, "
        "90 %); not kept: in some cell all of it lies below. The worst is payload against a guarantee in frames.",
    )


def _answer(data: Data, found: _Found, controls: Sequence[str]) -> str:
    parts = []
    kept, lost = (
        [c for c in controls if _verdict(_of(found, _KEEPS["A"], c)) == word] for word in ("kept", "not kept")
    )
    if kept:
        parts.append(f"tenant A keeps its guarantee in every cell with {', '.join(kept)}")
    if lost:
        worst = ", ".join(f"{c} ({_worst(found, c)})" for c in lost)
        parts.append(f"{'it does not' if kept else 'tenant A does not keep its guarantee'} with {worst}")
    open_ = [c for c in controls if _verdict(_of(found, _KEEPS["A"], c)) == "open"]
    if open_:
        parts.append(f"it is open with {', '.join(open_)}")
    if not parts:
        return "No guarantee was measured beside another tenant's traffic."
    directions = [str(d) for d in data.levels("direction")]
    only = f"host 1 only {directions[0]}s, and " if len(directions) == 1 else ""
    under = f"{data.conditions}: " if data.conditions else ""
    return capital(f"{under}{only}{'; '.join(parts)}.")


def _worst(found: _Found, control: str) -> str:
    failing = [f for f in _of(found, _KEEPS["A"], control) if f.outcome is Said.BELOW]
    worst = min(failing, key=lambda f: f.estimate)
    payload = _PAYLOAD.get(str(worst.question.stratum["a"]).partition("-")[0], 1.0)
    c = worst.question.stratum
    return f"{percent(worst.effect[0] / payload)} against {c['b']}"


def _summary(data: Data, found: _Found, controls: Sequence[str]) -> Summary:
    lines = []
    for control in controls:
        said = {t: _verdict(_of(found, names, control)) for t, names in _KEEPS.items()}
        lent = _verdict(_of(found, ("idle_is_lent",), control))
        words = {"kept": "keeps", "not kept": "does not keep", "open": "may or may not keep"}
        parts = [f"{t} {words[v]} its guarantee" for t, v in said.items() if v in words]
        parts += [{"kept": "idle bandwidth is lent", "not kept": "idle bandwidth is not lent"}.get(lent, "")]
        lines.append(f"{capital(control)}: {', '.join(p for p in parts if p)}.")
    silent = [
        "Anything at 1 Gbit/s or more: links are scaled down, and queues of 160 frames are longer in time."
    ]
    if len(data.levels("direction")) < 2:
        silent.append(f"What happens in the other direction: host 1 {data.levels('direction')[0]}s only.")
    missing = [lv for lv in ("tcp-1", "tcp-10") if lv not in {str(v) for v in data.levels("a")}]
    if missing:
        silent.append(f"What happens when A sends {' or '.join(missing)}.")
    paper = (
        "its notices keep every guarantee, sending and receiving, and lend what is idle; borrowing alone does under TCP and "
        "fails under UDP; nothing does without control"
    )
    return Summary(lines, [], silent, paper, _agreement(found), _confidence(found))


def _agreement(found: _Found) -> str:
    def of(control: str, protocol: str) -> str:
        here = [
            f for f in _of(found, _KEEPS["A"], control) if str(f.question.stratum["b"]).startswith(protocol)
        ]
        return _verdict(here)

    theirs = {
        ("none", "udp"): "not kept",
        ("borrowing", "tcp"): "kept",
        ("borrowing", "udp"): "not kept",
        ("paper", "tcp"): "kept",
        ("paper", "udp"): "kept",
    }
    ours = {k: of(*k) for k in theirs}
    same = [k for k, v in theirs.items() if ours[k] == v]
    other = [k for k, v in theirs.items() if ours[k] in ("kept", "not kept") and ours[k] != v]
    words = "; ".join(
        f"{control} under {protocol.upper()} is {ours[control, protocol]} here" for control, protocol in other
    )
    verdict = (
        "agrees" if same and not other else "partly agrees" if same else "disagrees" if other else "open"
    )
    text = f"{verdict}: {len(same)} of {len(theirs)} of the study's findings are seen here"
    if ("borrowing", "tcp") in other:
        words += (
            "; likely reason: with links scaled to 50 Mbit/s the headroom of 5 % is a few frames in each round trip, so many "
            "flows overshoot it and the access link drops frames of both tenants before the scheduler sees them"
        )
    return f"{text}; not: {words}" if words else text


def _confidence(found: _Found) -> str:
    asked = [f for family in found.values() for f in family]
    return sureness(sum(f.outcome in (Said.ABOVE, Said.BELOW) for f in asked), len(asked), "bounds")


def _payload(level: Factor) -> float:
    return _PAYLOAD.get(str(level).partition("-")[0], 1.0)


def _cells(data: Data) -> list[dict[str, Factor]]:
    return [
        {"direction": d, "a": a, "b": b, "control": c}
        for d in data.levels("direction")
        for a in data.levels("a")
        for b in data.levels("b")
        for c in data.levels("control")
        if data.each("used", mean, direction=d, a=a, b=b, control=c).size
    ]


def _share(data: Data, tenant: str, cell: Mapping[str, Factor], metric: str = "share") -> Floats:
    """Return what a tenant got of the payload in its guarantee."""
    return data.each(f"{metric}_{tenant}", mean, **cell) / _payload(cell[tenant])


def _shares(campaign: Campaign, data: Data) -> Table:
    rows = [
        [
            *(str(cell[k]) for k in ("direction", "a", "b", "control")),
            str(data.each("used", mean, **cell).size),
            *(_text(_share(data, t, cell), campaign.confidence) for t in "ab"),
            *(_text(_share(data, t, cell, "first"), campaign.confidence) for t in "ab"),
            _text(data.each("used", mean, **cell), campaign.confidence),
        ]
        for cell in _cells(data)
    ]
    header = [
        "direction",
        "A",
        "B",
        "control",
        "n",
        "A of its guarantee",
        "B of its guarantee",
        "A, first second",
    ]
    return Table(
        "What tenants got of their guarantees, and of what the link gives out",
        [*header, "B, first second", "link used"],
        rows,
        f"Payload, against the payload in a guarantee of full frames; link used: payload against frames. Intervals: "
        f"{percent(campaign.confidence)}, by bootstrap. A has 75% and B 25% of what the link gives out. The first second is "
        "that from the beginning of traffic, which the shares leave out.",
    )


def _figures(campaign: Campaign, data: Data) -> list[Figure]:
    """Return a picture of what each tenant got in each direction, then, and in the first second."""
    found = []
    cells = _cells(data)
    for tenant in "ab":
        for direction in data.levels("direction"):
            for metric, when in (("share", ""), ("first", ", in the first second")):
                here = [
                    c for c in cells if c["direction"] == direction and _share(data, tenant, c, metric).size
                ]
                if here:
                    caption = (
                        f"What tenant {tenant.upper()} got of its guarantee (the line), host 1 {direction}s{when}; a dot for "
                        "each repetition"
                    )
                    found.append(_figure(campaign, data, tenant, here, metric, caption))
    return found


def _figure(  # noqa: PLR0913
    campaign: Campaign, data: Data, tenant: str, cells: Sequence[dict[str, Factor]], metric: str, caption: str
) -> Figure:
    groups = list(dict.fromkeys((c["a"], c["b"]) for c in cells))
    series: dict[str, list[Floats]] = {}
    for control in data.levels("control"):
        of = {(c["a"], c["b"]): c for c in cells if c["control"] == control}
        series[str(control)] = [
            100 * _share(data, tenant, of[g], metric) if g in of else 100 * data.each("none", mean)
            for g in groups
        ]
    means = {
        c: [compare.bar(v, "ratio", campaign.confidence) for v in values] for c, values in series.items()
    }
    names = [f"A {a}, B {b}" for a, b in groups]
    return figures.dots(caption, names, series, means, "% of the guarantee", log=True, line=100.0)


def _text(values: Floats, confidence: float) -> str:
    if not values.size:
        return "-"
    if values.size < 2:
        return f"{float(values.mean()):.2f}"
    found = compare.within_range(values, "ratio", confidence)
    return interval(found.estimate, found.lower, found.upper, "ratio")
