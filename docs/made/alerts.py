"""The page docs/reference/alerts.md: every alert of alert-rules/, and what to do first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

__all__ = ["markdown"]

_INTRODUCTION = """\
# Alerts and runbooks

Made by `make generate` from [alert-rules/](../../alert-rules). Each alert leads to its runbook: what it means, what it does to
tenants, how to find out more, what to do. `isolate` says what the isolation agent does about it: `auto` limits the sender, once
the kernel bears the alert out; `approve` asks a person first; `manual` and `never` leave it to people.
[Tune alerts](../how-to/alerts.md) shows how to change thresholds, and how to leave an alert out.
"""

_TITLES = {
    "isolation": "Tenants that harm others, and what isolation needs",
    "dataplane": "Guarantees, switches and cards",
    "health": "Nodes, and what measures them",
    "hosts": "Hosts that are not fit to measure",
    "mesh": "Nodes and racks that do not answer",
    "objectives": "Objectives and their budgets",
    "paths": "Paths",
    "tenants": "Tenants",
}
"""What the files of rules are about."""

_ENDS = re.compile(r"\{\{-? *(?:with|range|if|end|else)[^{}]*\}\}")
_VALUE = re.compile(r"\{\{-? *\$labels\.(\w+)[^{}]*\}\}")
_OTHER = re.compile(r"\{\{[^{}]*\}\}")


def markdown(root: Path) -> str:
    """Return the page. Raises KeyError if a file of rules has no title here."""
    parts = [_INTRODUCTION]
    for file in sorted((root / "alert-rules").glob("*.rules.yml")):
        rows = [_row(rule) for rule in _alerts(file)]
        if rows:
            name = file.name.removesuffix(".rules.yml")
            head = "| alert | severity | isolate | for | it says | first |\n|---|---|---|---|---|---|"
            parts.append("\n".join([f"## {_TITLES[name]}", "", f"`{file.name}`", "", head, *rows, ""]))
    return "\n".join(parts)


def _alerts(file: Path) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(file.read_text())["groups"]:
        yield from (rule for rule in group["rules"] if "alert" in rule)


def _row(rule: dict[str, Any]) -> str:
    labels, says = rule["labels"], rule["annotations"]
    cells = [
        f"[{rule['alert']}](../runbooks/{rule['alert']}.md)",
        labels["severity"],
        labels["isolate"],
        rule.get("for", "at once"),
        _plain(says["summary"]),
        _plain(says["action"]),
    ]
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Return an annotation without its template: labels as words in capitals."""
    text = _VALUE.sub(lambda m: m[1].upper(), _ENDS.sub("", text))
    return " ".join(_OTHER.sub("…", text).replace("|", "\\|").split())
