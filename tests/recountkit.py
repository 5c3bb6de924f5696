"""The published reports computed a second time from their raw data, by other means.

Nothing of the report's own code is used: rows are read from Parquet as they are, plans as YAML, contrasts are sums in
plain Python, intervals come from every mean of two differences and a null distribution that is counted here.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pyarrow.parquet as pq
import yaml
from labkit import ROOT

EXAMPLES = ROOT / "docs" / "examples"
STUDIES = ROOT / "vigia" / "src" / "vigia" / "studies"
NAMES = ("e1", "e2", "e3", "e4", "e5-a", "e5-b")
CLOUD = "openstack/ovs"
"""Of e1 on the networks of two clouds: the folder of the report, and of the runs on one of them."""
BESIDE = {CLOUD: ("openstack/linuxbridge",)}
"""Folders of runs that a report has beside its own."""

Levels = tuple[tuple[str, str], ...]


class Tables(HTMLParser):
    """The tables of a page, by caption: rows of texts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self._into: list[str] = []
        self._caption = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th", "caption"):
            self._into = []

    def handle_data(self, data: str) -> None:
        self._into.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._rows[-1].append("".join(self._into))
        elif tag == "caption":
            self._caption = "".join(self._into)
        elif tag == "table":
            self.found[self._caption] = self._rows[1:]


@cache
def stated(name: str) -> Mapping[str, list[list[str]]]:
    reader = Tables()
    reader.feed((EXAMPLES / name / "report.html").read_text())
    return reader.found


@cache
def headline(name: str) -> str:
    found = re.search(
        r'<p class="answer">(.*?)</p>', (EXAMPLES / name / "report.html").read_text(), re.DOTALL
    )
    assert found is not None
    return unescape(found[1])


@dataclass(frozen=True)
class FirstPage:
    """Every statement of a report's first page, as it stands there."""

    answer: str
    found: Sequence[str]
    sure: Sequence[str]
    silent: Sequence[str]
    published: str
    agreement: str
    confidence: str


@cache
def first_page(name: str) -> FirstPage:
    text = (EXAMPLES / name / "report.html").read_text().partition('<div class="first">')[0]
    parts = re.split(r'<section class="brief"><h2>(.*?)</h2>', text)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    found, sure, silent, beside = (
        sections.pop(title)
        for title in (
            "What was found",
            "How sure that is",
            "What it does not say",
            "Beside the published study",
        )
    )
    assert not sections, "every part of the page is read"

    def lines(html: str) -> list[str]:
        return [unescape(line) for line in re.findall(r"<li>(.*?)</li>", html, re.DOTALL)]

    said = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", beside, re.DOTALL))
    return FirstPage(
        headline(name),
        lines(found),
        lines(sure),
        lines(silent),
        *(unescape(said[k]) for k in ("published", "agreement", "confidence")),
    )


@cache
def plan(name: str) -> Mapping[str, Any]:
    """The plan of a report's study, with its hypotheses."""
    study = json.loads((EXAMPLES / name / "manifest.json").read_text())["campaign"]["study"]
    found: Mapping[str, Any] = yaml.safe_load((STUDIES / study / "plan.yaml").read_text())
    return found


@dataclass(frozen=True)
class Raw:
    """Samples by combination, metric and block, and the blocks of which anything is known."""

    values: Mapping[tuple[Levels, str], Mapping[int, list[float]]]
    cells: Sequence[Levels]
    blocks: Sequence[int]


@cache
def raw(name: str) -> Raw:
    levels: dict[tuple[str, int], Levels] = {}
    blocks: set[int] = set()
    values: dict[tuple[Levels, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in (name, *BESIDE.get(name, ())):
        runs = json.loads((EXAMPLES / folder / "runs.json").read_text())
        done = [r for r in sorted(runs, key=lambda r: (r["cell"], r["run"])) if r["status"] == "done"]
        for r in done:
            factors = {k: str(v) for k, v in r["factors"].items()}
            if name == "e1":  # its UDP was sent in messages of 56 KB, and nothing else was varied
                assert settings(name)["message"] > 1500
                factors["datagram"] = "fragments" if factors["protocol"] == "udp" else "fits"
            levels[folder, r["run"]] = tuple(factors.items())
        for row in pq.read_table(EXAMPLES / folder / "samples.parquet").sort_by("run").to_pylist():
            sample = math.nan if row["value"] is None else row["value"]
            values[levels[folder, row["run"]], row["metric"]][row["block"]].append(sample)
        blocks |= {r["block"] for r in done}
    return Raw(values, list(dict.fromkeys(levels.values())), sorted(blocks))


def settings(name: str) -> Mapping[str, Any]:
    """How a repetition was made of a run of an earlier version, whose sizes were small and full."""
    found: Mapping[str, Any] = json.loads((EXAMPLES / name / "manifest.json").read_text())
    return dict(found["campaign"]["small"]["settings"])


def reduced(how: str, samples: Sequence[float]) -> float:
    there = [v for v in samples if not math.isnan(v)]
    if how == "jitter":
        steps = [abs(b - a) for a, b in itertools.pairwise(there)]
        return sum(steps) / len(steps) if steps else math.nan
    if not there:
        return math.nan
    return statistics.median(there) if how == "median" else math.fsum(there) / len(there)


@dataclass(frozen=True)
class Comparison:
    """One row of the tests, computed anew."""

    hypothesis: str
    stratum: Mapping[str, str]
    first: str
    second: str
    blocks: int
    effect: float
    verdict: str
    interval: tuple[float, float] = (math.nan, math.nan)
    """Of the effect; of too few repetitions there is none."""
    failing: str = ""
    """The cell whose measurement failed."""


def chosen(h: Mapping[str, Any], cells: Sequence[Levels]) -> list[Levels]:
    wanted = {k: {str(v) for v in levels} for k, levels in h.get("where", {}).items()}
    return [c for c in cells if all(dict(c).get(k) in levels for k, levels in wanted.items())]


Parts = list[tuple[float, str, Levels]]
"""Weight, metric and cell of each term of a contrast."""


def contrast(h: Mapping[str, Any], here: Sequence[Levels]) -> Parts:
    parts: Parts = []
    for t in h["test"]["terms"]:
        fits = [c for c in here if all(dict(c)[k] == str(v) for k, v in t["where"].items())]
        parts += [(float(t["weight"]), str(t["metric"]), c) for c in fits]
    return parts if len(parts) == len(h["test"]["terms"]) else []


def pairs(h: Mapping[str, Any], here: Sequence[Levels]) -> Iterator[tuple[dict[str, str], str, str, Parts]]:
    factor, reference = h["test"]["factor"], h["test"].get("reference")
    groups: dict[Levels, dict[str, Levels]] = {}
    for c in here:
        shared = tuple((k, v) for k, v in c if k != factor)
        groups.setdefault(shared, {})[dict(c)[factor]] = c
    for shared, level in groups.items():
        every = itertools.combinations(level, 2)
        for a, b in every if reference is None else [(x, str(reference)) for x in level]:
            if b in level and a != b:
                yield dict(shared), a, b, [(1.0, h["metric"], level[a]), (-1.0, h["metric"], level[b])]


def terms(h: Mapping[str, Any], cells: Sequence[Levels]) -> Iterator[tuple[dict[str, str], str, str, Parts]]:
    """Stratum, first and second level, and terms of each question of a hypothesis. No example has a trend."""
    here = chosen(h, cells)
    match h["test"]["kind"]:
        case "bound":
            for c in here:
                yield dict(c), "", "", [(1.0, h["metric"], c)]
        case "contrast":
            if parts := contrast(h, here):
                yield {}, "", "", parts
        case "pairs":
            yield from pairs(h, here)


@cache
def signed_ranks(n: int) -> list[float]:
    """P(sum of positive ranks = s) for s = 0, 1, ..., by counting subsets of 1..n."""
    ways = Counter({0: 1})
    for rank in range(1, n + 1):
        ways = Counter({s: ways[s] + ways[s - rank] for s in range(sum(range(rank + 1)) + 1)})
    return [ways[s] / 2**n for s in range(n * (n + 1) // 2 + 1)]


Judged = tuple[float, str, float, float]


def judged(h: Mapping[str, Any], values: Sequence[float], level: float) -> Judged:
    """Hodges-Lehmann estimate; above, below, equivalent, undecided or too few; the ends of the interval."""
    bound = h["test"]["kind"] == "bound"
    n = len(values)
    if n < 2:
        return math.nan, "too few repetitions", math.nan, math.nan
    walsh = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    estimate = statistics.median(walsh)
    if 2.0 ** (1 - n) > 1 - level + 1e-12:
        return estimate, "too few repetitions", math.nan, math.nan
    below, k = 0.0, 0
    for p in signed_ranks(n):
        below += p
        if below > (1 - level) / 2 + 1e-15:
            break
        k += 1
    lower, upper = walsh[max(k, 1) - 1], walsh[-max(k, 1)]
    margin = (
        0.0
        if bound
        else (math.log(1 + h.get("margin", 0)) if h.get("scale", "ratio") == "ratio" else h.get("margin", 0))
    )
    if bound:
        said = "reached" if lower >= 0 else "not reached" if upper < 0 else "undecided"
    elif lower > margin or upper < -margin:
        said = "above" if lower > margin else "below"
    else:
        said = "equivalent" if lower >= -margin and upper <= margin else "undecided"
    return estimate, said, lower, upper


def compared(h: Mapping[str, Any], data: Raw, parts: Parts, level: float) -> tuple[int, Judged, Levels]:
    """The blocks that count, what they say, and the cell of which too few were measured."""
    ratio = h.get("scale", "ratio") == "ratio"
    columns = []
    for _, metric, cell in parts:
        numbers = {
            b: reduced(h.get("reduce", "mean"), s) for b, s in data.values.get((cell, metric), {}).items()
        }
        good = {
            b: v for b, v in numbers.items()
            if math.isfinite(v) and not (ratio and v <= 0) and not v >= h.get("fails_at", math.inf)
        }  # fmt: skip
        if len(data.blocks) - len(good) > 0.2 * len(data.blocks):
            return 0, (math.nan, "measurement failed", math.nan, math.nan), cell
        columns.append(good)
    whole = [b for b in data.blocks if all(b in c for c in columns)]
    offset = h["test"].get("at_least", 0.0)
    values = [
        sum(w * (math.log(c[b]) if ratio else c[b]) for (w, _, _), c in zip(parts, columns, strict=True))
        - offset
        for b in whole
    ]
    estimate, verdict, *ends = judged(h, values, level)
    shown, low, high = (math.exp(v) if ratio else v + offset for v in (estimate, *ends))
    return len(values), (shown, verdict, low, high), ()


def failed_at(cell: Levels, stratum: Mapping[str, str]) -> str:
    """The level in which a cell differs from those it shares a place with."""
    return next((v for k, v in cell if stratum.get(k) != v), "")


@cache
def recomputed(name: str) -> list[Comparison]:
    hypotheses, confidence = plan(name)["hypotheses"], plan(name)["confidence"]
    data = raw(name)
    measured = {metric for _, metric in data.values}
    asked = {h["name"]: list(terms(h, data.cells)) for h in hypotheses}
    sizes: Counter[str] = Counter()
    for h in hypotheses:
        sizes[h.get("family", h["name"])] += len(asked[h["name"]])
    found = []
    for h in hypotheses:
        alpha = 1 - confidence
        bound = h["test"]["kind"] == "bound"
        level = 1 - 2 * alpha if bound else 1 - alpha / max(1, sizes[h.get("family", h["name"])])
        for stratum, first, second, parts in asked[h["name"]]:
            if not {metric for _, metric, _ in parts} & measured:
                continue
            n, (effect, verdict, *ends), failing = compared(h, data, parts, level)
            if verdict in ("above", "below") and first:
                higher = h.get("better", "lower") == "higher"
                winner, loser = (first, second) if (verdict == "above") == higher else (second, first)
                verdict = f"{winner} wins, {loser} loses"
            else:
                verdict = {"above": "grows", "below": "falls"}.get(verdict, verdict)
            found.append(
                Comparison(
                    h["name"],
                    stratum,
                    first,
                    second,
                    n,
                    effect,
                    verdict,
                    (ends[0], ends[1]),
                    failed_at(failing, stratum),
                )
            )
    return found
