"""vigia stack: up, down, status."""

from __future__ import annotations

from dataclasses import asdict

import click

from vigia.cli.options import json_option, lab_option, steps_of
from vigia_service.cli import Group
from vigia_service.exits import Exit

__all__ = ["stack"]


@click.group(cls=Group)
def stack() -> None:
    """Manage the monitoring stack of a lab.

    Agents on every node, Prometheus, Alertmanager, isolation agent, comparison.
    """


@stack.command("up")
@lab_option
@json_option
def stack_up(name: str, as_json: bool) -> None:
    """Start the stack of a lab that is up; do nothing if it runs."""
    from vigia import console
    from vigia.lab import preflight, state
    from vigia.stack import control, up

    present = state.running(name)
    preflight.check_rights()
    where = up.bring_up(present, steps_of(as_json))
    if as_json:
        console.print_json({"lab": name, "services": [asdict(c) for c in control.conditions(where)]})


@stack.command("down")
@lab_option
@json_option
def stack_down(name: str, as_json: bool) -> None:
    """Stop the stack and remove its files and data; the lab stays."""
    from vigia import console
    from vigia.lab import naming, preflight, state
    from vigia.stack import control
    from vigia.stack.places import Places

    preflight.check_rights()
    layout = naming.layout_of(name)
    where = Places(layout)
    with state.locked(layout), steps_of(as_json).step("stopping the stack") as done:
        stopped = control.down(where)
        done.append(f"stopped {stopped} processes" if stopped else "the stack is not up: nothing to stop")
    if as_json:
        console.print_json({"lab": name, "processes": stopped})


@stack.command("status")
@lab_option
@json_option
@click.pass_context
def stack_status(context: click.Context, name: str, as_json: bool) -> None:
    """Ask every service whether it is ready; exit 1 if one is not."""
    from vigia import console
    from vigia.lab import naming
    from vigia.stack import control
    from vigia.stack.places import Places

    found = control.conditions(Places(naming.layout_of(name)))
    if as_json:
        console.print_json([asdict(c) for c in found])
    else:
        rows = [
            (c.name, c.address, c.pid or "-", round(c.seconds), c.restarts, c.problem or "ready")
            for c in found
        ]
        console.print_table(("service", "address", "pid", "up s", "restarts", "state"), rows)
    if any(c.problem for c in found):
        context.exit(Exit.FAILED)
