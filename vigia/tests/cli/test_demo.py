"""vigia demo: what is printed where somebody watches, where nobody does, and as JSON; its parts have tests of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vigia.console import Steps
from vigia.course import Course
from vigia.errors import VigiaError
from vigia_prometheus import PrometheusError

Vigia = Callable[..., Any]


class Parts:
    """What a demo is made of, in place of a lab: each says that it was there."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.failure: Exception | None = None
        self.lab = SimpleNamespace(lab="the lab", datapath="kernel")

    def bring_lab(self, wanted: Any, wish: str, steps: Steps) -> Any:
        assert wish == "auto" and isinstance(steps, Course)
        with steps.step("building", expected=0.1) as done:
            done.append("lab demo is up")
        self.seen.append("lab")
        return self.lab

    def bring_stack(self, present: Any, steps: Steps) -> Any:
        assert present is self.lab
        steps.line("started 11 services")
        self.seen.append("stack")
        return SimpleNamespace(api_token=Path("/token"))

    def samples(self, lab: Any, _: Any) -> Iterator[int]:
        assert lab == "the lab"
        self.seen.append("measurement")
        yield from (2, 42)

    def play(self, who: Any, prometheus: Any, agent: Any, tell: Callable[[str], None], lab: Any) -> Any:
        if self.failure:
            raise self.failure
        assert (agent, lab) == ("the agent", "the lab")
        tell("red floods")
        self.seen.append("flood")
        return "what was played"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    made = Parts()
    result = SimpleNamespace(
        as_json=lambda: {"victim": "blue"},
        timeline=lambda room: "the timeline",
        victim=lambda room: "100 Mbit/s",
    )
    figure = SimpleNamespace(as_json=lambda: {"path": "gre"})
    replaced: dict[str, Any] = {
        "vigia.demo.scenario.cast": lambda lab, path: SimpleNamespace(victim=SimpleNamespace(tenant="blue")),
        "vigia.demo.scenario.play": made.play,
        "vigia.stack.places.find_programs": lambda: None,
        "vigia.stack.places.stack_address": lambda lab, port: f"127.0.0.1:{port}",
        "vigia.lab.up.bring_up": made.bring_lab,
        "vigia.stack.up.bring_up": made.bring_stack,
        "vigia_prometheus.Prometheus": lambda url: nullcontext(url),
        "vigia.stack.agent.IsolationAgent": lambda address, token: nullcontext("the agent"),
        "vigia.demo.measured.wait_for_samples": made.samples,
        "vigia.demo.measured.read": lambda lab, prometheus: [figure],
        "vigia.demo.measured.as_table": lambda figures, room: "path gre",
        "vigia.demo.outcome.promised": lambda who, datapath: 1.0,
        "vigia.demo.outcome.assess": lambda played, promised: result,
        "vigia.stack.addresses.as_table": lambda lab, where: "comparison  http://127.0.0.1:9875/",
        "vigia.stack.addresses.of": lambda lab, where: {"comparison": "http://127.0.0.1:9875/"},
    }
    for name, part in replaced.items():
        monkeypatch.setattr(name, part)
    return made


STAGES = ["lab", "stack", "measurement", "flood"]
LINES = [
    "lab demo is up",
    "started 11 services",
    "measured 42 directions of paths, 100 probes or more on each",
    "red floods",
    "the flood scenario is complete",
]


def lines_of(text: str) -> list[str]:
    return re.findall(r"^ {0,6}\d+\.\d\d s  (.*?)\s*$", text, re.MULTILINE)


def in_order(text: str, *wanted: str) -> bool:
    at = [text.index(w) for w in wanted]
    return at == sorted(at)


def test_where_nobody_watches_lines_and_tables_take_turns(vigia: Vigia, parts: Parts) -> None:
    done = vigia("demo")
    assert (done.status, done.stderr) == (0, "")
    assert parts.seen == STAGES and lines_of(done.stdout) == LINES
    assert "\x1b" not in done.stdout and "about" not in done.stdout
    assert in_order(done.stdout, LINES[2], "path gre", LINES[3], "the timeline", "100 Mbit/s", "9875")
    assert done.stdout.count("path gre") == 1


def test_who_watches_has_the_tables_after_the_view_and_addresses_last(
    vigia: Vigia, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[list[str]] = []

    def view(course: Course) -> Any:
        shown.append(list(parts.seen))
        return nullcontext()

    monkeypatch.setattr(Course, "is_terminal", True)
    monkeypatch.setattr(Course, "shown", view)
    done = vigia("demo")
    assert done.status == 0 and shown == [[]], "one view, and from the beginning on"
    assert lines_of(done.stdout) == LINES
    assert in_order(done.stdout, LINES[-1], "path gre", "the timeline", "100 Mbit/s", "9875")
    assert done.stdout.count("path gre") == 1
    assert done.stdout.rstrip().endswith("http://127.0.0.1:9875/")


def test_json_is_alone_on_its_stream(vigia: Vigia, parts: Parts) -> None:
    done = vigia("demo", "--json")
    assert json.loads(done.stdout) == {
        "paths": [{"path": "gre"}],
        "victim": "blue",
        "addresses": {"comparison": "http://127.0.0.1:9875/"},
    }
    assert lines_of(done.stderr) == LINES and "path gre" not in done.stderr


@pytest.mark.parametrize(
    "failure", [VigiaError("no limit within 30 s"), PrometheusError("no limit within 30 s")]
)
def test_what_did_not_happen_is_said_and_nothing_is_claimed(
    vigia: Vigia, parts: Parts, failure: Exception
) -> None:
    parts.failure = failure
    done = vigia("demo")
    assert done.status == 1 and "no limit within 30 s" in done.stderr
    assert lines_of(done.stdout) == LINES[:3] and "What happened" not in done.stdout
    assert parts.seen == STAGES[:3]
