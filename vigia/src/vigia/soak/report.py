"""The page of a soak, in Markdown, and its pictures."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from vigia.report import figures
from vigia.report.document import Figure
from vigia.soak import churn
from vigia.soak.judgement import Judgement, Slope, warm_up
from vigia.soak.record import SoakRecord
from vigia.soak.trend import CONFIDENCE, FEWEST_BLOCKS
from vigia_text import numbers, tables

__all__ = ["as_page", "as_text", "pictures", "write"]

_LONG_ENOUGH = 3.0
"""Hours from which on a soak says something of months."""

_PICTURES = (
    ("memory", "Anonymous memory of each kind of process, MiB", "memory_bytes", 2.0**20, "MiB"),
    ("descriptors", "Descriptors of each kind of process", "descriptors", 1.0, "descriptors"),
    ("store", "Prometheus on disk, MiB", "store_bytes wal_bytes", 2.0**20, "MiB"),
    ("rules", "Seconds of an evaluation by the interval of its rule group, %", "rule_share", 0.01, "%"),
)
"""Name, caption, quantities, what a unit of the picture is, and its name."""


def as_text(found: Judgement) -> str:
    """Return the verdict for people on a terminal."""
    lines = [_verdict(found)]
    lines += [f"grows: {s.limit.quantity} of {s.subject}: {_numbers(s)}" for s in found.growing]
    lines += [f"cannot do: {e.what}: {e.detail}" for e in found.failures[:10]]
    header = ("quantity", "nearest to its limit", "per hour", "limit", "verdict")
    return "\n".join([*lines, "", tables.table(header, _rows(found))])


def write(record: SoakRecord, found: Judgement, file: Path) -> Path:
    """Write the page, and its pictures beside it into a folder of the page's name; return the page."""
    folder = file.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    shown = []
    for name, figure in pictures(record):
        (folder / f"{name}.svg").write_text('<?xml version="1.0" encoding="utf-8"?>\n' + figure.svg)
        shown.append((f"{folder.name}/{name}.svg", figure.caption))
    file.write_text(as_page(record, found, shown))
    return file


def pictures(record: SoakRecord) -> list[tuple[str, Figure]]:
    """Return the pictures and their names; what was not sampled has none. Floods are dotted lines."""
    series = record.series()
    shown = _drawn(subject for _, subject in series)
    floods = [(e.at - record.plan.begun) / 3600 for e in record.events if e.what == "flood"]
    made = []
    for name, caption, quantities, unit, word in _PICTURES:
        wanted = quantities.split()
        drawn = {
            (subject if len(wanted) == 1 else quantity): (hours, values / unit)
            for (quantity, subject), (hours, values) in series.items()
            if quantity in wanted and subject in shown
        }
        if drawn:
            made.append((name, figures.courses(caption, drawn, word, marks=floods)))
    return made


def _drawn(subjects: Iterable[str]) -> set[str]:
    """Return who is drawn: the processes of the site, and of each program of nodes the one of the first node."""
    first: dict[tuple[str, bool], str] = {}
    for subject in sorted(subjects):
        program, at, _ = subject.partition("@")
        first.setdefault((program, bool(at)), subject)
    return set(first.values())


def as_page(record: SoakRecord, found: Judgement, shown: Iterable[tuple[str, str]]) -> str:
    """Return the page; shown are the files of the pictures and their captions."""
    plan = record.plan
    judged = sum(s.verdict != "too short" for s in found.slopes)
    events = sum(found.done.values()) + len(found.failures)
    loads = sorted(s.load for s in record.samples) or [0.0]
    parts = [
        "# Soak: what grows in a stack that is left on",
        "",
        "Made by `vigia soak report DIR --page FILE.md`. `make soak HOURS=n` makes such a run: the lab of the demo under a",
        "name and addresses of its own, with the whole stack, under churn; see `vigia soak --help`.",
        "",
        "## What was run",
        "",
        *_caution(record),
        f"{found.hours:.2f} h of {plan.hours:g} h, from {_instant(plan.begun)}; vigia {plan.version}, "
        f"{plan.processors} processors with a load average of {loads[len(loads) // 2]:g} (median), "
        f"{loads[-1]:g} at most; {len(record.samples)} samples, one every {plan.sample_seconds:g} s; "
        f"{events} pieces of churn.",
        "",
        f"**{_verdict(found)}**",
        "",
        *_faults(found),
        "## Slopes",
        "",
        f"{judged} of {len(found.slopes)} slopes are judged; of each quantity the one that is nearest to its limit "
        f"is here, with its interval ({numbers.MISSING}: no end is known, for there are too few blocks):",
        "",
        *_markdown(("quantity", "nearest to its limit", "per hour", "limit", "verdict"), _rows(found)),
        "",
        *_gaps(found),
        *_images(shown),
        *_method(record),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _caution(record: SoakRecord) -> list[str]:
    if record.hours >= _LONG_ENOUGH:
        return []
    return [
        f"**A short run ({record.hours * 60:.0f} minutes): it shows that the soak works, and what leaks fast. What grows "
        f"slowly takes {_LONG_ENOUGH:g} hours or more.**",
        "",
    ]


def _faults(found: Judgement) -> list[str]:
    grown = [f"- `{s.limit.quantity}` of {s.subject} grows: {_numbers(s)}" for s in found.growing]
    failed = [f"- {e.what}, {_instant(e.at)}: {e.detail}" for e in found.failures]
    return [*grown, *failed, ""] if grown or failed else []


def _verdict(found: Judgement) -> str:
    if found.passed:
        late = sum(s.verdict == "too short" for s in found.slopes)
        rest = f"; {late} slopes need a longer run" if late else ""
        return f"Passed: nothing that was judged grows faster than it may, nothing ended, all churn was done{rest}."
    faults = [
        f"{len(found.growing)} slopes above their limits" if found.growing else "",
        f"{found.restarts} restarts" if found.restarts else "",
        f"{len(found.failures)} pieces of churn failed" if found.failures else "",
    ]
    return f"Failed: {', '.join(f for f in faults if f) or 'the run is too short to judge anything'}."


def _numbers(s: Slope) -> str:
    """Return the slope with its interval, in one unit."""
    if s.trend is None:
        return numbers.MISSING
    if s.trend.slope == s.trend.lower == s.trend.upper == 0:
        return "0"  # of whatever unit
    return numbers.interval(s.trend.slope, s.trend.lower, s.trend.upper, s.limit.unit)


def _rows(found: Judgement) -> list[tuple[str, ...]]:
    """Return a row for each limit: the subject whose slope is nearest to it."""
    by_limit: dict[int, list[Slope]] = defaultdict(list)
    for s in found.slopes:
        by_limit[id(s.limit)].append(s)
    rows: list[tuple[str, ...]] = []
    for slopes in by_limit.values():
        worst = max(slopes, key=lambda s: (s.nearness, s.trend.slope if s.trend else -math.inf))
        others = f" (of {len(slopes)})" if len(slopes) > 1 else ""
        grown = sum(s.verdict == "grows" for s in slopes)
        verdict = f"{grown} grow" if grown > 1 else worst.reason or worst.verdict
        limit = numbers.quantity(worst.limit.per_hour, worst.limit.unit)
        rows.append((worst.limit.quantity, worst.subject + others, _numbers(worst), limit, verdict))
    return rows


def _markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    rule = tuple("---" for _ in header)
    return ["| " + " | ".join(row) + " |" for row in (header, rule, *rows)]


def _gaps(found: Judgement) -> list[str]:
    if not found.gaps:
        return []
    said = ", ".join(f"{subject} in {count}" for subject, count in found.gaps.items())
    return [f"Not everything could be read in every sample: {said}.", ""]


def _images(shown: Iterable[tuple[str, str]]) -> list[str]:
    lines = []
    for file, caption in shown:
        lines += [f"{caption}; dotted: floods.", "", f"![{caption}]({file})", ""]
    return ["## Pictures", "", "Of the agents those of one node are drawn.", "", *lines] if lines else []


def _method(record: SoakRecord) -> list[str]:
    left_out = warm_up(record.hours) * 60
    return [
        "## How it is done",
        "",
        f"A port is plugged into a node or unplugged every {churn.PORT_SECONDS:g} s, always under a new name; a target of a",
        f"probe comes or goes every {churn.TARGET_SECONDS:g} s; every program is reloaded every {churn.RELOAD_SECONDS:g} s; a tenant floods",
        f"with {churn.FLOOD_RATE}/s for {churn.FLOOD_SECONDS:g} s every {record.plan.flood_seconds:g} s, and must be limited and released. Churn that fails, and a",
        "service that has to be started again, fail the soak as well.",
        "",
        f"The first {left_out:.0f} minutes are left out. The rest is cut into blocks as long as from flood to flood, or into",
        f"{FEWEST_BLOCKS} in a shorter run, and each block stands for its median. The slope is the median of the slopes between",
        f"all pairs of blocks (Theil and Sen), its interval of {CONFIDENCE * 100:g} % allows for the dependence of neighbouring",
        "blocks. A soak fails where the lower end of an interval is above the limit: where it is nearly certain",
        "that the quantity grows too fast. Limits are a table in `vigia/src/vigia/soak/limits.py`, with the reason for each",
        "and the length of run that judges it: memory settles within an hour, Prometheus's head and log within four.",
        "",
        "`samples.jsonl` and `events.jsonl` in the folder of a run have every sample and every piece of churn; they grow line",
        "by line, so that `vigia soak report DIR` reads a run that was interrupted, or is still going on.",
    ]


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
