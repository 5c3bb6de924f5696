"""Which programs an alert is about, and which requests each program serves."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from flask import Flask

import vigia_catalog
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

SCRAPES = 4
"""How many scrapes a rate needs at least: one that fails, and one at each end that just misses, leave two."""

_GO = {
    "vigia-probe": "./probes",
    "vigia-exporter": "./exporters/tenant",
    "vigia-enforcer": "./isolation-agent/enforcer",
}
"""Folder of the main package of each program in Go."""

_GO_PATTERN = re.compile(r'"((?:GET|POST|PUT|DELETE) /[^"\s]*)"')
"""A pattern of net/http's ServeMux, as it is written in the code."""

_GO_PAGE = re.compile(r'"GET "\+catalog\.(MainPage|FastPage)\b')
_PAGES = {"MainPage": vigia_catalog.MAIN_PAGE, "FastPage": vigia_catalog.FAST_PAGE}
"""The pages of metrics have names in the code."""

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
    pages = {vigia_catalog.MAIN_PAGE: "", vigia_catalog.FAST_PAGE: FAST}
    metric = declared.get(name) or declared.get(re.sub(r"_(bucket|sum|count)$", "", name))
    if name.startswith("node_"):
        jobs = {"node"}
    elif metric:
        jobs = {JOBS[metric.part] + pages[page] for page in metric.pages}
    else:
        assert name == "up" or name.startswith(("process_", "scrape_")) or name == "ALERTS", name
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
    needed = {job.removesuffix(FAST) for job in jobs_of(alert["expr"])}
    return (needed & set(JOBS.values())) | acted_upon


def serves(program: str, method: str, path: str) -> bool:
    """Say whether a program answers the request; words in capitals stand for what is filled in."""
    return any(m == method and re.fullmatch(p, path) for m, p in _patterns(program))


@cache
def _patterns(program: str) -> frozenset[tuple[str, str]]:
    """Methods, and regular expressions of paths, that a program serves."""
    routes = _go_routes(_GO[program]) if program in _GO else _flask_routes(program)
    found = frozenset((method, _expression(path)) for method, path in routes)
    assert found, f"no route of {program} is found"
    return found


def _expression(path: str) -> str:
    fixed = _PLACEHOLDER.split(path.removesuffix("{$}"))
    return "[A-Z_]+".join(re.escape(part) for part in fixed)


def _go_routes(folder: str) -> Iterator[tuple[str, str]]:
    """The patterns in the packages that are linked into a program."""
    files = '{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\\n"}}{{end}}{{end}}{{end}}'
    listed = subprocess.run(
        ["go", "list", "-deps", "-f", files, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    for file in listed.stdout.split():
        code = Path(file).read_text()
        for pattern in _GO_PATTERN.findall(code):
            method, _, path = pattern.partition(" ")
            yield method, path
        yield from (("GET", _PAGES[name]) for name in _GO_PAGE.findall(code))


def _flask_routes(program: str) -> Iterable[tuple[str, str]]:
    """The routes of the application that a program makes."""
    with TemporaryDirectory() as folder, _APPLICATIONS[program](Path(folder)) as app:
        return [(m, rule.rule) for rule in app.url_map.iter_rules() for m in rule.methods or ()]


@contextmanager
def _agent(folder: Path) -> Iterator[Flask]:
    from isolation_agent.config import load_settings  # noqa: PLC0415
    from isolation_agent.service.agent import Agent  # noqa: PLC0415
    from isolation_agent.web.app import create_app  # noqa: PLC0415

    for name in ("webhook", "api", "enforcer"):
        token = folder / f"{name}.token"
        token.touch(mode=0o600)
        token.write_text(f"{name}-0123456789abcdef0123456789abcdef\n")
    match = {"alertname": "VigiaUdpFlood", "isolate": "auto"}
    policies = {"version": 1, "policies": [{"name": "udp-flood", "match": match, "level": "L2"}]}
    (folder / "policies.yaml").write_text(yaml.safe_dump(policies))
    config = {
        "database": "sqlite:///agent.db",
        "audit_log": "audit.jsonl",
        "auth": {"webhook_token_file": "webhook.token", "api_token_file": "api.token"},
        "policies": "policies.yaml",
        "hosts": [{"node": "n1", "url": "http://127.0.0.1:9873", "token_file": "enforcer.token"}],
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(config))
    agent = Agent(load_settings(folder / "agent.yaml"))
    try:
        yield create_app(agent)
    finally:
        agent.stop()


@contextmanager
def _compare(folder: Path) -> Iterator[Flask]:
    from vigia_compare.config import Config  # noqa: PLC0415
    from vigia_compare.service import Service  # noqa: PLC0415
    from vigia_config import load  # noqa: PLC0415

    file = folder / "compare.yaml"
    file.write_text("every: 10s\n")
    yield Service(file, load(file, Config)).app()


_APPLICATIONS = {"isolation-agent": _agent, "vigia-compare": _compare}
