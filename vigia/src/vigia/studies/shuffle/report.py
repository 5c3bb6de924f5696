"""E5, experiment B: how long a job took, by competitors, by guarantee, by how tenants were kept apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vigia.campaign.model import Campaign, Factor
from vigia.report import compare, figures
from vigia.report.answers import Answer, Said, capital, evaluate, sureness
from vigia.report.data import Data, Floats, mean, published
from vigia.report.document import Document, Figure, Section, Summary, Table
from vigia_text.numbers import percent, seconds, span

__all__ = ["build"]

_NAMES = {"tcp-10": "pairs of 10 TCP flows", "udp-1": "pairs of one UDP flood"}
_NONE: Mapping[str, Factor] = {"against": "none", "control": "none"}

_Found = Mapping[str, Sequence[Answer]]


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    found = evaluate(campaign.hypotheses, data, campaign.confidence)
    rows = [row for cell in _cells(data) if (row := _row(cell, campaign, data, found))]
    table = Table(
        "Time until the last machine of the job had everything",
        [
            "against",
            "guarantee",
            "control",
            "n",
            "given up",
            "job",
            "× alone",
            "× rigid",
            "of its guarantee",
            "competitors",
        ],
        rows,
        f"Intervals: {percent(campaign.confidence)}; ratios compared within blocks, so wide that all of a hypothesis hold "
        "together. × alone: the same control and guarantee without competitors; × rigid: rigid limits at the same guarantee. A "
        "job that was given up has no time: where any was, no mean is given, for it would be that of the quick ones. Of its "
        "guarantee: payload that the job's machines received on average until the last one was done, against a guarantee in "
        "frames; competitors: the same of theirs while the job ran.",
    )
    reference = Table(
        "Published: 26 hosts with links of 1 Gbit/s, a Hadoop job",
        ["competitors", "job s"],
        [[r["competitors"], r["job_s"]] for r in published("shuffle", "job")],
        "The study found borrowing alone as good as its notices under TCP, and broken under UDP; against rigid limits its "
        "job was about 8 % slower with a guarantee of 75%, and faster with 25%.",
    )
    drawn = [_times_figure(campaign, data), *_slowdown_figure(data)] if rows else []
    section = Section("The job", tables=[table, reference], figures=drawn)
    return Document(campaign.title, campaign.question, _answer(data, found), [section], _summary(data, found))


def _cells(data: Data) -> list[dict[str, Factor]]:
    return [
        {"against": against, "guarantee": guarantee, "control": control}
        for against in data.levels("against")
        for guarantee in sorted(data.levels("guarantee"), key=int)
        for control in data.levels("control")
    ]


def _times(data: Data, **cell: Factor) -> Floats:
    return data.each("job", mean, **cell)


def _given_up(data: Data, **cell: Factor) -> int:
    """Return how many jobs have no time: their time is longer than was waited."""
    return int(data.each("fetched", mean, **cell).size - _times(data, **cell).size)


def _beside(found: _Found, name: str, cell: Mapping[str, Factor], factor: str) -> Answer | None:
    """Return how a cell stands beside the reference of a hypothesis."""
    for f in found.get(name, []):
        shared = all(str(cell[k]) == str(v) for k, v in f.question.stratum.items())
        if shared and f.question.first == str(cell[factor]):
            return f
    return None


def _row(cell: dict[str, Factor], campaign: Campaign, data: Data, found: _Found) -> list[str]:
    shares = data.each("share_job", mean, **cell)
    if not shares.size:
        return []
    times, given_up = _times(data, **cell), _given_up(data, **cell)
    beside = [
        _beside(found, "by_neighbour", cell, "against"),
        _beside(found, "beside_rigid", cell, "control"),
    ]
    free = cell["control"] == "none"
    worst = float(data.each("fetched", mean, **cell).min())
    return [
        str(cell["against"]),
        "–" if free else f"{cell['guarantee']}%",
        str(cell["control"]),
        str(shares.size),
        f"{given_up}, at {percent(worst)}" if given_up else "0",
        "–" if given_up else compare.mean_text(times, "s", campaign.confidence),
        *("–" if f is None else f.shown for f in beside),
        "–" if free else compare.mean_text(shares, "ratio", campaign.confidence),
        "–"
        if free
        else compare.mean_text(data.each("share_other", mean, **cell), "ratio", campaign.confidence),
    ]


def _times_figure(campaign: Campaign, data: Data) -> Figure:
    groups = [
        (a, g)
        for a in data.levels("against")
        for g in sorted(data.levels("guarantee"), key=int)
        if any(_times(data, against=a, guarantee=g, control=c).size for c in data.levels("control"))
    ]
    series = {
        str(c): [_times(data, against=a, guarantee=g, control=c) for a, g in groups]
        for c in data.levels("control")
    }
    whole = {
        str(c): [
            None
            if _given_up(data, against=a, guarantee=g, control=c)
            else compare.bar(v, "s", campaign.confidence)
            for (a, g), v in zip(groups, series[str(c)], strict=True)
        ]
        for c in data.levels("control")
    }
    names = [f"{a}, {g}%" for a, g in groups]
    return figures.dots(
        "Time of the job, a dot for each repetition that was not given up", names, series, whole, "s"
    )


def _slowdown_figure(data: Data) -> list[Figure]:
    """Return how much longer the job takes without control, beside the published slowdown: both are ratios."""
    alone = _times(data, **_NONE)
    if not alone.size:
        return []
    groups = [str(a) for a in data.levels("against") if a in _NAMES]
    ours = [_times(data, against=a, control="none") / mean(alone) for a in groups]
    bars = [
        None if _given_up(data, against=a, control="none") else compare.bar(v, "", 0.95)
        for a, v in zip(groups, ours, strict=True)
    ]
    theirs = {r["competitors"]: float(r["job_s"]) for r in published("shuffle", "job")}
    known: list[float | None] = [
        theirs["13 pairs of 10 TCP flows"] / theirs["none"] if a == "tcp-10" else None for a in groups
    ]
    caption = "Slowdown of the job without control; the published one beside ours"
    drawn = figures.dots(
        caption, groups, {"ours": ours}, {"ours": bars}, "× alone", published={"published": known}
    )
    return [drawn] if groups else []


def _answer(data: Data, found: _Found) -> str:
    alone = _times(data, **_NONE)
    parts = [f"alone the job takes {seconds(mean(alone))}"] if alone.size else []
    parts += [said for a in data.levels("against") if a in _NAMES and (said := _against(data, found, str(a)))]
    if not parts:
        return "No repetition of the job succeeded."
    under = f"{data.conditions}: " if data.conditions else ""
    binds = _binding(found)
    return capital(f"{under}{'; '.join(parts)}.") + (f" {binds}" if binds else "")


def _binding(found: _Found) -> str:
    asked = found.get("binds", [])
    below = [f for f in asked if f.outcome is Said.BELOW]
    if below:
        worst = min(below, key=lambda f: f.estimate)
        return (
            f"The guarantee does not bind: even under rigid limits the job gets {percent(worst.effect[0])} of it, so the controls "
            "cannot be told apart by it."
        )
    if asked and all(f.outcome is Said.ABOVE for f in asked):
        return "The guarantee binds: under rigid limits the job gets what it bought."
    known = [f.effect[0] for f in asked if f.values.size > 1]
    if not known:
        return ""
    return f"Whether the guarantee binds is open: under rigid limits the job got {span(min(known), max(known), 'ratio')} of it."


def _against(data: Data, found: _Found, against: str) -> str:
    """Say how much longer the job takes without control, and with each control beside rigid limits."""
    made = data.each("fetched", mean, against=against, control="none").size
    given_up = _given_up(data, against=against, control="none")
    free = next(
        (f for f in found.get("by_neighbour", []) if f.question.first == against and _without(f)), None
    )
    parts = []
    if given_up:
        parts.append(f"without control {given_up} of {made} jobs were given up, so its time is not known")
    elif made and free is not None:
        parts.append(f"without control it takes {free.shown} of its time alone")
    beside, few = [], []
    for control in data.levels("control"):
        here = [
            f
            for f in found.get("beside_rigid", [])
            if f.question.first == str(control) and _stratum(f, "against") == against
        ]
        if here and all(f.outcome is Said.TOO_FEW for f in here):
            few.append(str(control))
        elif here:
            shown = ", ".join(f"{f.shown} at {_stratum(f, 'guarantee')}%" for f in here)
            beside.append(f"{control} {shown}")
    if beside:
        parts.append(f"beside rigid limits {'; '.join(beside)}")
    if few:
        parts.append(f"{', '.join(few)} have too few repetitions to be compared with rigid limits")
    return f"against {_NAMES[against]} {', '.join(parts)}" if parts else ""


def _without(f: Answer) -> bool:
    return _stratum(f, "control") == "none"


def _stratum(f: Answer, name: str) -> str:
    return str(f.question.stratum.get(name))


def _summary(data: Data, found: _Found) -> Summary:
    lines = []
    if binds := _binding(found):
        lines.append(binds)
    for name, what in (
        ("by_neighbour", "among competitors beside alone"),
        ("beside_rigid", "beside rigid limits"),
    ):
        for outcome in dict.fromkeys(f.outcome for f in found.get(name, [])):
            here = [f for f in found[name] if f.outcome is outcome]
            places = ", ".join(f"{_place(f)} {f.shown}" for f in here)
            word = {Said.ABOVE: "longer", Said.BELOW: "shorter"}.get(outcome, str(outcome))
            lines.append(f"Time {what}: {word} in {len(here)}: {places}.")
    given_up = sum(_given_up(data, **c) for c in _cells(data))
    silent = ["Anything about Hadoop: the job only shuffles, and neither maps nor writes."]
    if given_up:
        silent.append(
            f"How long {given_up} jobs would have taken: they were given up after {data.settings.duration:g} s."
        )
    silent.append("Anything at 1 Gbit/s: links are scaled down.")
    paper = (
        "without control the job goes from 41 s to 75 s under TCP (1.8 times); borrowing alone is as good as the notices under "
        "TCP and broken under UDP; the notices hold under both"
    )
    return Summary(lines, [], silent, paper, _agreement(data, found), _confidence(found))


def _place(f: Answer) -> str:
    names = [str(v) for v in f.question.stratum.values()]
    return " ".join([f.question.first, *names])


def _agreement(data: Data, found: _Found) -> str:
    binding = found.get("binds", [])
    if any(f.outcome is Said.BELOW for f in binding):
        return "open: the guarantee did not bind here, so the controls cannot be compared with the study's"
    slower = [f for f in found.get("by_neighbour", []) if _without(f)]
    beside = {
        a: [
            f
            for f in found.get("beside_rigid", [])
            if f.question.first == "borrowing" and _stratum(f, "against") == a
        ]
        for a in _NAMES
    }
    if not slower or any(f.outcome in (Said.OPEN, Said.TOO_FEW, Said.FAILED) for f in slower):
        return "open: the slowdown without control is not decided"
    theirs = [all(f.outcome is Said.ABOVE for f in slower)]
    if all(beside.values()):
        theirs.append(all(f.outcome is not Said.ABOVE for f in beside["tcp-10"]))
        theirs.append(any(f.outcome is Said.ABOVE for f in beside["udp-1"]))
    word = "agrees" if all(theirs) else "partly agrees" if any(theirs) else "disagrees"
    return f"{word}: {sum(theirs)} of {len(theirs)} findings of the study are seen here (slower without control, borrowing under TCP and UDP)"


def _confidence(found: _Found) -> str:
    if any(f.outcome is Said.BELOW for f in found.get("binds", [])):
        return "none on the controls: the guarantee did not bind"
    asked = [f for family in found.values() for f in family]
    decided = sum(f.outcome in (Said.ABOVE, Said.BELOW, Said.EQUAL) for f in asked)
    return sureness(decided, len(asked), "comparisons")
