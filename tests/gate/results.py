"""What steps counted: passed, failed and skipped tests, how long each took, and how that is printed."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SLOWEST = 20
"""How many tests are named at the end."""

SAID = 400
"""Characters of what a test that failed said, at the end."""


@dataclass
class Count:
    """What a step ran."""

    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)
    """Name and reason of each test that did not run."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each test that took a second or more, by its name."""
    failures: list[str] = field(default_factory=list)
    """Name of each test that failed, and the end of what it said."""

    def add(self, other: Count) -> None:
        """Take another's figures in."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.seconds |= other.seconds
        self.failures += other.failures

    def as_json(self) -> dict[str, Any]:
        """Return the figures for a file."""
        return asdict(self)


class Failure(Exception):
    """A step that failed, with what to show."""

    def __init__(self, output: str, count: Count | None = None) -> None:
        super().__init__(output)
        self.count = count or Count(failed=1)


@dataclass(frozen=True)
class Outcome:
    """A step that is over."""

    step: str
    count: Count
    output: str
    """What failed, in full; empty when nothing did."""
    seconds: float
    cpu_seconds: float
    """User and system time of its processes, as far as they were waited for."""
    unchanged: bool = False
    """It was not run again: its inputs are what they were when it last passed."""

    def lines(self) -> str:
        """Return what is printed when the step is over."""
        verdict = "FAILED" if self.output else "passed"
        if self.unchanged:
            verdict = "unchanged since it passed"
        head = f"{self.seconds:7.1f} s  {self.step}: {verdict}"
        return "\n".join([head, *(f"    {line}" for line in self.output.splitlines())])


def from_junit(report: Path) -> Count:
    """Read pytest's report."""
    count = Count()
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by pytest a moment ago
        name = f"{case.get('classname')} {case.get('name')}"
        skipped = case.find("skipped")
        wrong = next((found for kind in ("failure", "error") if (found := case.find(kind)) is not None), None)
        if wrong is not None:
            count.failed += 1
            count.failures.append(f"{name}: {shortened(wrong.get('message') or '')}")
        elif skipped is not None:
            count.skipped.append(f"{name}: {skipped.get('message')}")
        else:
            count.passed += 1
        if (seconds := float(case.get("time") or 0)) >= 1:
            count.seconds[name] = seconds
    return count


def from_go(lines: Iterable[str]) -> tuple[Count, str]:
    """Read what `go test -json` prints; returns the count and the output of what failed."""
    count = Count()
    outputs: dict[str, list[str]] = {}
    failed: list[str] = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        action, test = event["Action"], event.get("Test", "")
        name = f"{event.get('Package') or event.get('ImportPath', '')} {test}".strip()
        if action in ("output", "build-output"):
            outputs.setdefault(name, []).append(event["Output"])
        elif action in ("fail", "build-fail"):
            failed.append(name)
            count.failed += bool(test)
        elif test and action == "pass":
            count.passed += 1
        elif test and action == "skip":
            said = " ".join(o.strip() for o in outputs.get(name, ()) if not o.startswith(("=== ", "--- ")))
            count.skipped.append(f"{name}: {said}")
        # A test's time has its subtests' in it.
        if test and "/" not in test and event.get("Elapsed", 0) >= 1:
            count.seconds[name] = event["Elapsed"]
    texts = {name: "".join(outputs.get(name, ())) for name in failed}
    count.failures = [f"{name}: {shortened(text)}" for name, text in texts.items()]
    return count, "".join(texts.values())


def shortened(text: str) -> str:
    """Return a message as one line, its end if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= SAID else f"… {line[-SAID:]}"


def unearned(count: Count) -> list[str]:
    """Skips that must not be: as root, for want of root."""
    return [s for s in count.skipped if os.geteuid() == 0 and re.search(r"\broot\b", s)]


def table(outcomes: list[Outcome], wall: float) -> str:
    """Return the count by step, the slowest tests, what was skipped and, where it is seen first, what failed."""
    form = "{:<16}{:>8}{:>8}{:>9}{:>9}{:>9}"
    lines = ["", form.format("step", "passed", "failed", "skipped", "seconds", "CPU s")]
    total = Count()
    for o in outcomes:
        total.add(o.count)
        lines.append(_row(form, o.step, o.count, o.seconds, o.cpu_seconds))
    lines.append(_row(form, "total", total, wall, sum(o.cpu_seconds for o in outcomes)))
    fresh = {n: s for o in outcomes if not o.unchanged for n, s in o.count.seconds.items()}
    slowest = sorted(fresh.items(), key=lambda i: -i[1])[:SLOWEST]
    if slowest:
        lines += ["", f"the slowest {len(slowest)} tests:", *(f"{s:7.1f} s  {name}" for name, s in slowest)]
    lines += [f"skipped: {s}" for s in total.skipped]
    for o in outcomes:
        without_a_test = [f"{o.step}: {shortened(o.output)}"] if o.output else []
        lines += [f"failed: {f}" for f in o.count.failures or without_a_test]
    return "\n".join(lines)


def _row(form: str, name: str, count: Count, seconds: float, cpu: float) -> str:
    return form.format(name, count.passed, count.failed, len(count.skipped), f"{seconds:.0f}", f"{cpu:.0f}")
