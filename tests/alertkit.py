"""Which programs an alert is about, and which requests each program serves."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from flask import Flask

import vigia_catalog
from vigia_dashboards.expressions import recorded, selectors

__all__ = ["JOBS", "RULES", "jobs_of", "programs_of", "rules", "serves"]

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

_GO = {
    "vigia-probe": "./probes",
    "vigia-exporter": "./exporters/tenant",
    "vigia-enforcer": "./isolation-agent/enforcer",
}
"""Folder of the main package of each program in Go."""

_GO_PATTERN = re.compile(r'"((?:GET|POST|PUT|DELETE) /[^"\s]*)"')
"""A pattern of net/http's ServeMux, as it is written in the code."""

_PLACEHOLDER = re.compile(r"<[^<>]+>|\{[^{}$]+\}")
"""A part of a path that is filled in, as Flask and ServeMux write it."""


def rules(kind: str) -> list[dict[str, Any]]:
    """All rules that have the key ``kind``: alert or record."""
    files = [yaml.safe_load(file.read_text()) for file in RULES]
    return [rule for f in files for group in f["groups"] for rule in group["rules"] if kind in rule]


def jobs_of(expression: str) -> set[str]:
    """The jobs whose series an expression needs, through recorded series."""
    declared = {m.name: m.part for part in JOBS for m in vigia_catalog.part_metrics(part)}
    found: set[str] = set()
    for selector in selectors(expression):
        name = str(selector.name)
        if name in recorded():
            found |= jobs_of(recorded()[name])
        elif name.startswith("node_"):
            found.add("node")
        elif name in declared:
            found.add(JOBS[declared[name]])
        else:
            assert name == "up", name
            found |= {m.value for m in selector.matchers.matchers if m.name == "job"}
    return found


def programs_of(alert: Mapping[str, Any]) -> set[str]:
    """The programs that an alerting rule is about: those whose series it needs, and the agent if it acts upon it."""
    acted_upon = {"isolation-agent"} if alert["labels"].get("isolate") in ("auto", "approve") else set()
    return (jobs_of(alert["expr"]) & set(JOBS.values())) | acted_upon


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
        for pattern in _GO_PATTERN.findall(Path(file).read_text()):
            method, _, path = pattern.partition(" ")
            yield method, path


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
