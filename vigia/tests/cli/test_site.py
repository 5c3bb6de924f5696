"""vigia up, status and down, on a lab of the tests' own with a stack of its own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from labkit import need_root, own_topology

from vigia.cli import site
from vigia.lab import model, topology
from vigia.lab.status import LabReport
from vigia.stack.control import Condition
from vigia.stack.places import Places

NAME = "tsite"
Vigia = Callable[..., Any]


def test_status_of_nothing(vigia: Vigia) -> None:
    done = vigia("status", "--lab", "never")
    assert (done.status, done.stderr) == (1, "vigia: lab never is not up; bring it up: vigia up\n")
    assert vigia("status", "--lab", "never", "--json").stdout == ""


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_watching_needs_a_terminal(vigia: Vigia, more: tuple[str, ...]) -> None:
    done = vigia("status", "--watch", *more, "--lab", "never")
    assert done.status == 2 and "--watch: needs a terminal" in done.stderr


def test_watching_shows_the_summary_and_every_service(vigia: Vigia, monkeypatch: pytest.MonkeyPatch) -> None:
    report, bad = LabReport("demo", "kernel"), condition("b", "no answer \x1b[2J")
    found = [
        (report, [condition("a"), bad], ["service b: no answer \x1b[2J"]),
        (report, [condition("a")], []),
    ]
    drawn: list[str] = []

    def watch(draw: Callable[[int], Any], every: float) -> None:
        assert every == 5.0
        drawn.extend(draw(24).plain for _ in range(2))

    monkeypatch.setattr("vigia.console.is_watched", lambda: True)
    monkeypatch.setattr("vigia.console.watch", watch)
    monkeypatch.setattr(site, "_examined", lambda name: found.pop(0))
    assert vigia("status", "--watch").status == 0
    first, second = drawn
    assert "stack: 1 of 2 services ready" in first and "problem: service b" in first
    assert "\x1b" not in first and "127.0.0.1:1" in first
    assert "everything is healthy" in second and "ready" in second


def condition(name: str, problem: str = "") -> Condition:
    return Condition(name, "127.0.0.1:1", 1, 1.0, 0, problem)


def test_the_summary_is_a_line_for_each_and_one_for_each_problem() -> None:
    report = LabReport("demo", "kernel")
    assert site._summary(report, [condition("a"), condition("b")], []).splitlines() == [
        "lab demo: 0 of 0 nodes healthy, 0 of 0 ports up, 0 of 0 paths answer",
        "stack: 2 of 2 services ready",
        "everything is healthy",
    ]
    problems = ["node lb1: eth0 is down", "service b: no answer"]
    assert site._summary(report, [condition("a"), condition("b", "no answer")], problems).splitlines()[
        1:
    ] == [
        "stack: 1 of 2 services ready",
        "problem: node lb1: eth0 is down",
        "problem: service b: no answer",
    ]
    assert "stack: not up" in site._summary(report, [], ["x"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A topology whose addresses nobody else has; whatever is made of it is removed."""
    need_root()
    file = own_topology(tmp_path_factory.mktemp("site"), NAME, "127.97.0.0/24")
    text = file.read_text().replace("stack_address: 127.0.0.1 ", "stack_address: 127.97.0.250 ")
    assert "127.97.0.250" in text
    file.write_text(text)
    yield file


@pytest.mark.netns
def test_a_lab_without_its_stack_then_with_it_then_gone(
    vigia: Vigia, place: Any, wait_until: Callable[..., Any]
) -> None:
    vigia("down", "--lab", NAME)
    try:
        assert vigia("lab", "up", "--topology", str(place)).status == 0
        half = [
            f"lab {NAME}: 2 of 2 nodes healthy, 56 of 56 ports up, 37 of 37 paths answer",
            "stack: not up",
            f"problem: the stack of lab {NAME} is not up; start it: vigia stack up",
        ]
        wait_until(
            lambda: vigia("status", "--lab", NAME).stdout.splitlines() == half, "the lab alone to be well"
        )
        assert vigia("status", "--lab", NAME).status == 1

        # A lab that is up is tried first, with echoes that have a second each.
        ups: list[Any] = []
        wait_until(
            lambda: ups.append(vigia("up", "--topology", str(place), "--json")) or ups[-1].status == 0,
            lambda: f"the lab to be well and its stack to start: {ups[-1].stderr}",
        )
        (up,) = ups[-1:]
        assert (up.json["lab"], up.json["cloud"]) == (NAME, "plain")
        assert up.json["addresses"]["console"] == "http://127.97.0.250:9874/"
        assert "all of them are ready" in up.stderr

        # A service has three seconds to answer, and a path one, which a busy machine may not keep to at once.
        said = ["stack: 11 of 11 services ready", "everything is healthy"]
        wait_until(
            lambda: (
                (whole := vigia("status", "--lab", NAME)).status == 0
                and whole.stdout.splitlines()[1:] == said
            ),
            "everything to be healthy",
        )

        again = wait_until(
            lambda: (
                "the stack is already up" in (found := vigia("up", "--topology", str(place))).stdout and found
            ),
            "both to be found well",
        )
        assert again.status == 0
        assert "http://127.97.0.250:9090/graph" in again.stdout

        lab = model.resolve(topology.load(place))
        status = json.loads(Places(lab.layout).status.read_text())["services"]
        os.kill(status["vigia-compare"]["pid"], signal.SIGSTOP)  # there, and yet no answer
        try:
            hung = wait_until(
                lambda: len((found := vigia("status", "--lab", NAME, "--json")).json["problems"]) == 1
                and found,
                "nothing else to be wrong",
            )
        finally:
            os.kill(status["vigia-compare"]["pid"], signal.SIGCONT)
        assert (hung.status, hung.json["ok"]) == (1, False)
        (problem,) = hung.json["problems"]
        assert problem.startswith("service vigia-compare: no answer")
        assert len(hung.json["services"]) == 11
        wait_until(lambda: vigia("status", "--lab", NAME).status == 0, "it answers again")

        refused = vigia("lab", "down", "--lab", NAME)
        assert (refused.status, refused.stderr) == (
            1,
            f"vigia: the stack of lab {NAME} is beside it; remove both: vigia down --lab {NAME}\n",
        )
    finally:
        gone = vigia("down", "--lab", NAME, "--json")
    assert gone.status == 0, gone.stderr
    assert gone.json["processes"] > 0
    assert len(gone.json["namespaces"]) == 61
    assert not Places(model.resolve(topology.load(place)).layout).directory.exists()
    assert vigia("down", "--lab", NAME).stdout.count("no ") == 2, "again there is nothing"
