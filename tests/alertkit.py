"""Which programs an alert is about, and which requests each program serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import vigia_catalog
from made.routes import routes
from vigia_dashboards.expressions import ranges, recorded, selectors

__all__ = [
    "FAST",
    "JOBS",
    "RULES",
    "SCRAPES",
    "groups",
    "jobs_of",
    "passes",
    "programs_of",
    "rules",
    "serves",
    "too_short",
]

ROOT = Path(__file__).resolve().parents[1]
RULES = sorted((ROOT / "alert-rules").glob("*.rules.yml"))

JOBS = {
    "probe": "vigia-probe",
    "exporter": "vigia-exporter",
    "enforcer": "vigia-enforcer",
    "agent": "isolation-agent",
    "compare": "vigia-compare",
}
"""Scrape job of each part of the catalogue; programs have the names of their jobs."""

FAST = "-fast"
"""What the name of the job ends with that scrapes a program's fast page."""

VERDICTS = "-verdicts"
"""What the name of the job ends with that scrapes the page of verdicts, where no process is."""

SCRAPES = 4
"""How many scrapes a rate needs at least: one that fails, and one at each end that just misses, leave two."""

_PLACEHOLDER = re.compile(r"<[^<>]+>|\{[^{}$]+\}")
"""A part of a path that is filled in, as Flask and ServeMux write it."""


def groups() -> list[dict[str, Any]]:
    """All groups of rules."""
    return [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]


def rules(kind: str) -> list[dict[str, Any]]:
    """All rules that have the key ``kind``: alert or record."""
    return [rule for group in groups() for rule in group["rules"] if kind in rule]


def jobs_of(expression: str) -> set[str]:
    """The jobs whose series an expression needs, through recorded series."""
    found: set[str] = set()
    for selector in selectors(expression):
        name = str(selector.name)
        found |= jobs_of(recorded()[name]) if name in recorded() else _scraped(selector)
    return found


def _scraped(selector: Any) -> set[str]:
    """The jobs that have the series of a selector: those of the pages that show it, of which it may choose."""
    name = str(selector.name)
    declared = {m.name: m for part in JOBS for m in vigia_catalog.part_metrics(part)}
    pages = {
        vigia_catalog.MAIN_PAGE: "",
        vigia_catalog.FAST_PAGE: FAST,
        vigia_catalog.VERDICT_PAGE: VERDICTS,
    }
    metric = declared.get(name) or declared.get(re.sub(r"_(bucket|sum|count)$", "", name))
    if name.startswith("node_"):
        jobs = {"node"}
    elif metric:
        jobs = {JOBS[metric.part] + pages[page] for page in metric.pages}
    elif name.startswith("process_"):
        jobs = {job for job in _intervals() if not job.endswith(VERDICTS)}
    else:
        assert name == "up" or name.startswith("scrape_") or name == "ALERTS", name
        jobs = set(_intervals())
    chosen = [m for m in selector.matchers.matchers if m.name == "job"]
    return {job for job in jobs if all(passes(m, job) for m in chosen)}


def passes(matcher: Any, value: str) -> bool:
    """Say whether a matcher of a selector lets a label's value pass."""
    kind = str(matcher.op).rpartition(".")[2]
    pattern = matcher.value if kind in ("Re", "NotRe") else re.escape(matcher.value)
    return bool(re.fullmatch(pattern, value)) == (kind in ("Re", "Equal"))


@cache
def _intervals() -> Mapping[str, timedelta]:
    """How often each job is scraped, as shipped."""
    content = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    usual = content["global"]["scrape_interval"]
    return {j["job_name"]: _duration(j.get("scrape_interval", usual)) for j in content["scrape_configs"]}


@cache
def _evaluated() -> Mapping[str, timedelta]:
    """How often each record is evaluated."""
    return {r["record"]: _duration(g["interval"]) for g in groups() for r in g["rules"] if "record" in r}


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"(\d+)([smh])", text)
    assert match, text
    return timedelta(**{{"s": "seconds", "m": "minutes", "h": "hours"}[match[2]]: int(match[1])})


def too_short(expression: str) -> list[str]:
    """Return the ranges of an expression in which there are too few samples, by the intervals that are shipped."""
    problems = []
    for selector, over in ranges(expression):
        name = str(selector.name)
        if name == "ALERTS":
            continue
        every = (
            [_evaluated()[name]] if name in recorded() else [_intervals()[job] for job in _scraped(selector)]
        )
        assert every, f"nobody has {name}: {expression}"
        if over < SCRAPES * max(every):
            problems.append(f"{name}[{over}]: there is a sample every {max(every)}")
    return problems


def programs_of(alert: Mapping[str, Any]) -> set[str]:
    """The programs that an alerting rule is about: those whose series it needs, and the agent if it acts upon it."""
    acted_upon = {"isolation-agent"} if alert["labels"].get("isolate") in ("auto", "approve") else set()
    needed = {job.removesuffix(FAST).removesuffix(VERDICTS) for job in jobs_of(alert["expr"])}
    return (needed & set(JOBS.values())) | acted_upon


def serves(program: str, method: str, path: str) -> bool:
    """Say whether a program answers the request; words in capitals stand for what is filled in."""
    return any(m == method and re.fullmatch(p, path) for m, p in _patterns(program))


@cache
def _patterns(program: str) -> frozenset[tuple[str, str]]:
    """Methods, and regular expressions of paths, that a program serves."""
    found = frozenset((route.method, _expression(route.path)) for route in routes(program))
    assert found, f"no route of {program} is found"
    return found


def _expression(path: str) -> str:
    fixed = _PLACEHOLDER.split(path.removesuffix("{$}"))
    return "[A-Z_]+".join(re.escape(part) for part in fixed)
