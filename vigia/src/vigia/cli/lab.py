"""vigia lab: up, down, status, exec, paths, check."""

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
from vigia_service.cli import Group
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from vigia.lab.model import Lab
    from vigia.lab.preflight import Wish

__all__ = ["lab"]


@click.group(cls=Group)
def lab() -> None:
    """Manage the lab: a cloud in network namespaces."""


@lab.command("up")
@topology_option
@cloud_option
@datapath_option
@json_option
def lab_up(file: Path | None, cloud: str, wish: Wish, as_json: bool) -> None:
    """Bring the lab up; do nothing if it is up already."""
    from vigia import console
    from vigia.lab import up

    wanted = lab_of(file, cloud)
    steps = steps_of(as_json)
    present = up.bring_up(wanted, wish, steps, cloud)
    if as_json:
        console.print_json(
            {
                "lab": wanted.name,
                "cloud": present.cloud,
                "datapath": present.datapath,
                "seconds": round(steps.elapsed, 3),
                "directory": str(wanted.layout.directory),
                "nodes": {n.name: str(n.agent) for n in wanted.nodes},
            }
        )


@lab.command("down")
@lab_option
@json_option
def lab_down(name: str, as_json: bool) -> None:
    """Remove the lab and everything in it, also after a crash."""
    from vigia import console
    from vigia.host.signals import deferred
    from vigia.lab import down, naming, preflight, state

    layout = naming.layout_of(name)
    preflight.check_rights()
    if layout.stack.exists():
        raise VigiaError(f"the stack of lab {name} is beside it; remove both: vigia down --lab {name}")
    steps = steps_of(as_json)
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
@json_option
@click.pass_context
def lab_status(context: click.Context, name: str, as_json: bool) -> None:
    """Check nodes, ports, paths, queues; exit 1 if one is unhealthy."""
    from vigia import console
    from vigia.lab import preflight, state, status

    present = state.running(name)
    preflight.check_rights()
    report = status.examine(present)
    if as_json:
        console.print_json(report.as_json())
    else:
        click.echo(report.as_text())
    if report.problems:
        context.exit(Exit.FAILED)


@lab.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@lab_option
@click.argument("place", metavar="NODE[/TENANT/PATH]")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def lab_exec(name: str, place: str, command: tuple[str, ...]) -> None:
    """Run a command inside a node, or a tenant's machine on it.

    Only the network is the namespace's: files and processes are those of the host. The exit code is the
    command's own.
    """
    from vigia.host import commands
    from vigia.lab import preflight, state

    present = state.running(name)
    preflight.check_rights()
    words = list(command[1:] if command[0] == "--" else command)
    if not words:
        raise OptionError("there is no command; write for example: vigia lab exec node1 -- ip address")
    commands.replace_process(words, netns=_namespace(present.lab, place))


def _namespace(wanted: Lab, place: str) -> str:
    from vigia.lab.naming import INFRA

    parts = place.split("/")
    if len(parts) == 1:
        return wanted.node(parts[0]).netns
    if len(parts) != 3:
        raise OptionError(
            f'"{place}" is not a place; write NODE or NODE/TENANT/PATH, '
            "for example node1/red/linuxbridge-vxlan"
        )
    node, tenant, path = parts
    direct = {p.name for p in wanted.topology.paths if p.kind == "direct"}
    if tenant == INFRA and path in direct:
        return wanted.node(node).netns
    return wanted.endpoint(node, tenant, path).netns


@lab.command("paths")
@json_option
def lab_paths(as_json: bool) -> None:
    """Test which kinds of paths this machine can have."""
    from vigia import console
    from vigia.lab import capabilities, preflight

    preflight.check_rights()
    found = capabilities.examine()
    if as_json:
        console.print_json([asdict(c) for c in found])
        return
    rows = [[c.path, "yes" if c.possible else "no", c.explanation] for c in found]
    console.print_table(["path", "possible", "how, or what is missing"], rows)


@lab.command("check")
@topology_option
@json_option
def lab_check(file: Path | None, as_json: bool) -> None:
    """Validate a topology file; change nothing."""
    from vigia import console

    wanted = lab_of(file)
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
