"""vigia up, status and down: lab and stack together."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vigia.cli.options import (
    cloud_option,
    datapath_option,
    json_option,
    lab_of,
    lab_option,
    steps_of,
    topology_option,
)
from vigia.errors import OptionError, VigiaError
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from vigia.lab.preflight import Wish
    from vigia.lab.status import LabReport
    from vigia.stack.control import Condition

__all__ = ["down", "status", "up"]

_EVERY = 5.0
"""Seconds between two looks of status --watch: each sends ICMP echoes on every path."""


@click.command()
@topology_option
@cloud_option
@datapath_option
@json_option
def up(file: Path | None, cloud: str, wish: Wish, as_json: bool) -> None:
    """Bring up the lab and the monitoring stack, without a flood.

    Leaves alone what is up already. vigia status checks both, vigia demo plays a flood on them, vigia down
    removes them.
    """
    from vigia import console
    from vigia.lab import up as lab_up
    from vigia.stack import addresses, places
    from vigia.stack import up as stack_up

    wanted = lab_of(file, cloud)
    steps = steps_of(as_json)
    stack_up.refuse(wanted.name, cloud)
    places.find_programs()
    present = lab_up.bring_up(wanted, wish, steps, cloud)
    where = stack_up.bring_up(present, steps)
    if as_json:
        console.print_json(
            {
                "lab": wanted.name,
                "cloud": present.cloud,
                "datapath": present.datapath,
                "seconds": round(steps.elapsed, 3),
                "addresses": addresses.of(wanted, where),
            }
        )
    else:
        click.echo(f"\n{addresses.as_table(wanted, where)}")


@click.command()
@lab_option
@click.option("--watch", is_flag=True, help="On a terminal: look again every 5 s, until Ctrl-C.")
@json_option
@click.pass_context
def status(context: click.Context, name: str, watch: bool, as_json: bool) -> None:
    """Check the lab and the stack; exit 1 if anything is wrong.

    vigia lab status and vigia stack status show every part.
    """
    from vigia import console

    if watch and (as_json or not console.is_watched()):
        raise OptionError(
            "--watch: needs a terminal, and goes without --json; without it the status is printed once"
        )
    if watch:
        console.watch(lambda _: _live(*_examined(name)), _EVERY)
        return
    report, services, problems = _examined(name)
    if as_json:
        found = {"lab": report.as_json(), "services": [asdict(c) for c in services]}
        console.print_json({"ok": not problems, "problems": problems, **found})
    else:
        click.echo(_summary(report, services, problems))
    if problems:
        context.exit(Exit.FAILED)


def _examined(name: str) -> tuple[LabReport, list[Condition], list[str]]:
    """Look at a lab that is up and at its stack. Raises VigiaError."""
    from vigia.lab import naming, preflight, state
    from vigia.lab import status as lab_status
    from vigia.stack import control
    from vigia.stack.places import Places

    layout = naming.layout_of(name)
    present = state.read(layout)
    if present is None or present.phase != "up":
        raise VigiaError(f"lab {name} is not up; bring it up: vigia up")
    preflight.check_rights()
    report = lab_status.examine(present)
    problems = list(report.problems)
    services: list[Condition] = []
    try:
        services = control.conditions(Places(layout))
        problems += [f"service {c.name}: {c.problem}" for c in services if c.problem]
    except VigiaError as e:
        problems.append(str(e))
    return report, services, problems


def _live(report: LabReport, services: list[Condition], problems: list[str]) -> RenderableType:
    """Return the summary with the time, and a line for each service."""
    from datetime import UTC, datetime

    from rich.text import Text

    from vigia_text import tables, terminal

    text = Text(datetime.now(UTC).strftime("%H:%M:%S UTC\n"), style="dim")
    for line in _summary(report, services, problems).splitlines():
        style = (
            "bold red" if line.startswith("problem: ") else "green" if line.startswith("everything") else ""
        )
        text.append(f"{terminal.clean(line)}\n", style=style or "not dim")
    rows = [(c.name, c.address, round(c.seconds), c.restarts, c.problem or "ready") for c in services]
    if rows:
        text.append(
            "\n" + tables.table(("service", "address", "up s", "restarts", "state"), rows), style="not dim"
        )
    return text


def _summary(report: LabReport, services: list[Condition], problems: list[str]) -> str:
    ready = sum(not c.problem for c in services)
    nodes, paths = sum(n.ok for n in report.nodes), sum(p.ok for p in report.paths)
    ports = sum(p.up for p in report.ports)
    lines = [
        f"lab {report.lab}: {nodes} of {len(report.nodes)} nodes healthy, "
        f"{ports} of {len(report.ports)} ports up, {paths} of {len(report.paths)} paths answer",
        f"stack: {ready} of {len(services)} services ready" if services else "stack: not up",
    ]
    return "\n".join([*lines, *([f"problem: {p}" for p in problems] or ["everything is healthy"])])


@click.command()
@lab_option
@json_option
def down(name: str, as_json: bool) -> None:
    """Stop the stack and remove the lab, also after a crash.

    Nothing of either is left. Leftovers of killed campaigns are removed, too.
    """
    from vigia import console
    from vigia.isolation import claims
    from vigia.lab import down as lab_down
    from vigia.lab import naming, preflight, state
    from vigia.stack import control
    from vigia.stack.places import Places

    preflight.check_rights()
    layout = naming.layout_of(name)
    steps = steps_of(as_json)
    with state.locked(layout):
        with steps.step("stopping the stack") as done:
            stopped = control.down(Places(layout))
            done.append(f"stopped {stopped} processes" if stopped else "no stack is up")
        with steps.step(f"removing lab {name}") as done:
            removed = lab_down.remove(layout)
            done.append(f"removed lab {name}: {removed}" if removed.anything else f"no lab {name} is up")
    beds = claims.sweep()
    if beds:
        steps.line(f"removed leftovers of killed campaigns: {', '.join(beds)}")
    if as_json:
        console.print_json(
            {"lab": name, "processes": stopped, "namespaces": removed.namespaces, "beds": beds}
        )
