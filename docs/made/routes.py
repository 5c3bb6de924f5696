"""Which requests each program serves: read from the sources of the Go programs, asked of the Python applications."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from flask import Flask

import vigia_catalog

__all__ = ["GO_PROGRAMS", "PYTHON_PROGRAMS", "Route", "application", "routes"]

ROOT = Path(__file__).resolve().parents[2]

GO_PROGRAMS = {
    "vigia-probe": "./probes",
    "vigia-exporter": "./exporters/tenant",
    "vigia-enforcer": "./isolation-agent/enforcer",
}
"""Folder of the main package of each program in Go."""

_PATTERN = re.compile(r'"((?:GET|POST|PUT|DELETE) /[^"\s]*)"')
"""A pattern of net/http's ServeMux, as it is written in the code."""
_PAGE = re.compile(r'"GET "\+catalog\.(MainPage|FastPage)\b')
_PAGES = {"MainPage": vigia_catalog.MAIN_PAGE, "FastPage": vigia_catalog.FAST_PAGE}
"""The pages of metrics have names in the code."""
_ANSWERS = re.compile(
    r"^[ \t]*// (?:[\w.]+ answers )?(GET|POST|PUT|DELETE) (/\S*): (.+(?:\n[ \t]*// ?\S.*)*)", re.MULTILINE
)
"""A comment that says what a request does."""


@dataclass(frozen=True, order=True)
class Route:
    """A request that is served; ``path`` has its placeholders as the framework writes them."""

    path: str
    method: str
    what: str = ""
    """What it does, in a sentence; empty if the code does not say."""


@cache
def routes(program: str) -> tuple[Route, ...]:
    """Return the requests that a program serves. Raises KeyError for a program that is not known."""
    if program in GO_PROGRAMS:
        return tuple(sorted(_go(GO_PROGRAMS[program])))
    with application(program) as app:
        return tuple(sorted(_flask(app)))


def _go(folder: str) -> Iterator[Route]:
    """The patterns, and the comments about requests, in the packages that are linked into a program."""
    files = '{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\\n"}}{{end}}{{end}}{{end}}'
    argv = ["go", "list", "-deps", "-f", files, folder]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    served: set[tuple[str, str]] = set()
    said: dict[tuple[str, str], str] = {}
    for file in listed.stdout.split():
        code = Path(file).read_text()
        for method, path, text in _ANSWERS.findall(code):
            said[path, method] = _sentence(re.sub(r"\n\s*//", "", text))
        found = [(path, method) for method, _, path in (p.partition(" ") for p in _PATTERN.findall(code))]
        served.update(found, ((_PAGES[name], "GET") for name in _PAGE.findall(code)))
    for path, method in served | said.keys():
        yield Route(path, method, said.get((path, method), ""))


def _flask(app: Flask) -> Iterator[Route]:
    for rule in app.url_map.iter_rules():
        what = _sentence((getdoc(app.view_functions[rule.endpoint]) or "").partition("\n\n")[0])
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            yield Route(rule.rule, method, what)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:]


@contextmanager
def application(program: str) -> Iterator[Flask]:
    """The application of a program in Python, with a configuration of its own."""
    with TemporaryDirectory() as folder, PYTHON_PROGRAMS[program](Path(folder)) as app:
        yield app


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


PYTHON_PROGRAMS = {"vigia-compare": _compare, "isolation-agent": _agent}
"""What makes the application of each program in Python."""
