"""vigia-compare's command line: a fast start, refusals before anything is loaded, conditions, exit codes."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from vigia_compare import cli, outcome
from vigia_compare.conditions import Condition, condition
from vigia_compare.config import Config
from vigia_compare.findings import COSTS, EQUIVALENT, NO_COMMON_HOSTS, OPEN, SAVES, Finding
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_prometheus import Unavailable
from vigia_service.errors import ServiceError
from vigia_service.exits import Exit
from vigia_testing import modules_after

HEAVY = {
    "numpy",
    "scipy",
    "flask",
    "h11",
    "httpx",
    "prometheus_client",
    "vigia_statistics",
    "vigia_prometheus",
}

Out = pytest.CaptureFixture[str]


def run(*arguments: str) -> int:
    return cli.main(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("-h",),
        ("--version",),
        ("report", "-h"),
        ("healthcheck", "--help"),
        ("nonsense",),
        ("report", "--since", "-5m"),
        ("report", "--fail-if", "nonsense"),
        ("report", "--tenant", "no tenant"),
        ("healthcheck", "--url", "http://127.0.0.1:1/"),
    ],
    ids=" ".join,
)
def test_it_starts_and_refuses_without_loading_statistics(arguments: tuple[str, ...]) -> None:
    assert not modules_after("vigia-compare", *arguments) & HEAVY


def test_help(capsys: Out) -> None:
    assert run("-h") == 0
    text = capsys.readouterr().out
    assert "..." not in text.partition("Commands:")[2]
    for word in ("report", "run", "check-config", "healthcheck", "--list-metrics", "Exit codes:"):
        assert word in text
    for name in cli.cli.commands:
        assert run(name, "-h") == 0
        help_text = capsys.readouterr().out
        assert all(o.help for o in cli.cli.commands[name].params if isinstance(o, click.Option)), help_text


def refused(capsys: Out, *arguments: str) -> str:
    assert run("report", *arguments) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


DURATIONS = [
    "",
    "-5m",
    "-0.1s",
    "0s",
    "0.5s",
    "5",
    "m",
    "5x",
    "5 m",
    "1e9d",
    "367d",
    "nan",
    "nand",
    "inf",
    "infd",
    "1m1",
    "½h",
    "five m",
]


@pytest.mark.parametrize("option", ["--since", "--window", "--against"])
@pytest.mark.parametrize("text", DURATIONS)
def test_durations_that_are_none_are_named(capsys: Out, option: str, text: str) -> None:
    line = refused(capsys, f"{option}={text}")
    assert line.startswith(f"vigia-compare: {option} {text}: is ")
    assert "write for example" in line


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86400.0), ("366d", 366 * 86400.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert cli._seconds("--since", text) == seconds


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--minimum-windows", "4"), "'--minimum-windows': 4 is not in the range 5<=x<=1000"),
        (("--metric", "ping"), "'ping' is not one of 'rtt', 'rtt_p99', 'jitter', 'loss'"),
        (("--prometheus", "http://user:secret@host"), "--prometheus: is not the URL of a Prometheus server"),
        (("--prometheus", "http://host\x00"), "--prometheus: is not the URL of a Prometheus server"),
        (("--since", "366d", "--window", "1m"), "--window: 60s cuts period 31622400s into more than 2000 windows"),
        (("--window", "30s"), "--window: 30s is not a whole number of minutes, which Prometheus records windows of; "),
        (("--window", "90s"), "--window: 90s is not a whole number of minutes"),
        (("--since", "30s"), "--since: 30s is shorter than 5 windows of 60s; write at least 5m"),
        (("--since", "5m", "--window", "2m"), "--since: 300s is shorter than 5 windows of 120s; write at least 10m, or a shorter window"),
        (("--tenant", ""), "--tenant: is not a tenant"),
        (("--tenant", "a" * 101), "--tenant: is not a tenant"),
    ],
)  # fmt: skip
def test_options_that_are_none_are_named(capsys: Out, arguments: tuple[str, ...], says: str) -> None:
    line = refused(capsys, *arguments)
    assert says in line and "secret" not in line


# Conditions


@pytest.mark.parametrize("text", ["", "a", ":", "a:", ":b", "a:a", "worse", "better"])
def test_conditions_that_are_none(capsys: Out, text: str) -> None:
    assert "--fail-if" in refused(capsys, "--fail-if", text)


def test_conditions_on_the_past_are_worse_only(capsys: Out) -> None:
    for text in ("a:b", "better", ""):
        assert "with --against write worse" in refused(capsys, "--against", "1d", "--fail-if", text)
    assert condition("worse", with_past=True) == Condition("worse", "", "")


def finding(a: str, b: str, verdict: str, metric: str = "rtt", kind: Kind = Kind.CONTEST) -> Finding:
    return Finding(Cell(metric, "remote", "", "p"), a, b, kind, verdict)


@pytest.mark.parametrize(
    ("kind", "verdict", "worse"),
    [
        (Kind.CONTEST, "x", "y:x"),
        (Kind.CONTEST, "y", "x:y"),
        (Kind.CONTEST, EQUIVALENT, ""),
        (Kind.CONTEST, OPEN, ""),
        (Kind.REFERENCE, COSTS, "x:y"),
        (Kind.ELEMENT, SAVES, "y:x"),
    ],
)
def test_a_condition_holds_for_the_worse_path_alone(kind: Kind, verdict: str, worse: str) -> None:
    findings = [finding("x", "y", verdict, kind=kind), finding("other", "x", "other")]
    asked = [condition(t, with_past=False) for t in ("x:y", "y:x", "x:other")]
    assert [c.text for c in outcome.held_by_findings(asked, findings)] == [
        *([worse] if worse else []),
        "x:other",
    ]


def test_conditions_of_any_metric_count_and_those_of_nothing_are_refused() -> None:
    findings = [
        finding("x", "y", EQUIVALENT),
        finding("x", "y", "y", "loss"),
        finding("x", "z", NO_COMMON_HOSTS),
    ]
    asked = [condition("x:y", with_past=False)]
    assert outcome.held_by_findings(asked, findings) == asked
    assert outcome.held_by_findings([], []) == []
    for text in ("x:z", "x:nobody"):
        with pytest.raises(ServiceError, match=f"--fail-if {text}: these two are not compared"):
            outcome.held_by_findings([condition(text, with_past=False)], findings)


def test_exit_codes_and_output(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Config, outcome.Asked]] = []
    held = [condition("a:b", with_past=False)]

    def compared(config: Config, wanted: outcome.Asked) -> Any:
        asked.append((config, wanted))
        return "a table", {"version": 2}, held if wanted.conditions else []

    monkeypatch.setattr(outcome, "compared", compared)
    assert run("report", "--since", "2h", "--metric", "rtt", "--metric", "loss", "--tenant", "red") == Exit.OK
    assert capsys.readouterr() == ("a table\n", "")
    config, wanted = asked[-1]
    assert (config.period, config.window, config.metrics) == (7200.0, 60.0, ["rtt", "loss"])
    assert (config.tenant, wanted.earlier, wanted.conditions, wanted.computed) == ("red", None, [], True)
    assert run("report", "--json", "--fail-if", "a:b") == Exit.FOUND
    assert not asked[-1][1].computed, "what the service says"
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"version": 2}
    assert captured.err == "vigia-compare: --fail-if a:b: it is\n"
    assert run("report", "--since", "30m", "--window", "2m", "--against", "1h") == Exit.OK
    assert asked[-1][1].earlier == 3600.0 and asked[-1][0].window == 120.0
    for text, at in (
        ("1800000000", 1.8e9),
        ("2026-01-31T12:00:00Z", 1769860800.0),
        ("2026-01-31T12:00", 1769860800.0),
    ):
        monkeypatch.setattr("time.time", lambda: 1.9e9)
        assert run("report", "--at", text) == Exit.OK and asked[-1][1].at == at
    assert run("report", "--at", "2h") == Exit.OK and asked[-1][1].at == 1.9e9 - 7200.0

    def away(*_: object) -> None:
        raise Unavailable("Prometheus at http://x does not answer: refused; is it running?")

    monkeypatch.setattr(outcome, "compared", away)
    capsys.readouterr()
    assert run("report") == Exit.FAILED
    assert (
        capsys.readouterr().err
        == "vigia-compare: Prometheus at http://x does not answer: refused; is it running?\n"
    )
