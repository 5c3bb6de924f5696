"""The tables: for a terminal, as Markdown, and between the marks of docs/concepts/performance.md."""

from __future__ import annotations

import datetime
import math
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sidebyside.figures import Figure, Growth, ratio
from sidebyside.part import ROOT

__all__ = ["MARKS", "PAGE", "Environment", "markdown", "sections", "terminal", "write"]

MARKS = ("<!-- made by make bench -->", "<!-- end of make bench -->")
PAGE = ROOT / "docs/concepts/performance.md"
PACKAGES = ("fping", "prometheus-blackbox-exporter", "prometheus-node-exporter", "fastnetmon")


@dataclass(frozen=True)
class Environment:
    """Where and when figures were taken."""

    date: str
    revision: str
    kernel: str
    processors: int
    model: str
    memory_gib: float
    loads: Sequence[float]
    """load averages before and after every part"""
    peers: Mapping[str, str]
    """version of each peer's Debian package; empty where it is missing"""

    def words(self) -> str:
        """Return it as a sentence."""
        peers = ", ".join(f"{name} {version or 'missing'}" for name, version in self.peers.items())
        return (
            f"{self.date}, revision {self.revision}, Linux {self.kernel}, {self.processors} processors ({self.model}),"
            f" {self.memory_gib:.0f} GiB, load {min(self.loads):.1f} to {max(self.loads):.1f}. Peers: {peers}."
        )

    def caveat(self) -> str:
        """Return what a load beyond the processors does to figures; nothing if there was none."""
        if max(self.loads) <= self.processors:
            return ""
        return (
            " The machine was shared: a quiet run is outstanding for whatever is a time of the wall"
            " (delays, starts, time to name an attacker); processor times and ratios within one run stand."
        )


def environment(loads: Sequence[float]) -> Environment:
    """Return this machine's."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    models = [
        line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    revision = _said("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*") or "unknown"
    peers = {p: _said("dpkg-query", "-W", "-f=${Version}", p) for p in PACKAGES}
    return Environment(
        date,
        revision,
        platform.release(),
        os.cpu_count() or 1,
        models[0] if models else platform.machine(),
        memory,
        loads,
        peers,
    )


def _said(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def number(value: float) -> str:
    """Return a figure with three digits that count."""
    if math.isnan(value):
        return "–"
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Return the median, and the least and the most if there are several."""
    kept = [v for v in values if not math.isnan(v)]
    if not kept:
        return "–"
    middle = number(statistics.median(kept))
    return middle if len(kept) == 1 else f"{middle} ({number(min(kept))} to {number(max(kept))})"


def ratio_of(figure: Figure) -> str:
    """Return ours by the peer's, with its interval where there is one."""
    found = ratio(figure.ours, figure.theirs)
    if found is None:
        return "–"
    if math.isnan(found.low):
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def _cells(figure: Figure) -> list[str]:
    unit = f", {figure.unit}" if figure.unit else ""
    floor = figure.most is not None
    n = (
        f"{len(figure.ours)}"
        if len(figure.ours) == len(figure.theirs)
        else f"{len(figure.ours)}, {len(figure.theirs)}"
    )
    verdict = _floor(figure) if floor else figure.verdict()
    return [
        f"{figure.what}{unit}",
        spread(figure.ours),
        figure.peer,
        spread(figure.theirs),
        ratio_of(figure),
        n,
        verdict if floor else "; ".join(filter(None, [verdict, figure.note])),
    ]


def _floor(figure: Figure) -> str:
    found = ratio(figure.ours, figure.theirs)
    if found is None or figure.most is None:
        return ""
    return (
        f"within {figure.most:g}" if found.value <= figure.most else f"above {figure.most:g}: {figure.note}"
    )


HEAD = ("figure", "ours", "peer", "the peer's", "ratio (95 %)", "n", "")
GROWTH_HEAD = ("cost", "by", "at each size", "exponent (95 %)", "between the last two", "")


def _grown(g: Growth) -> list[str]:
    at = ", ".join(f"{size}: {spread(values)}" for size, values in sorted(g.points.items()))
    found = g.fitted()
    fitted = "–" if found is None else f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
    return [
        f"{g.what}, {g.unit}",
        g.of,
        at,
        fitted,
        number(g.last()),
        "; ".join(filter(None, [g.verdict(), g.note])),
    ]


def _tables(results: Sequence[Figure | Growth]) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
    """Return for each part its name, its head and its lines."""
    for part in dict.fromkeys(r.part for r in results):
        rows = [_grown(r) if isinstance(r, Growth) else _cells(r) for r in results if r.part == part]
        yield part, GROWTH_HEAD if part == "growth" else HEAD, rows


def terminal(results: Sequence[Figure | Growth], where: Environment) -> str:
    """Return the tables for a terminal."""
    out = []
    for part, head, rows in _tables(results):
        widths = [max(len(row[i]) for row in (list(head), *rows)) for i in range(len(head) - 1)]
        out.append(f"\n{part}")
        out += [
            "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
            for row in (list(head), *rows)
        ]
    return "\n".join([*out, "", where.words()]) + "\n"


TITLES = {
    "probes": "Probes",
    "exporter": "Exporter",
    "detection": "Detection of floods",
    "isolation": "Isolation",
    "growth": "Growth",
    "floors": "Floors",
}


RATIOS = "Ratios are ours by the peer's, of medians; spread is least to most; the interval is a bootstrap's."


def sections(
    results: Sequence[Figure | Growth], where: Environment, failed: Mapping[str, str]
) -> dict[str, str]:
    """Return the text of each part under its title: where and when it was measured, and its table."""
    out = {}
    for part, head, rows in _tables(results):
        lines = [where.words() + where.caveat(), "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        out[TITLES.get(part, part)] = "\n".join(lines)
    for part, why in failed.items():
        title = TITLES.get(part, part)
        out[title] = f"{where.words()} {title} could not be measured: {why}"
    return out


def markdown(results: Sequence[Figure | Growth], where: Environment, failed: Mapping[str, str]) -> str:
    """Return the tables as Markdown."""
    return _page(sections(results, where, failed))


def _page(texts: Mapping[str, str]) -> str:
    return "\n\n".join([RATIOS, *(f"### {title}\n\n{text}" for title, text in texts.items())]) + "\n"


def write(page: Path, texts: Mapping[str, str]) -> None:
    """Put the texts of parts between the page's marks; parts that are not given stay as they are there.

    Raises ValueError if the marks are not there.
    """
    before, begin, rest = page.read_text().partition(MARKS[0])
    middle, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise ValueError(f"{page} has no place for the tables; write {MARKS[0]} and {MARKS[1]} into it")
    parts = re.split(r"^### (.+)$", middle, flags=re.MULTILINE)[1:]
    kept = {title: text.strip() for title, text in zip(parts[::2], parts[1::2], strict=True)}
    merged = {**kept, **texts}
    order = [*TITLES.values(), *merged]
    inside = _page({title: merged[title] for title in dict.fromkeys(order) if title in merged})
    page.write_text(f"{before}{begin}\n\n{inside}\n{end}{after}")
