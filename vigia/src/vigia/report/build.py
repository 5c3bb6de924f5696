"""Making a campaign's report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vigia.campaign.folder import Folder
from vigia.campaign.model import Campaign, Settings
from vigia.campaign.samples import Record
from vigia.errors import VigiaError
from vigia.report import figures, page
from vigia.report.data import Data, load
from vigia.report.document import Document, Figure, Section, Table

__all__ = ["Build", "assemble", "write"]

Build = Callable[[Campaign, Data], Document]
"""Makes a study's own part of a report."""


def assemble(folder: Folder, build: Build, scale: str) -> Document:
    """Return the report of what was measured so far. Raises VigiaError if nothing was.

    scale says to what rates are scaled; it is empty where they are not.
    """
    data = load(folder)
    if not data.repetitions:
        raise VigiaError(f"{folder.name} has no repetition that succeeded; see {folder.path}/runs")
    own = build(folder.campaign, data)
    return replace(own, sections=[*own.sections, _method(folder, scale)], facts=_facts(folder))


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


def _method(folder: Folder, scale: str) -> Section:
    campaign, plan = folder.campaign, folder.plan
    failed = [r for r in folder.records if r.status == "failed"]
    done = len(folder.records) - len(failed)
    stop = plan.stop
    until = f", or until the interval of {stop.metric} is within {stop.until:.0%}" if stop.until else ""
    s = plan.settings
    events = [e for r in folder.records for e in r.events]
    loads = [x for r in folder.records for x in r.load]
    paragraphs = [
        f"{len(plan.cells())} combinations, {stop.repetitions} repetitions of each{until}, in blocks that hold every "
        f"combination once, order {campaign.order} (seed {campaign.seed}). {done} repetitions were done, "
        f"{len(failed)} failed, {len(plan.cells()) * stop.repetitions - len(folder.records)} were not made.",
        f"Scale: {scale}." if scale else _settings(s),
        "The repetition is the experimental unit: packets within one are not independent. Intervals of means are "
        "Student's, of medians exact order statistics, of differences Hodges-Lehmann with Moses' interval; tests are "
        "Mann-Whitney, adjusted by Holm. A winner is named only where the tests separate.",
        f"Load average (1 min) during the campaign: {min(loads):.2f} to {max(loads):.2f}.",
    ]
    tables = []
    if failed:
        rows = [[str(r.run), " ".join(map(str, r.factors.values())), r.reason] for r in failed]
        tables.append(Table("Failed repetitions", ["run", "combination", "reason"], rows))
    if events:
        tables.append(_events(events))
    return Section("Method", paragraphs, tables, [_timeline(folder.records, events)] if events else ())


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


def _settings(s: Settings) -> str:
    return (
        f"Settings: {s.duration:g} s of traffic, packets timed after {s.warm_up:g} s of it, {math.ceil(s.warm_up)} s left out "
        f"of throughput, {s.threads} threads, {s.buffer} bytes of buffer, messages of {s.message} bytes, timed packets "
        f"every {s.interval * 1e3:g} ms."
    )


def _facts(folder: Folder) -> list[tuple[str, str]]:
    m = folder.manifest
    e = m["environment"]
    bed = m.get("bed", {})
    size = "full" if folder.full else "small"
    facts = [
        ("campaign", f"{folder.name}, {size} size, {m['state']}"),
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
