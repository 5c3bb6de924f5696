"""SECURITY.md names a test for each threat, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
WHO = TEXT[TEXT.index("## Who is expected") : TEXT.index("## Boundaries")]
ACTORS = set(re.findall(r"^\| ([a-z' ]+) \|", WHO, re.MULTILINE)) - {"actor"}
THREATS = [
    [cell.strip() for cell in row.split("|")[1:-1]]
    for row in TEXT[TEXT.index("## Threats") : TEXT.index("What does not hold")].splitlines()
    if row.startswith("|") and not row.startswith(("| actor", "|---"))
]


def test_every_actor_has_a_threat() -> None:
    assert len(ACTORS) == 6
    assert {actor for actor, *_ in THREATS} >= ACTORS
    assert len(THREATS) > 15


@pytest.mark.parametrize("threat", THREATS, ids=lambda t: t[1][:40])
def test_the_test_of_a_threat_exists(threat: list[str]) -> None:
    match = re.fullmatch(r"`([^`]+)` (\w+)", threat[3])
    assert match, threat[3]
    path, name = match.groups()
    assert re.search(rf"^(?:def|func) {name}\(", (ROOT / path).read_text(), re.MULTILINE), (path, name)
