"""Whatever the repository asks of Vigia's metrics or shows of them, in code, configuration and documents, exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vigia_dashboards.expressions import UnknownName, check_matchers, labels_of, recorded

ROOT = Path(__file__).resolve().parents[2]

KINDS = ("*.md", "*.py", "*.go", "*.yml", "*.yaml", "*.json", "*.html", "*.js", "*.sh")
"""Files that are looked at."""

MADE_UP = {
    "dashboards/tests/test_dashboards.py",
    "dashboards/tests/test_loud.py",
    "internal/py/tests/test_catalog.py",
    "tests/contract/test_queries.py",
}
"""Tests that ask for what does not exist, to see that it is refused."""

SELECTOR = re.compile(
    r"\b((?:[a-z_]+:)?vigia_[a-z0-9_:]+)\{+((?:[^{}\"\\]|\\?\"(?:[^\"\\]|\\[^\"])*\\?\")*)\}"
)
MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\\?\"((?:[^\"\\]|\\[^\"])*)\\?\"")
BLANKS = re.compile(r"%[a-z]|\{[^}]*\}|\$\{?\w+\}?|`\+")
"""What stands for a value that is filled in later: of it nothing can be said."""


def queries(text: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield every selector or sample with labels: the name, and its labels, operators and values."""
    text = text.replace("\\|", "|")  # in a table
    for name, inner in SELECTOR.findall(text):
        found = [m for m in MATCHER.findall(inner) if not BLANKS.search(m[2])]
        if found:
            yield name, found


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", *KINDS], cwd=ROOT, capture_output=True, text=True, check=True)
    return [f for f in done.stdout.splitlines() if f not in MADE_UP]


ASKED = sorted(
    {
        (name, tuple(matchers), file)
        for file in tracked()
        for name, matchers in queries((ROOT / file).read_text(errors="replace"))
        if labels_of(name) is not None
    }
)


def problem(name: str, matchers: tuple[tuple[str, str, str], ...]) -> str:
    """What is wrong with a selector; empty if nothing is."""
    known = labels_of(name) or set()
    unknown = {label for label, _, _ in matchers} - known - {"le"}
    if unknown:
        return f"{name} has no label {sorted(unknown)}"
    try:
        check_matchers(name + "{" + ",".join(f'{k}{op}"{v}"' for k, op, v in matchers if k in known) + "}")
    except UnknownName as e:
        return str(e)
    return ""


def test_every_label_and_value_that_is_asked_for_or_shown_exists() -> None:
    wrong = {
        f"{file}: {problem(name, matchers)}" for name, matchers, file in ASKED if problem(name, matchers)
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_the_search_finds_what_there_is() -> None:
    """It goes through rules, panels, documents, the comparison, tests in both languages, and what they record."""
    files = {file for _, _, file in ASKED}
    for start in (
        "alert-rules/",
        "alert-rules/tests/",
        "dashboards/",
        "docs/",
        "exporters/compare/",
        "exporters/tenant/",
    ):
        assert any(f.startswith(start) for f in files), start
    assert any(f.startswith("isolation-agent/enforcer/") for f in files)
    assert any(name in recorded() for name, _, _ in ASKED) and len(ASKED) > 200


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('`vigia_isolation_actions{state="ACTIVE"}`', "state} is never 'ACTIVE'"),
        (r'"vigia_isolation_actions{state=\"ACTIVE\",level=\"L1\"} 1"', "state} is never 'ACTIVE'"),
        ('f\'sum(vigia_isolation_actions{{state="ACTIVE",policy="{p}"}})\'', "state} is never 'ACTIVE'"),
        ('rate(vigia_probe_lost_total{tenant="x", cause!~"forward|back"}[5m])', "cause} is never 'back'"),
        ('vigia_port_bytes_total{direction="out"} 7', "direction} is never 'out'"),
        ('vigia_port_bytes_total{way="out"} 7', "vigia_port_bytes_total has no label"),
        ('`vigia_port_bytes_total{port="%s",direction="from_tenant"} 7`', ""),
        ('vigia_isolation_reaction_seconds_bucket{stage="apply",le="0.5"} 7', ""),
    ],
)
def test_what_is_refused(text: str, wrong: str) -> None:
    ((name, matchers),) = queries(text)
    found = problem(name, tuple(matchers))
    assert wrong in found and bool(wrong) == bool(found)
