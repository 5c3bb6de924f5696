"""vigia stack: up, down, status."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from vigia import console
from vigia.console import Steps
from vigia.lab import naming, preflight, state
from vigia.lab.cli import lab_option
from vigia.stack import control
from vigia.stack.places import Places

__all__ = ["bring_up", "stack"]

READY_SECONDS = 120.0
"""How long a service may take to work; generous, for slow machines."""


@click.group()
def stack() -> None:
    """The monitoring stack of a lab: agents, Prometheus, Alertmanager, isolation agent."""


def bring_up(present: state.State, steps: Steps) -> Places:
    """Start the stack of a lab unless it runs, and wait until all of it works."""
    with state.locked(present.lab.layout):
        return _bring_up(present, steps)


def _bring_up(present: state.State, steps: Steps) -> Places:
    where = Places(present.lab.layout)
    if control.is_up(where):
        bad = [c for c in control.conditions(where) if c.problem]
        if not bad:
            steps.line("the stack is already up")
            return where
        with steps.step("removing a stack that does not work") as done:
            control.down(where)
            done.append(f"removed a stack that did not work ({bad[0].name}: {bad[0].problem})")
    services = control.prepare(present.lab)
    with steps.step(f"starting {len(services)} services") as done:
        control.start(where)
        ready = 0
        for _ in control.wait_ready(where, services, READY_SECONDS):
            ready += 1
        done.append(f"started {ready} services; all of them are ready")
    return where


@stack.command("up")
@lab_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stack_up(name: str, as_json: bool) -> None:
    """Start the stack beside a lab that is up; nothing happens if it runs."""
    present = state.running(name)
    preflight.check_rights()
    steps = Steps(sys.stderr if as_json else sys.stdout)
    where = bring_up(present, steps)
    if as_json:
        console.print_json({"lab": name, "services": [asdict(c) for c in control.conditions(where)]})


@stack.command("down")
@lab_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stack_down(name: str, as_json: bool) -> None:
    """Stop the stack and remove its files and data; the lab stays."""
    preflight.check_rights()
    layout = naming.layout_of(name)
    where = Places(layout)
    steps = Steps(sys.stderr if as_json else sys.stdout)
    with state.locked(layout), steps.step("stopping the stack") as done:
        stopped = control.down(where)
        done.append(f"stopped {stopped} processes" if stopped else "the stack is not up: nothing to stop")
    if as_json:
        console.print_json({"lab": name, "processes": stopped})


@stack.command("status")
@lab_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def stack_status(context: click.Context, name: str, as_json: bool) -> None:
    """Ask every service whether it works; exit status 1 if one does not."""
    found = control.conditions(Places(naming.layout_of(name)))
    if as_json:
        console.print_json([asdict(c) for c in found])
    else:
        rows = [
            (c.name, c.address, c.pid or "-", round(c.seconds), c.restarts, c.problem or "ready")
            for c in found
        ]
        click.echo(console.table(("service", "address", "pid", "up s", "restarts", "state"), rows))
    if any(c.problem for c in found):
        context.exit(1)
