"""vigia lab: up, down, status, exec, check."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from vigia import console
from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.host.signals import deferred
from vigia.lab import capabilities, down, model, naming, preflight, state, status, topology, up
from vigia.lab.naming import INFRA
from vigia.lab.preflight import Wish

__all__ = ["lab", "lab_option", "topology_option"]

lab_option = click.option(
    "--lab",
    "name",
    default="demo",
    envvar="VIGIA_LAB",
    show_default=True,
    metavar="NAME",
    help="Name of the lab.",
)
topology_option = click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path),
    help="Topology file; without it the demo's, which comes with the program.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def lab() -> None:
    """The lab cloud: compute nodes, tenants and virtual switches in network namespaces."""


def _load(file: Path | None) -> model.Lab:
    return model.resolve(topology.load(file) if file else topology.default())


@lab.command("up")
@topology_option
@click.option(
    "--ovs-datapath",
    "wish",
    type=click.Choice(["auto", "kernel", "userspace"]),
    default="auto",
    show_default=True,
    help="Where Open vSwitch forwards; auto takes the kernel module if it is there.",
)
@_json_option
def lab_up(file: Path | None, wish: Wish, as_json: bool) -> None:
    """Bring the lab up; nothing happens if it is up already."""
    wanted = _load(file)
    steps = Steps(sys.stderr if as_json else sys.stdout)
    present = up.bring_up(wanted, wish, steps)
    if as_json:
        console.print_json(
            {
                "lab": wanted.name,
                "datapath": present.datapath,
                "seconds": round(steps.elapsed, 3),
                "directory": str(wanted.layout.directory),
                "nodes": {n.name: str(n.agent) for n in wanted.nodes},
            }
        )


@lab.command("down")
@lab_option
@_json_option
def lab_down(name: str, as_json: bool) -> None:
    """Remove the lab and everything in it, also after a crash."""
    layout = naming.layout_of(name)
    preflight.check_rights()
    if layout.stack.exists():
        raise VigiaError(f"the stack of lab {name} is beside it; remove both: vigia down --lab {name}")
    steps = Steps(sys.stderr if as_json else sys.stdout)
    with state.locked(layout), deferred(), steps.step(f"removing lab {name}") as done:
        removed = down.remove(layout)
        done.append(
            f"removed lab {name}: {removed}"
            if removed.anything
            else f"lab {name} is not up: nothing to remove"
        )
    if as_json:
        console.print_json(
            {
                "lab": name,
                "removed": removed.anything,
                "namespaces": removed.namespaces,
                "processes": removed.processes,
                "seconds": round(steps.elapsed, 3),
            }
        )


@lab.command("status")
@lab_option
@_json_option
@click.pass_context
def lab_status(context: click.Context, name: str, as_json: bool) -> None:
    """Look at every node, port, path and queue; exit status 1 if anything is wrong."""
    present = state.running(name)
    preflight.check_rights()
    report = status.examine(present)
    if as_json:
        console.print_json(report.as_json())
    else:
        click.echo(report.as_text())
    if report.problems:
        context.exit(1)


@lab.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@lab_option
@click.argument("place", metavar="NODE[/TENANT/PATH]")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def lab_exec(name: str, place: str, command: tuple[str, ...]) -> None:
    """Run a command inside a node, or inside a tenant's machine on it.

    Only the network is the namespace's: files and processes are those of the host.
    """
    present = state.running(name)
    preflight.check_rights()
    words = list(command[1:] if command[0] == "--" else command)
    if not words:
        raise VigiaError("there is no command; write for example: vigia lab exec lb1 -- ip address")
    commands.replace_process(words, netns=_place(present.lab, place))


def _place(wanted: model.Lab, place: str) -> str:
    parts = place.split("/")
    if len(parts) == 1:
        return wanted.node(parts[0]).netns
    if len(parts) != 3:
        raise VigiaError(
            f'"{place}" is no place; write NODE or NODE/TENANT/PATH, for example lb1/red/linuxbridge-vxlan'
        )
    node, tenant, path = parts
    direct = {p.name for p in wanted.topology.paths if p.kind == "direct"}
    if tenant == INFRA and path in direct:
        return wanted.node(node).netns
    return wanted.endpoint(node, tenant, path).netns


@lab.command("paths")
@_json_option
def lab_paths(as_json: bool) -> None:
    """Which kinds of paths this machine can have, how, and why not the others."""
    preflight.check_rights()
    found = capabilities.examine()
    if as_json:
        console.print_json([asdict(c) for c in found])
        return
    rows = [[c.path, "yes" if c.possible else "no", c.explanation] for c in found]
    click.echo(console.table(["path", "possible", "how, or why not"], rows))


@lab.command("check")
@topology_option
@_json_option
def lab_check(file: Path | None, as_json: bool) -> None:
    """Read a topology, say what is wrong with it, change nothing."""
    wanted = _load(file)
    counts = {
        "nodes": len(wanted.nodes),
        "links": len(wanted.links),
        "paths": len(wanted.topology.paths),
        "endpoints": sum(1 for _ in wanted.endpoints),
    }
    if as_json:
        console.print_json({"lab": wanted.name, **counts})
    else:
        shown = ", ".join(f"{count} {what}" for what, count in counts.items())
        click.echo(f"{file or 'demo.yaml'}: lab {wanted.name}: {shown}")
