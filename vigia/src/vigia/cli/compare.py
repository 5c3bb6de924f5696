"""vigia compare: vigia-compare's report, pointed at a lab's Prometheus."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vigia.cli.options import Duration, json_option, lab_option
from vigia.errors import VigiaError

__all__ = ["compare"]

_LONG = Duration("1s", "366d", "30s, 15m, 1h or 1d")


@click.command()
@lab_option
@click.option(
    "--prometheus", metavar="URL", help="Server to ask; default: the Prometheus of the lab's stack."
)
@click.option(
    "--since",
    type=_LONG,
    help="Count what was recorded this far back, and no more; default: say what the service says.",
)
@click.option(
    "--at",
    metavar="TIME",
    help="Of the past: 2026-01-31T12:00:00Z, Unix seconds, or how long ago, as 2h.",
)
@click.option("--window", type=_LONG, help="With --since, the length of a window, whole minutes.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="METRIC",
    help="Metric to compare; repeatable. Default: all.",
)
@click.option("--tenant", help="Whose probes to compare; default: the operator's own.")
@click.option(
    "--minimum-windows",
    type=click.IntRange(5, 1000),
    help="Windows that a path needs to be compared with --against.",
)
@click.option("--against", type=_LONG, help="Compare every path with itself this much earlier.")
@click.option(
    "--fail-if",
    multiple=True,
    metavar="A:B | worse",
    help="Exit with 3 if path A is worse than path B, or any path than it was; repeatable.",
)
@json_option
def compare(name: str, prometheus: str | None, as_json: bool, **wanted: object) -> None:
    """Say which path is better, and how sure that is.

    Runs vigia-compare report; vigia-compare report --help explains the options.
    """
    from vigia.host import commands
    from vigia.lab import state
    from vigia.stack import places

    program = Path(sys.executable).parent / "vigia-compare"
    if not program.is_file():
        raise VigiaError(f"{program} is missing; install it: make deps")
    if prometheus is None:
        prometheus = f"http://{places.stack_address(state.running(name).lab, 9090)}"
    words = ["--prometheus", prometheus, *_passed_on(wanted)]
    commands.replace_process([str(program), "report", *words, *(["--json"] if as_json else [])])


def _passed_on(wanted: dict[str, object]) -> list[str]:
    """Return the options as vigia-compare takes them."""
    words: list[str] = []
    for option, name in (("--metric", "metrics"), ("--fail-if", "fail_if")):
        values = wanted.pop(name)
        assert isinstance(values, tuple)  # noqa: S101 - for the type checker: they are repeatable
        for value in values:
            words += [option, str(value)]
    for name, value in wanted.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", f"{value}s" if isinstance(value, float) else str(value)]
    return words
