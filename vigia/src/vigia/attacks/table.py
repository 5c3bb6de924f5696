"""The corpus's results as a table, for people and for docs/concepts/isolation.md."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vigia.attacks import experiment
from vigia.attacks.corpus import ATTACKS, CORPUS, LEGITIMATE
from vigia.attacks.experiment import AttackTrial
from vigia.errors import VigiaError
from vigia_statistics import mean_interval

__all__ = ["MARKS", "Row", "Say", "around", "summarise", "text", "write"]

Say = Callable[[str], None]

MARKS = ("<!-- made by make test-attacks -->", "<!-- end -->")

_HONEST = frozenset(e.name for e in LEGITIMATE)
_ORDER = {e.name: i for i, e in enumerate((*ATTACKS, *LEGITIMATE))}


@dataclass(frozen=True)
class Row:
    """All runs of an entry on a switch."""

    entry: str
    switch: str
    n: int
    victim: float
    """of its guarantee, mean of the runs"""
    half: float
    """half of the 95% t-interval of that; not a number for one run"""
    worst: float
    """the worst second of all runs"""
    limited: float | None
    """seconds to the first limit, median of the runs that had one"""
    latest: float | None
    """and the longest"""
    unlimited: int
    """runs without a limit"""
    offered: float
    lost: float
    probes_lost: float
    score: float
    load: float
    missed: int
    """runs that did not meet the requirement"""
    faults: Sequence[str]
    """what of the requirement was not met, of any run"""
    gap: str


def summarise(trials: Sequence[AttackTrial]) -> list[Row]:
    """Return a row for each entry and switch, in the corpus's order."""
    groups: dict[tuple[str, int], list[AttackTrial]] = {}
    for t in trials:
        groups.setdefault((t.switch, _ORDER[t.entry]), []).append(t)
    return [_row(group) for _, group in sorted(groups.items())]


def _row(group: Sequence[AttackTrial]) -> Row:
    entry = CORPUS[group[0].entry]
    shares = [t.victim for t in group]
    half = math.nan
    if len(group) > 1:
        found = mean_interval(shares)
        half = (found.upper - found.lower) / 2
    limited = [t.limited for t in group if t.limited is not None]
    each = [experiment.faults(entry, t, honest=entry.name in _HONEST) for t in group]
    bad = [f for found in each for f in found]
    return Row(
        entry=entry.name,
        switch=group[0].switch,
        n=len(group),
        victim=statistics.fmean(shares),
        half=half,
        worst=min(t.worst for t in group),
        limited=statistics.median(limited) if limited else None,
        latest=max(limited, default=None),
        unlimited=len(group) - len(limited),
        offered=statistics.fmean(t.offered for t in group),
        lost=max(t.lost for t in group),
        probes_lost=max(t.probes_lost for t in group),
        score=max(t.score for t in group),
        load=max(t.load for t in group),
        missed=sum(map(bool, each)),
        faults=list(dict.fromkeys(bad)),
        gap=entry.gaps.get(group[0].switch, ""),
    )


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.0f}"


def text(rows: Sequence[Row]) -> list[str]:
    """Return the table for a terminal."""
    lines = [
        f"\n{'switch':<11} {'entry':<25} {'n':>2} {'victim':>13} {'worst s':>7} {'limit ms':>9}"
        f" {'sent':>5} {'lost':>6} {'probes':>6} {'score':>5} {'load':>5}"
    ]
    for r in rows:
        verdict = "met" if not r.faults else "KNOWN GAP" if r.gap else "NOT MET"
        spread = "" if math.isnan(r.half) else f" ±{r.half:.2f}"
        lines.append(
            f"{r.switch:<11} {r.entry:<25} {r.n:>2} {r.victim:>7.2f}{spread:>6} {r.worst:>7.2f}"
            f" {_ms(r.limited):>9} {r.offered:>5.1f} {r.lost:>6.1%} {r.probes_lost:>6.1%} {r.score:>5.0f}"
            f" {r.load:>5.1f}  {verdict}"
        )
        lines += [f"{'':<12}{fault}" for fault in r.faults]
    return lines


_SWITCHES = {"linuxbridge": "Linux bridge, kernel VXLAN", "openvswitch": "Open vSwitch, userspace datapath"}


def _markdown(rows: Sequence[Row]) -> str:
    loads = [r.load for r in rows]
    lines = [
        f"{sum(r.n for r in rows)} runs on {os.cpu_count()} cores, load {min(loads):.1f} to {max(loads):.1f},"
        f" links of {experiment.LINK / 1e6:.0f} Mbit/s."
    ]
    for switch in dict.fromkeys(r.switch for r in rows):
        here = [r for r in rows if r.switch == switch]
        lines += ["", f"### {_SWITCHES[switch]}", ""]
        lines += [
            "| attack | sent, of its contract | n | victim, of its guarantee | worst second"
            " | limited after, ms | probes lost | requirement |",
            "|---|---|---|---|---|---|---|---|",
            *(_attack(r) for r in here if r.entry not in _HONEST),
            "",
            "| honest traffic | n | victim, of its guarantee | worst second"
            " | limited | lost | flood score, of 100 | requirement |",
            "|---|---|---|---|---|---|---|---|",
            *(_honest(r) for r in here if r.entry in _HONEST),
        ]
    return "\n".join(lines)


def _victim(r: Row) -> str:
    spread = "" if math.isnan(r.half) else f" ± {r.half:.2f}"
    return f"{r.n} | {r.victim:.2f}{spread} | {r.worst:.2f}"


def _verdict(r: Row) -> str:
    if not r.faults:
        return "met"
    gap = f"known gap: {r.gap}; " if r.gap else ""
    return f"{gap}not met in {r.missed} of {r.n} ({'; '.join(r.faults)})"


def _attack(r: Row) -> str:
    limited = _ms(r.limited) if r.latest == r.limited else f"{_ms(r.limited)}, at most {_ms(r.latest)}"
    if r.limited is not None and r.unlimited:
        limited += f"; {r.unlimited} needed none"
    what = CORPUS[r.entry].what
    return f"| {what} | {r.offered:.1f} | {_victim(r)} | {limited} | {r.probes_lost:.1%} | {_verdict(r)} |"


def _honest(r: Row) -> str:
    limited = f"{r.n - r.unlimited} of {r.n}"
    what = CORPUS[r.entry].what
    return f"| {what} | {_victim(r)} | {limited} | {r.lost:.1%} | {r.score:.0f} | {_verdict(r)} |"


def around(page: Path) -> tuple[str, str]:
    """Return what is before and behind the place of the table in a page. Raises VigiaError if it has none."""
    try:
        before, mark, rest = page.read_text().partition(MARKS[0])
    except (OSError, UnicodeDecodeError) as e:
        raise VigiaError(f"read {page}: {e}") from e
    _, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        raise VigiaError(f"{page} has no place for the table; write {MARKS[0]} and {MARKS[1]} into it")
    return before, after


def write(page: Path, rows: Sequence[Row]) -> None:
    """Put the table between the page's marks. Raises VigiaError if they are not there."""
    before, after = around(page)
    page.write_text(f"{before}{MARKS[0]}\n{_markdown(rows)}\n{MARKS[1]}{after}")
