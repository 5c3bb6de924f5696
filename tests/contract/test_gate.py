"""The gate: what it removes, what it runs again, what it counts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from gate import commands, steps
from gate.commands import ROOT, Ran
from gate.inputs import EVERYWHERE, Memory, allowed
from gate.leftovers import abandoned, abandoned_labs, abandoned_mounts
from gate.results import Count, Failure, Outcome, from_go, from_junit, shortened, table
from gate.schedule import run_steps
from gate.steps import EVERYTHING, LONG, SHORT, Step

ALIVE = {11, 12345}


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("vigia-test-11040-17", True),
        ("vigia-test-flood-11040", True),
        ("vigia-test-netns-11040-1", True),
        ("vigia-test-12345-17", False),
        ("vigia-test-flood-11", False),
        ("vigia-test-none", False),
        ("vigia-demo-lb1", False),
        ("other-vigia-test-11040-17", False),
        ("vigia-test-11040-17-kept", False),
    ],
)
def test_only_namespaces_of_dead_tests_go(name: str, goes: bool) -> None:
    assert abandoned([name], ALIVE.__contains__) == ([name] if goes else [])


def test_mounts_of_processes_that_are_gone() -> None:
    mounts = """proc /proc proc rw 0 0
bpf /sys/fs/bpf bpf rw 0 0
vigia-test-11040 /srv/a\\040b/001 bpf rw,relatime 0 0
vigia-test-12345 /srv/c bpf rw,relatime 0 0
"""
    assert abandoned_mounts(mounts, ALIVE.__contains__) == ["/srv/a b/001"]


def test_labs_of_processes_that_are_gone(tmp_path: Path) -> None:
    assert abandoned_labs(tmp_path / "none", ALIVE.__contains__) == []
    for lab, owner in {"old": "11040", "new": "12345", "torn": "", "odd": "²"}.items():
        (tmp_path / lab).write_text(owner)
    assert abandoned_labs(tmp_path, ALIVE.__contains__) == ["odd", "old", "torn"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with two rooms."""
    for name in ("a/one.txt", "b/two.txt", "uv.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / ".gitignore").write_text("/.build/\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    return tmp_path


def gate_of(tree: Path, body: Callable[[], Count], inputs: tuple[str, ...]) -> Outcome:
    """Run a gate of one step, as a new process would."""
    (outcome,) = run_steps([Step("toy", "a toy", body, inputs)], Memory(tree, tree / ".build"))
    return outcome


@pytest.mark.parametrize("inputs", [("a/",), ("a/one.txt",), EVERYTHING], ids=lambda i: i[0])
def test_a_step_runs_again_when_one_of_its_inputs_has_changed(tree: Path, inputs: tuple[str, ...]) -> None:
    ran: list[int] = []

    def body() -> Count:
        ran.append(1)
        return Count(passed=3, skipped=["x: a kernel without it"])

    first, second = gate_of(tree, body, inputs), gate_of(tree, body, inputs)
    assert len(ran) == 1 and second.unchanged and not first.unchanged
    assert second.count == first.count
    (tree / "a/one.txt").write_text("otherwise")
    assert not gate_of(tree, body, inputs).unchanged and len(ran) == 2
    (tree / "uv.lock").write_text("another library")
    assert not gate_of(tree, body, inputs).unchanged and len(ran) == 3
    (tree / "b/two.txt").write_text("otherwise")
    assert gate_of(tree, body, inputs).unchanged == (inputs != EVERYTHING)
    (tree / "a/new.txt").write_text("not yet added")
    assert gate_of(tree, body, inputs).unchanged == (inputs == ("a/one.txt",))


def test_a_file_that_goes_and_a_link_that_turns_count_as_changes(tree: Path) -> None:
    def passes() -> Count:
        return Count(passed=1)

    gate_of(tree, passes, EVERYTHING)
    (tree / "link").unlink()
    (tree / "link").symlink_to("b")
    assert not gate_of(tree, passes, EVERYTHING).unchanged
    (tree / "b/two.txt").unlink()
    assert not gate_of(tree, passes, EVERYTHING).unchanged
    assert gate_of(tree, passes, EVERYTHING).unchanged


def test_a_step_that_failed_or_whose_inputs_moved_is_not_remembered(tree: Path) -> None:
    def fails() -> Count:
        raise Failure("no", Count(passed=1, failed=1))

    def edits() -> Count:
        (tree / "a/one.txt").write_text("edited meanwhile")
        return Count(passed=1)

    def passes() -> Count:
        return Count(passed=1)

    assert gate_of(tree, fails, ("a/",)).output == "no"
    assert not gate_of(tree, edits, ("a/",)).unchanged
    assert not gate_of(tree, passes, ("a/",)).unchanged
    for damaged in ("", "{}", "[1]", '{"inputs": 1, "count": {"strange": 1}}'):
        (tree / ".build/toy.json").write_text(damaged)
        assert not gate_of(tree, passes, ("a/",)).unchanged


def test_nothing_is_remembered_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "VIGIA_GATE_FRESH"):
        monkeypatch.delenv(name, raising=False)
    assert allowed()
    for name in ("CI", "VIGIA_GATE_FRESH"):
        with monkeypatch.context() as m:
            m.setenv(name, "1")
            assert not allowed()


def test_what_steps_follow_from_exists() -> None:
    """A room that was renamed would otherwise be watched no more."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = listed.splitlines()
    for wanted in {*EVERYWHERE, *(i for step in (*SHORT, *LONG) for i in step.inputs)}:
        assert wanted == "/" or any(n == wanted or n.startswith(wanted) for n in names), wanted


def test_every_test_is_in_a_step() -> None:
    """Each folder with Python tests is one that a step names."""
    listed = subprocess.run(
        ["git", "ls-files", "*/test_*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    source = Path(steps.__file__).read_text()
    rooms = {name.split("/")[0] for name in listed.stdout.splitlines()}
    assert {r for r in rooms if f'"{r}"' not in source and f'"{r}/' not in source} == set()


def test_what_go_and_pytest_say_is_counted(tmp_path: Path) -> None:
    lines = [
        {
            "Action": "output",
            "Package": "vigia/p",
            "Test": "TestA",
            "Output": "    a_test.go:1: one is wrong\n",
        },
        {"Action": "fail", "Package": "vigia/p", "Test": "TestA", "Elapsed": 3.5},
        {"Action": "pass", "Package": "vigia/p", "Test": "TestB", "Elapsed": 0.1},
        {"Action": "output", "Package": "vigia/p", "Test": "TestC", "Output": "    c_test.go:1: no netem\n"},
        {"Action": "skip", "Package": "vigia/p", "Test": "TestC", "Elapsed": 0},
        {"Action": "fail", "Package": "vigia/p", "Elapsed": 4},
        {"Action": "build-output", "ImportPath": "vigia/q", "Output": "q.go:1: syntax error\n"},
        {"Action": "build-fail", "ImportPath": "vigia/q"},
    ]
    count, said = from_go([json.dumps(line) for line in lines])
    assert (count.passed, count.failed, len(count.skipped)) == (1, 1, 1)
    assert "one is wrong" in said and "syntax error" in said and "netem" not in said
    assert list(count.seconds.values()) == [3.5]
    assert "no netem" in count.skipped[0]
    assert count.failures[0] == "vigia/p TestA: a_test.go:1: one is wrong"
    assert count.failures[-1] == "vigia/q: q.go:1: syntax error"
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="t" name="a" time="2"/>'
        '<testcase classname="t" name="b" time="0.1"><failure message="no"/></testcase>'
        '<testcase classname="t" name="c" time="0"><skipped message="no sch_fq"/></testcase>'
        "</testsuite></testsuites>"
    )
    count = from_junit(report)
    assert (count.passed, count.failed, len(count.skipped)) == (1, 1, 1)
    assert count.seconds == {"t a": 2.0} and "no sch_fq" in count.skipped[0]
    assert count.failures == ["t b: no"]


def test_the_slowest_tests_are_named_at_the_end() -> None:
    seconds = {f"test_{i}": float(i) for i in range(1, 31)}
    said = table([Outcome("toy", Count(passed=30, seconds=seconds), "", 31.0, 12.0)], 40.0)
    assert all(f"test_{i}" in said for i in range(11, 31)) and "test_10 " not in said + " "


def test_what_failed_is_said_last_and_briefly() -> None:
    long = Count(passed=2, failed=1, failures=[f"t b: {shortened('x' * 5000 + chr(10) + 'the end')}"])
    said = table(
        [Outcome("toy", long, "much", 31.0, 12.0), Outcome("lint", Count(failed=1), "a.py:1 no\n", 1.0, 1.0)],
        40.0,
    )
    first, second = said.splitlines()[-2:]
    assert first.startswith("failed: t b: … xxx") and first.endswith("x the end") and len(first) < 500
    assert second == "failed: lint: a.py:1 no"


def test_dots_hide_nothing_of_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    dots = f"{'.' * 72} [  3%]\n{'.' * 50}F{'.' * 21} [  6%]\n..sE [100%]\n"

    def execute(argv: list[str | Path]) -> Ran:
        report = next(str(a).removeprefix("--junit-xml=") for a in argv if "--junit-xml=" in str(a))
        Path(report).write_text("<testsuites/>")
        return Ran(1, f"{dots}=== FAILURES ===\nE   assert 1 == 2\n", "")

    monkeypatch.setattr(commands, "execute", execute)
    with pytest.raises(Failure) as failed:
        commands.pytest("tests")
    assert str(failed.value) == "=== FAILURES ===\nE   assert 1 == 2\n" and failed.value.count.failed == 1
