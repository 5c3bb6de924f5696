"""Running programs for the steps, and how much processor time they took."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from gate.results import Count, Failure, from_go, from_junit

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(sys.executable).parent
GO_TOOL = ["go", "tool", "-modfile=tools/go.mod"]


PROGRESS = re.compile(r"^[.sFEx]+ +\[ *\d+%\]\n", re.MULTILINE)
"""pytest's lines of dots: of thousands of tests they hide what failed."""

_spent: ContextVar[list[float]] = ContextVar("_spent")


@contextmanager
def metered() -> Iterator[list[float]]:
    """Collect the user and system time, in seconds, of every program that is run inside."""
    figures: list[float] = []
    token = _spent.set(figures)
    try:
        yield figures
    finally:
        _spent.reset(token)


@dataclass(frozen=True)
class Ran:
    """A program that has ended."""

    status: int
    stdout: str
    stderr: str


def execute(argv: Sequence[str | Path], env: dict[str, str] | None = None) -> Ran:
    """Run a program to its end in the project's root, whatever its exit status."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(
            [str(a) for a in argv], cwd=ROOT, stdout=out, stderr=err, env={**os.environ, **(env or {})}
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        _spent.get([]).append(usage.ru_utime + usage.ru_stime)
        out.seek(0)
        err.seek(0)
        return Ran(child.returncode, out.read(), err.read())


def run(*argv: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a program and return its standard output. Raises Failure if it does not end with 0."""
    done = execute(argv, env)
    if done.status != 0:
        raise Failure(f"$ {' '.join(str(a) for a in argv)}\n{done.stdout}{done.stderr}")
    return done.stdout


def each(*commands: Sequence[str | Path]) -> Count:
    """Run programs one after the other; each counts as a test that passed."""
    for command in commands:
        run(*command)
    return Count(passed=len(commands))


def pytest(*arguments: str) -> Count:
    """Run pytest. Raises Failure with what it printed when a test fails."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        done = execute([VENV / "pytest", "-q", f"--junit-xml={report}", *arguments])
        said = done.stdout + done.stderr
        if not report.exists():
            raise Failure(said)
        count = from_junit(report)
    if done.status != 0:
        raise Failure(re.sub(PROGRESS, "", said), replace(count, failed=max(1, count.failed)))
    return count


def go_test(*arguments: str) -> Count:
    """Run go test. Raises Failure with what the tests that failed printed."""
    done = execute(["go", "test", "-json", *arguments])
    count, failed = from_go(done.stdout.splitlines())
    if done.status != 0:
        raise Failure(failed + done.stderr, replace(count, failed=max(1, count.failed)))
    return count
