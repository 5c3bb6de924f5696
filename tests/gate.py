"""Runs every check and test of the project and ends with an honest count.

Each step prints one line when it is over; what failed is shown in full. A test
that was skipped is listed with its reason, and as root no test may be skipped
for want of root.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(sys.executable).parent
GO_TOOL = ["go", "tool", "-modfile=tools/go.mod"]


@dataclass
class Count:
    """What a step ran."""

    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)
    """Name and reason of each test that did not run."""


class Failure(Exception):
    """A step that failed, with what to show."""

    def __init__(self, output: str, count: Count | None = None) -> None:
        super().__init__(output)
        self.count = count or Count(failed=1)


def _run(*argv: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it wrote. Raises Failure if it does not end with 0."""
    words = [str(a) for a in argv]
    done = subprocess.run(
        words,
        check=False,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(env or {})},
    )
    if done.returncode != 0:
        raise Failure(f"$ {' '.join(words)}\n{done.stdout}")
    return done.stdout


def _each(*commands: list[str | Path]) -> Count:
    for command in commands:
        _run(*command)
    return Count(passed=len(commands))


def lint_go() -> Count:
    """go vet, staticcheck and gofumpt."""
    count = _each(["go", "vet", "./..."], [*GO_TOOL, "staticcheck", "./..."])
    sources = [f for f in _run("git", "ls-files", "*.go").splitlines() if not f.endswith("_bpfel.go")]
    # What go itself says (a download, on a fresh machine) goes to standard error and is no finding.
    listed = subprocess.run(
        [*GO_TOOL, "gofumpt", "-l", *sources], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        raise Failure(listed.stdout + listed.stderr)
    unformatted = listed.stdout.strip()
    if unformatted:
        raise Failure(f"gofumpt would change, run make fmt:\n{unformatted}")
    count.passed += 1
    return count


def lint_python() -> Count:
    """Ruff and mypy --strict."""
    sources = [
        "internal/py/vigia_catalog",
        "internal/py/vigia_config",
        "internal/py/vigia_http",
        "internal/py/vigia_json",
        "internal/py/vigia_prometheus",
        "internal/py/vigia_service",
        "internal/py/vigia_statistics",
        "internal/py/vigia_testing",
        "internal/py/vigia_text",
        "exporters/compare/src",
        "exporters/identity/src",
        "dashboards/vigia_dashboards",
        "vigia/src",
        "isolation-agent/src",
    ]
    return _each(
        [VENV / "ruff", "check", "."],
        [VENV / "ruff", "format", "--check", "."],
        [VENV / "mypy", *sources, "docs/generate.py", "tests/gate.py"],
    )


def generated() -> Count:
    """Generated files are what their sources say."""
    before = {f: Path(ROOT, f).read_bytes() for f in _run("git", "ls-files", "*_bpfel.*").splitlines()}
    try:
        _run("go", "generate", "./...")
        changed = [f for f, content in before.items() if Path(ROOT, f).read_bytes() != content]
    finally:
        for f, content in before.items():
            Path(ROOT, f).write_bytes(content)
    if changed:
        raise Failure(f"these do not stem from their sources, run make generate: {', '.join(changed)}")
    _run(sys.executable, "docs/generate.py", "--check")
    _run(sys.executable, "-m", "vigia_dashboards", "--check")
    return Count(passed=len(before) + 2)


def rules() -> Count:
    """Promtool and amtool accept rules and configuration, and every rule test passes."""
    files = sorted(str(p) for p in Path(ROOT, "alert-rules").glob("*.rules.yml"))
    tests = sorted(str(p) for p in Path(ROOT, "alert-rules/tests").glob("*.test.yml"))
    _run("promtool", "check", "rules", *files)
    _run("promtool", "check", "config", "--syntax-only", "deploy/prometheus/prometheus.yml")
    _run("amtool", "check-config", "deploy/alertmanager/alertmanager.yml")
    _run("promtool", "test", "rules", *tests)
    cases = sum(len(re.findall(r"^  - name:", Path(t).read_text(), re.MULTILINE)) for t in tests)
    return Count(passed=len(files) + 2 + cases)


def go_tests() -> Count:
    """Go tests with the race detector, kernel tests included."""
    done = subprocess.run(
        ["go", "test", "-race", "-json", "-timeout", "15m", "./..."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    count = Count()
    outputs: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        name = f"{event.get('Package', '')} {event.get('Test', '')}".strip()
        if event["Action"] == "output":
            outputs.setdefault(name, []).append(event["Output"])
        elif "Test" in event and event["Action"] == "pass":
            count.passed += 1
        elif "Test" in event and event["Action"] == "fail":
            count.failed += 1
        elif "Test" in event and event["Action"] == "skip":
            said = " ".join(o.strip() for o in outputs[name] if not o.startswith(("=== ", "--- ")))
            count.skipped.append(f"{name}: {said}")
    if done.returncode != 0:
        failed = [o for n, o in outputs.items() if any("FAIL" in x or "panic" in x for x in o)]
        text = "".join("".join(o) for o in failed) + done.stderr
        raise Failure(text, Count(count.passed, max(1, count.failed), count.skipped))
    return count


def _pytest(*arguments: str) -> Count:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        argv = [str(VENV / "pytest"), "-q", f"--junit-xml={report}", *arguments]
        done = subprocess.run(
            argv, check=False, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if not report.exists():
            raise Failure(done.stdout)
        count = _junit(report)
    if done.returncode != 0:
        raise Failure(done.stdout, Count(count.passed, max(1, count.failed), count.skipped))
    return count


def _junit(report: Path) -> Count:
    count = Count()
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by pytest a moment ago
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif skipped is not None:
            count.skipped.append(f"{case.get('classname')} {case.get('name')}: {skipped.get('message')}")
        else:
            count.passed += 1
    return count


CAMPAIGN_TESTS = [f"vigia/tests/{room}" for room in ("campaign", "isolation", "nodes", "report", "studies")]


def lab_tests() -> Count:
    """Tests of the vigia command, in network namespaces."""
    return _pytest("-m", "not e2e", "vigia/tests", *(f"--ignore={f}" for f in CAMPAIGN_TESTS))


def campaign_tests() -> Count:
    """Tests of campaigns and their reports, in network namespaces, too."""
    return _pytest("-m", "not e2e", *CAMPAIGN_TESTS)


def agent_tests() -> Count:
    """Tests of the isolation agent, its console in a browser included."""
    return _pytest("-m", "not e2e", "isolation-agent/tests")


def python_tests() -> Count:
    """The other Python tests."""
    return _pytest("-m", "not e2e and not compose", "internal", "exporters", "dashboards", "tests")


def end_to_end() -> Count:
    """The whole demo, with its own lab beside any that is up."""
    return _pytest("-m", "e2e")


def compose_images() -> Count:
    """The images of docker-compose.yml, from Debian packages."""
    _run("nice", "-n", "19", sys.executable, "tests/composekit.py")
    return Count(passed=1)


def compose() -> Count:
    """docker-compose.yml, on an engine of its own."""
    return _pytest("-m", "compose", "tests")


STEPS: dict[str, Callable[[], Count]] = {
    "generated": generated,
    "rules": rules,
    "lab-tests": lab_tests,
    "campaign-tests": campaign_tests,
    "agent-tests": agent_tests,
    "go-tests": go_tests,
    "python-tests": python_tests,
    "compose-images": compose_images,
    "lint-go": lint_go,
    "lint-python": lint_python,
    "end-to-end": end_to_end,
    "compose": compose,
}


@contextmanager
def _announced(name: str, what: str) -> Iterator[None]:
    """Show on a terminal what is running."""
    if sys.stdout.isatty():
        print(f"          {name}: {what} ...", end="\r", flush=True)
    yield


def _unearned(count: Count) -> list[str]:
    """Skips that must not be: as root, for want of root."""
    return [s for s in count.skipped if os.geteuid() == 0 and re.search(r"\broot\b", s)]


TOGETHER = (
    "lab-tests",
    "campaign-tests",
    "agent-tests",
    "go-tests",
    "python-tests",
    "compose-images",
    "lint-go",
    "lint-python",
)
"""Steps that run at once: they wait for the kernel and for other programs most of the time."""

AT_ONCE = 4
"""How many of them."""


def run_steps(names: list[str]) -> dict[str, tuple[Count, float]]:
    """Run steps to their end, whatever fails, and return what they counted and how long they took."""
    groups: list[list[str]] = []
    for name in names:
        if groups and name in TOGETHER and groups[-1][0] in TOGETHER:
            groups[-1].append(name)
        else:
            groups.append([name])
    results = {}
    for group in groups:
        what = ", ".join((STEPS[name].__doc__ or "").strip() for name in group)
        with _announced(" and ".join(group), what), ThreadPoolExecutor(AT_ONCE) as pool:
            for done in as_completed([pool.submit(_run_step, name) for name in group]):
                name, count, seconds = done.result()
                results[name] = (count, seconds)
    return {name: results[name] for name in names}


def _run_step(name: str) -> tuple[str, Count, float]:
    begin = time.monotonic()
    try:
        count, output = STEPS[name](), ""
    except Failure as e:
        count, output = e.count, str(e)
    seconds = time.monotonic() - begin
    unearned = _unearned(count)
    if unearned and not output:
        count.failed += len(unearned)
        output = "skipped as root for want of root:\n" + "\n".join(unearned)
    lines = [f"{seconds:7.1f} s  {name}: {'FAILED' if output else 'passed'}"]
    print("\n".join([*lines, *(f"    {line}" for line in output.splitlines())]), flush=True)
    return name, count, seconds


_TEST_NAMESPACE = re.compile(r"vigia-test-(?:[a-z]+-)*(\d+)(?:-\d+)?")


def abandoned(names: Iterable[str], alive: Callable[[int], bool]) -> list[str]:
    """Return the tests' network namespaces whose process, which they are named after, is gone."""
    found = ((name, _TEST_NAMESPACE.fullmatch(name)) for name in names)
    return sorted(name for name, match in found if match and not alive(int(match[1])))


def clean_up() -> None:
    """Remove what a run that was killed left behind."""
    if os.geteuid() != 0:
        return  # it could not make anything either
    folder = Path("/run/netns")
    names = [p.name for p in folder.iterdir()] if folder.exists() else []
    for name in abandoned(names, lambda pid: Path(f"/proc/{pid}").exists()):
        _run("ip", "netns", "del", name)
    _run(VENV / "python", "-c", "from vigia.isolation import claims; claims.sweep()")


def report(results: dict[str, tuple[Count, float]], begin: float) -> int:
    """Print the count and return the exit status."""
    print(f"\n{'step':<16}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    total = Count()
    for name, (count, seconds) in results.items():
        print(f"{name:<16}{count.passed:>8}{count.failed:>8}{len(count.skipped):>9}{seconds:>9.0f}")
        total.passed += count.passed
        total.failed += count.failed
        total.skipped += count.skipped
    spent = time.monotonic() - begin
    print(f"{'total':<16}{total.passed:>8}{total.failed:>8}{len(total.skipped):>9}{spent:>9.0f}")
    for skipped in total.skipped:
        print(f"skipped: {skipped}")
    return 1 if total.failed else 0


def main() -> int:
    """Run the steps that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=STEPS, default=[], help="run this step (repeatable)"
    )
    parser.add_argument("--without", action="append", choices=STEPS, default=[], help="leave this step out")
    options = parser.parse_args()
    names = [n for n in (options.only or STEPS) if n not in options.without]
    begin = time.monotonic()
    clean_up()
    return report(run_steps(names), begin)


if __name__ == "__main__":
    sys.exit(main())
