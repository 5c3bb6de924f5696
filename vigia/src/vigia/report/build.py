"""Making a campaign's report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vigia.campaign import design
from vigia.campaign.folder import Folder
from vigia.campaign.hypotheses import Bound, Hypothesis
from vigia.campaign.model import Campaign
from vigia.campaign.samples import Record
from vigia.errors import VigiaError
from vigia.report import figures, page
from vigia.report.answers import Answer, Said, evaluate, place
from vigia.report.data import Completed, Data, joined, load
from vigia.report.document import Document, Figure, Section, Table
from vigia_text.numbers import percent, probability

__all__ = ["Basis", "Build", "assemble", "write"]

Build = Callable[[Campaign, Data], Document]
"""Makes a study's own part of a report."""


@dataclass(frozen=True)
class Basis:
    """What a study gives to the report of a campaign."""

    build: Build
    hypotheses: Sequence[Hypothesis]
    """What is tested: the campaign's own, or those of its study."""
    settings: str
    """How one repetition was made."""
    completed: Completed


def assemble(folder: Folder, basis: Basis, beside: Sequence[Folder] = ()) -> Document:
    """Return the report of what was measured so far. Raises VigiaError if nothing was.

    beside are runs of the same campaign on other paths: they are reported as if it were one run, and it says so.
    """
    data = _all(folder, beside, basis.completed)
    campaign = folder.campaign.model_copy(update={"hypotheses": list(basis.hypotheses)})
    own = basis.build(campaign, data)
    found = list(evaluate(campaign.hypotheses, data, campaign.confidence).values())
    sections = [
        *own.sections,
        _tests(campaign, data, [f for family in found for f in family]),
        _design(folder, campaign, data),
        *(_method(f, basis.settings, alone=not beside) for f in (folder, *beside)),
    ]
    sure = [*own.summary.sure, *_sure(folder, campaign, data, found), *_apart(folder, beside)]
    facts = [*_facts(folder), *(("beside it", _run(f)) for f in beside)]
    return replace(own, sections=sections, summary=replace(own.summary, sure=sure), facts=facts)


def _all(folder: Folder, beside: Sequence[Folder], completed: Completed) -> Data:
    parts = []
    paths: dict[Any, str] = {}
    for f in (folder, *beside):
        if (f.campaign.study, f.plan.settings) != (folder.campaign.study, folder.plan.settings):
            raise VigiaError(
                f"{f.name} and {folder.name} did not measure the same in the same way; report each alone, or run "
                "the same campaign in the same size"
            )
        part = load(f, completed)
        if not part.repetitions:
            raise VigiaError(f"{f.name} has no repetition that succeeded; see {f.path}/runs")
        if beside and not part.levels("path"):
            raise VigiaError(f"{f.name} has no paths by which runs could be told apart; report it alone")
        for path in part.levels("path"):
            if path in paths:
                raise VigiaError(
                    f"{paths[path]} and {f.name} both measured {path}; report each alone, or use: vigia campaign compare"
                )
            paths[path] = f.name
        parts.append(part)
    return joined(parts)


def _apart(folder: Folder, beside: Sequence[Folder]) -> Sequence[str]:
    """Say what two runs beside each other are not."""
    if not beside:
        return []
    runs = " and ".join(_run(f) for f in (folder, *beside))
    return [
        f"It is of {len(beside) + 1} runs, {runs}: what differs between paths of one run was randomised in time, what differs "
        "between runs was not, and a block pairs their repetitions by number alone."
    ]


def _run(folder: Folder) -> str:
    paths = ", ".join(dict.fromkeys(str(c["path"]) for c in folder.plan.cells() if "path" in c))
    return f"{folder.name} ({paths}; began {folder.manifest['began']})"


def write(folder: Folder, document: Document, *, pdf: bool) -> list[Path]:
    """Write report.html, report.pdf and runs.json into the campaign's folder; return the reports."""
    text = page.html(document)
    records = folder.path / "runs.json"
    records.write_text(json.dumps([asdict(r) for r in folder.records], indent=1) + "\n")
    files = [folder.path / "report.html"]
    files[0].write_text(text)
    if pdf:
        files.append(folder.path / "report.pdf")
        page.write_pdf(text, files[1])
    return files


def _sure(folder: Folder, campaign: Campaign, data: Data, found: Sequence[Sequence[Answer]]) -> Sequence[str]:
    """Say what the tests could and could not tell."""
    asked = [f for family in found for f in family]
    counted = {o: sum(f.outcome is o for f in asked) for o in Said}
    told = counted[Said.ABOVE] + counted[Said.BELOW]
    lines = [
        f"{len(asked)} comparisons were stated as hypotheses: {told} are decided, {counted[Said.EQUAL]} are equivalent "
        f"within the margin, {counted[Said.OPEN]} are undecided, {counted[Said.TOO_FEW]} have too few repetitions, "
        f"{counted[Said.FAILED]} rest on a measurement that failed."
    ]
    if folder.size == "smoke":
        lines.append("This was a smoke run: it shows that the campaign runs, and answers nothing.")
    if not folder.campaign.hypotheses:
        lines.append(
            "The hypotheses, margins and smallest effects were written after this was measured: it is a re-analysis, "
            "not a test of what was foretold."
        )
    weak = [a.hypothesis.name for a in _abilities(campaign, data) if not a.enough]
    if weak:
        lines.append(
            f"With {len(data.blocks)} repetitions the power to see the smallest effect of interest is below "
            f"{percent(design.POWER)} for {', '.join(weak)}: that nothing was found there means little."
        )
    return lines


def _abilities(campaign: Campaign, data: Data) -> list[design.Ability]:
    return design.abilities(campaign.hypotheses, data.cells, len(data.blocks), campaign.confidence)


def _tests(campaign: Campaign, data: Data, found: Sequence[Answer]) -> Section:
    rows = []
    for f in found:
        q, h = f.question, f.hypothesis
        family = [other for other in found if other.hypothesis is h]
        compared = f"{q.first} beside {q.second}" if q.first else ""
        where = " ".join(part for part in (place(q, family), compared) if part)
        p = "–" if isinstance(h.test, Bound) else probability(f.adjusted)
        rows.append([h.name, where or "–", str(f.values.size), f.shown, p, f.verdict])
    table = Table(
        "Every comparison",
        ["hypothesis", "where", "blocks", "effect", "p (Holm)", "verdict"],
        rows,
        "The effect is the first beside the second: a ratio (×) or a difference; of a trend, per ten times as much; of "
        "a bound, the value itself. Hodges-Lehmann estimate over blocks with Tukey's interval, so wide that all "
        f"intervals of a hypothesis hold together with {percent(campaign.confidence)} (Bonferroni). Decided: the whole "
        "interval beyond the margin. Equivalent: all of it within. A bound is one-sided and every cell must reach it, so it needs "
        "no correction. p: Wilcoxon signed-rank, adjusted by Holm.",
    )
    return Section("Tests", tables=[table])


def _design(folder: Folder, campaign: Campaign, data: Data) -> Section:
    rows = [
        [
            a.hypothesis.name,
            a.hypothesis.claim,
            str(a.questions),
            a.hypothesis.shown(a.hypothesis.smallest_effect),
            "–" if isinstance(a.hypothesis.test, Bound) else a.hypothesis.shown(a.hypothesis.margin),
            a.hypothesis.shown(a.hypothesis.spread),
            f"{a.power:.2f}",
            "more than 200" if a.needed is None else str(a.needed),
        ]
        for a in _abilities(campaign, data)
    ]
    table = Table(
        f"Hypotheses, and what {len(data.blocks)} blocks can find",
        [
            "hypothesis",
            "claim",
            "comparisons",
            "smallest effect",
            "margin",
            "spread",
            "power",
            "blocks needed",
        ],
        rows,
        "The unit is the repetition, compared within its block. Power: part of 2000 simulated campaigns in which the "
        "smallest effect of interest is found, with the spread between repetitions that a pilot had, and with the interval "
        f"that decides. Blocks needed: for a power of {design.POWER}.",
    )
    return Section("Design", tables=[table])


def _method(folder: Folder, settings: str, *, alone: bool) -> Section:
    campaign, plan = folder.campaign, folder.plan
    failed = [r for r in folder.records if r.status == "failed"]
    done = len(folder.records) - len(failed)
    stop = plan.stop
    until = f", or until the interval of {stop.metric} is within {stop.until:.0%}" if stop.until else ""
    events = [e for r in folder.records for e in r.events]
    loads = [x for r in folder.records for x in r.load]
    paragraphs = [
        f"{len(plan.cells())} combinations, {stop.repetitions} repetitions of each{until}, in blocks that hold every "
        f"combination once, order {campaign.order} (seed {campaign.seed}). {done} repetitions were done, "
        f"{len(failed)} failed, {len(plan.cells()) * stop.repetitions - len(folder.records)} were not made.",
        f"Each repetition: {settings}.",
        "The repetition is the experimental unit: packets within one are not independent. Means of times and rates are "
        "geometric with Student's interval on the log scale, means of ratios arithmetic with a bootstrap interval, so "
        "that none leaves the possible range; intervals of medians are exact order statistics.",
        f"Load average (1 min) during the campaign: {min(loads):.2f} to {max(loads):.2f}.",
    ]
    tables = []
    if failed:
        rows = [[str(r.run), " ".join(map(str, r.factors.values())), r.reason] for r in failed]
        tables.append(Table("Failed repetitions", ["run", "combination", "reason"], rows))
    if events:
        tables.append(_events(events))
    title = "Method" if alone else f"Method of {_run(folder)}"
    return Section(title, paragraphs, tables, [_timeline(folder.records, events)] if events else ())


def _events(events: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [str(number), f"{datetime.fromtimestamp(e['at'], UTC):%H:%M:%S.%f}"[:-3], str(e["what"])]
        for number, e in enumerate(events, start=1)
    ]
    return Table("What happened meanwhile", ["mark", "time (UTC)", "what"], rows)


def _timeline(records: Sequence[Record], events: Sequence[Mapping[str, Any]]) -> Figure:
    """Repetitions by the level of their first factor, and the marks of the events across them."""
    start = min(r.began for r in records)
    runs: dict[str, list[tuple[float, float]]] = {}
    for r in sorted(records, key=lambda r: r.began):
        begin = (r.began - start) / 60
        runs.setdefault(str(next(iter(r.factors.values()))), []).append((begin, begin + r.seconds / 60))
    marks = [((e["at"] - start) / 60, str(e["what"])) for e in events]
    return figures.timeline("When what was measured; the numbers are those of the table above", runs, marks)


def _facts(folder: Folder) -> list[tuple[str, str]]:
    m = folder.manifest
    e = m["environment"]
    bed = m.get("bed", {})
    facts = [
        ("campaign", f"{folder.name}, {folder.size} size, {m['state']}"),
        ("began", m["began"]),
        ("where", f"{bed.get('kind', 'unknown')} {bed.get('name', '')}".strip()),
        ("Open vSwitch datapath", bed.get("ovs_datapath", "–")),
        ("kernel", f"{e['system']}, {e['kernel']}, {e['machine']}"),
        ("machine", f"{e['processors']} × {e['processor']}, {e['memory_bytes'] / 2**30:.1f} GiB"),
        ("congestion control", e["congestion_control"]),
        ("versions", "; ".join(e["versions"].values())),
        ("revision", e["revision"] or "–"),
    ]
    return [(name, str(value)) for name, value in facts]
