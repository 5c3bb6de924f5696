"""vigia soak, and vigia soak report."""

from __future__ import annotations

from pathlib import Path

import click

from vigia.cli.options import Duration, Number, json_option, steps_of
from vigia_service.cli import Group
from vigia_service.exits import Exit

__all__ = ["soak"]


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--hours",
    type=Number(0, 24 * 60),
    default=3.0,
    show_default=True,
    help="Duration, above 0, at most 1440.",
)
@click.option(
    "--lab",
    "name",
    default="soak",
    show_default=True,
    metavar="NAME",
    help="Name of the soak's own lab; it is removed at the end.",
)
@click.option(
    "--sample-every",
    "sample_seconds",
    type=Duration("1s", "10m", "10s"),
    default="10s",
    show_default=True,
    help="Time between samples, 1s to 10m.",
)
@click.option(
    "--flood-every",
    "flood_seconds",
    type=Duration("3m", "1d", "10m"),
    default="10m",
    show_default=True,
    help="Time between floods, 3m to 1d: the churn repeats itself in it.",
)
@click.option(
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="New folder for samples, events and report; default: soaks/ and the time.",
)
@json_option
@click.pass_context
def soak(  # noqa: PLR0913 - one argument per option
    context: click.Context,
    *,
    hours: float,
    name: str,
    sample_seconds: float,
    flood_seconds: float,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Run the stack for hours under churn; fail if anything grows.

    Brings up a lab and a stack of its own, plugs and unplugs ports, adds and removes targets, reloads every
    program, floods, and samples what processes, kernel and disk hold. Exit code 1: a slope is above its
    limit, a service ended, or some of the churn failed. Everything is removed at the
    end; what a killed soak left, the next one of that name removes, or vigia down --lab NAME. Ctrl-C ends it
    early; vigia soak report then shows what was sampled.
    """
    if context.invoked_subcommand is not None:
        return
    from datetime import UTC, datetime
    from importlib.metadata import version

    from vigia.lab import preflight
    from vigia.soak import run

    preflight.check_rights()
    where = folder or Path("soaks") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    wanted = run.Wanted(name, hours, sample_seconds, flood_seconds, where)
    steps = steps_of(as_json)
    run.soak(wanted, version("vigia"), steps)
    _show(context, where, None, as_json)


@soak.command("report")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.md",
    help="Write the page and its pictures there instead of into DIR.",
)
@json_option
@click.pass_context
def soak_report(context: click.Context, folder: Path, page: Path | None, as_json: bool) -> None:
    """Judge what a soak sampled, also of one that still runs.

    Exit code 1 means that it failed, or was too short to judge anything.
    """
    _show(context, folder, page, as_json)


def _show(context: click.Context, folder: Path, page: Path | None, as_json: bool) -> None:
    from vigia import console
    from vigia.soak import judgement, record, report

    kept = record.read(folder)
    found = judgement.judge(kept)
    written = report.write(kept, found, page or folder / "report.md")
    if as_json:
        console.print_json({"folder": str(folder), "report": str(written), **found.as_json()})
    else:
        click.echo(f"\n{report.as_text(found)}\n\nreport: {written}")
    if not found.passed:
        context.exit(Exit.FAILED)
