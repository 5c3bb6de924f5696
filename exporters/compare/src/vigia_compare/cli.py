"""The command line. Modules that take a moment to load are imported by the commands that need them."""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vigia_compare import __version__, moments
from vigia_compare.conditions import condition
from vigia_compare.limits import MAX_WINDOWS, MINUTE
from vigia_compare.measures import MEASURES
from vigia_service import cli as frame
from vigia_service.cli import Checked, Program
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from vigia_compare.config import Config
    from vigia_config.tls import Tls

__all__ = ["main"]

_LONGEST = 366 * 86400.0


def _run(path: Path) -> int:
    from vigia_compare import service

    return service.run(path)


def _check(path: Path) -> Checked:
    config = _load(path)
    text = f"{len(config.metrics)} metrics in windows of {config.window:g} s"
    return Checked(text, {"metrics": config.metrics})


def _listener(path: Path) -> tuple[str, Tls | None]:
    config = _load(path)
    return config.listen, config.tls


def _load(path: Path) -> Config:
    from vigia_compare.config import Config
    from vigia_config import load

    return load(path, Config)


PROGRAM = Program(
    name="vigia-compare",
    version=__version__,
    summary="Compare paths: which one is better, live, and whether the difference is real.",
    run=_run,
    check=_check,
    part="compare",
    ready_url="http://127.0.0.1:9875/-/ready",
    listener=_listener,
)

cli = frame.command_line(PROGRAM)


@cli.command()
@click.option(
    "--prometheus", "url", default="http://127.0.0.1:9090", show_default=True, help="Server to ask."
)
@click.option(
    "--since", help="Count what was recorded this far back, and no more; default: say what the service says."
)
@click.option(
    "--at", "moment", help="Of the past: 2026-01-31T12:00:00Z, Unix seconds, or how long ago, as 2h."
)
@click.option("--window", help="With --since, the length of a window, whole minutes.")
@click.option(
    "--metric", "metrics", multiple=True, type=click.Choice(tuple(MEASURES)), help="Repeatable; default: all."
)
@click.option("--tenant", default="_infra", show_default=True, help="Whose probes to compare.")
@click.option(
    "--minimum-windows",
    type=click.IntRange(5, 1000),
    default=12,
    show_default=True,
    help="Windows that a path needs to be compared with --against.",
)
@click.option("--against", help="Compare every path with itself this much earlier, for example 1d.")
@click.option(
    "--fail-if",
    multiple=True,
    metavar="A:B | worse",
    help="Exit with 3 if path A is worse than path B on any metric asked; worse: with --against, if any "
    "path is worse than it was. Only differences that separate count. Repeatable.",
)
@frame.as_json
def report(  # noqa: PLR0913
    url: str,
    since: str | None,
    moment: str | None,
    window: str | None,
    metrics: tuple[str, ...],
    tenant: str,
    minimum_windows: int,
    against: str | None,
    fail_if: tuple[str, ...],
    as_json: bool,
) -> int:
    """Say which path is better, and how sure that is: what the service says, or what a period shows."""
    # What is wrong is refused before anything heavy is loaded.
    conditions = [condition(text, against is not None) for text in fail_if]
    at = _moment(moment, time.time())
    period = _seconds("--since", since) if since is not None else 3600.0
    earlier = _seconds("--against", against) if against is not None else None
    most = 60.0 if earlier is not None else MAX_WINDOWS
    length = (
        _seconds("--window", window) if window is not None else MINUTE * math.ceil(period / most / MINUTE)
    )
    if earlier is not None and period < minimum_windows * length:
        raise click.UsageError(
            f"--since: {period:g}s is shorter than {minimum_windows} windows of {length:g}s; write at least "
            f"{minimum_windows * length / MINUTE:g}m"
        )
    config = _config(
        prometheus=url,
        tenant=tenant,
        period=f"{period}s",
        window=f"{length}s",
        **({"metrics": list(metrics)} if metrics else {}),
    )
    if window is not None and since is None and against is None:
        raise click.UsageError("--window: goes with --since or --against; the service's windows are its own")
    from vigia_compare.outcome import Asked, compared

    asked = Asked(at, since is not None, earlier, minimum_windows, conditions)
    text, data, failed = compared(config, asked)
    click.echo(json.dumps(data) if as_json else text)
    for c in failed:
        sys.stderr.write(f"{PROGRAM.name}: --fail-if {c.text}: it is\n")
    return Exit.FOUND if failed else Exit.OK


def _config(**values: Any) -> Config:
    from pydantic import ValidationError

    from vigia_compare.config import Config

    try:
        return Config.model_validate(values)
    except ValidationError as e:
        first = e.errors()[0]
        context = first.get("ctx", {})
        field = ".".join(str(x) for x in (*first["loc"], *context.get("at", [])))
        option = {"period": "--since", "window": "--window", "tenant": "--tenant"}.get(field, f"--{field}")
        raise click.UsageError(f"{option}: {first['msg']}") from e


def _seconds(option: str, text: str) -> float:
    """Return a duration of at least a second and at most a year. Raises click.UsageError."""
    match = moments.DURATION.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{option} {text}: is not a duration; write for example 30s, 15m, 1h or 1d")
    seconds = float(match[1]) * moments.SECONDS[match[2]]
    if not 1.0 <= seconds <= _LONGEST:
        raise click.UsageError(f"{option} {text}: is outside 1s to 366d; write for example 1h")
    return seconds


def _moment(text: str | None, now: float) -> float:
    """Return a moment of the past, Unix time. Raises click.UsageError."""
    if text is None:
        return now
    try:
        return moments.moment(text, now)
    except ValueError as e:
        raise click.UsageError(f"--at {text}: {e}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code, see vigia_service.exits."""
    return frame.main(cli, PROGRAM.name, arguments)
