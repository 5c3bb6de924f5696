"""The page docs/adr/README.md: the decisions, and whether they still hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["markdown"]

_INTRODUCTION = """\
# Decisions

Why things are as they are: one page for each decision, made of what was to be solved, what was decided, what was rejected and what
follows. When a decision changes, a new page says so with a line `**Replaces** [ADR 1](0001-one-bpf-program-per-vport.md).` (or
`**Amends**`), and the status of the earlier one follows from it. Some numbers were never used. `make generate` makes this table.

| | decision | status |
|---|---|---|
"""

_TITLE = re.compile(r"^# (\d+)\. (.+)$", re.MULTILINE)
_CONCERNS = re.compile(r"^\*\*(Replaces|Amends)\*\* (.+)$", re.MULTILINE)
_NUMBER = re.compile(r"\[ADR (\d+)\]\((\d{4}-[\w-]+\.md)\)")
_SAID = {"Replaces": "replaced by", "Amends": "accepted, amended by"}


@dataclass(frozen=True)
class _Decision:
    file: str
    number: int
    title: str
    concerns: tuple[tuple[str, str], ...]
    """Verb and file of earlier decisions."""


def markdown(folder: Path) -> str:
    """Return the page. Raises ValueError if a page has no title with its number, or two have the same."""
    found = [_read(file) for file in sorted(folder.glob("[0-9]*.md"))]
    numbers = [d.number for d in found]
    if twice := {n for n in numbers if numbers.count(n) > 1}:
        raise ValueError(f"two decisions have the number {', '.join(map(str, sorted(twice)))}")
    return _INTRODUCTION + "".join(
        f"| {d.number} | [{d.title}]({d.file}) | {_status(d, found)} |\n" for d in found
    )


def _read(file: Path) -> _Decision:
    text = file.read_text()
    title = _TITLE.match(text)
    if title is None or int(title[1]) != int(file.name[:4]):
        raise ValueError(f"{file.name} does not begin with '# {int(file.name[:4])}. ' and a title")
    concerns = [(verb, other) for verb, line in _CONCERNS.findall(text) for _, other in _NUMBER.findall(line)]
    return _Decision(file.name, int(title[1]), title[2], tuple(concerns))


def _status(decision: _Decision, decisions: list[_Decision]) -> str:
    said = [
        f"{_SAID[verb]} [{later.number}]({later.file})"
        for later in decisions
        for verb, other in later.concerns
        if other == decision.file
    ]
    return ", ".join(said) or "accepted"
