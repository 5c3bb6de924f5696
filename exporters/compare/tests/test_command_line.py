"""vigia-compare's command line: a fast start, refusals before anything is loaded, conditions, exit codes."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from vigia_compare.engine import Group

from vigia_compare import cli, outcome
from vigia_compare.conditions import Condition, condition
from vigia_compare.config import Config
from vigia_compare.measures import MEASURES
from vigia_prometheus import Unavailable
from vigia_service.exits import Exit
from vigia_statistics import Direction, Verdict, compare, judge
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
        (("--since", "30s"), "--since: 30s is shorter than 12 windows of 60s; write at least 12m"),
        (("--since", "5m", "--window", "2m"), "--since: 300s is shorter than 12 windows of 120s; write at least 24m, or a shorter window"),
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


def group(*verdicts: tuple[str, str, Verdict]) -> Group:
    """Paths whose pairs were judged so, by samples that say it."""
    low, high = [1.0 + i / 100 for i in range(20)], [2.0 + i / 100 for i in range(20)]
    samples = {Verdict.A: (low, high), Verdict.B: (high, low), Verdict.TIE: (low, low)}
    pairs = [compare(a, b, *samples[verdict]) for a, b, verdict in verdicts]
    return Group(MEASURES["rtt"], "remote", "p", [], judge(pairs, Direction.LOWER, minimum_samples=5))


@pytest.mark.parametrize(
    ("verdict", "worse"), [(Verdict.A, "y:x"), (Verdict.B, "x:y"), (Verdict.TIE, "")], ids=lambda v: str(v)
)
def test_a_condition_holds_for_the_worse_path_alone(verdict: Verdict, worse: str) -> None:
    groups = [group(("x", "y", verdict), ("other", "x", Verdict.A))]
    assert [c.verdict for g in groups for c in g.pairs] == [verdict, Verdict.A]
    asked = [condition(t, with_past=False) for t in ("x:y", "y:x", "x:z", "z:y")]
    assert [c.text for c in outcome.held_by_groups(asked, groups)] == ([worse] if worse else [])


def test_conditions_of_any_metric_count() -> None:
    groups = [group(("x", "y", Verdict.TIE)), group(("x", "y", Verdict.B))]
    asked = [condition("x:y", with_past=False)]
    assert outcome.held_by_groups(asked, groups) == asked
    assert outcome.held_by_groups(asked, []) == []


def test_exit_codes_and_output(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    held = [condition("a:b", with_past=False)]

    def compared(config: Config, now: float, earlier: float | None, conditions: list[Condition]) -> Any:
        asked.append((config, earlier, conditions))
        return "a table", {"version": 1}, held if conditions else []

    monkeypatch.setattr(outcome, "compared", compared)
    assert run("report", "--since", "2h", "--metric", "rtt", "--metric", "loss", "--tenant", "red") == Exit.OK
    assert capsys.readouterr() == ("a table\n", "")
    config, earlier, conditions = asked[-1]
    assert (config.period, config.window, config.metrics) == (7200.0, 120.0, ["rtt", "loss"])
    assert (config.tenant, earlier, conditions) == ("red", None, [])
    assert run("report", "--json", "--fail-if", "a:b") == Exit.FOUND
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"version": 1}
    assert captured.err == "vigia-compare: --fail-if a:b: it is\n"
    assert run("report", "--since", "30m", "--window", "2m", "--against", "1h") == Exit.OK
    assert asked[-1][1] == 3600.0 and asked[-1][0].window == 120.0

    def away(*_: object) -> None:
        raise Unavailable("Prometheus at http://x does not answer: refused; is it running?")

    monkeypatch.setattr(outcome, "compared", away)
    capsys.readouterr()
    assert run("report") == Exit.FAILED
    assert (
        capsys.readouterr().err
        == "vigia-compare: Prometheus at http://x does not answer: refused; is it running?\n"
    )
