"""vigia node: serve, check-config and status."""

from __future__ import annotations

from pathlib import Path

import click

from vigia.cli.options import json_option
from vigia.errors import VigiaError
from vigia_service.cli import Group
from vigia_service.exits import Exit

__all__ = ["node"]

_config = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    default=Path("/etc/vigia/node.yaml"),
    show_default=True,
    help="Configuration file of the agent.",
)


@click.group(cls=Group)
def node() -> None:
    """Run and check the agents of campaigns across real nodes."""


@node.command()
@_config
def serve(file: Path) -> None:
    """Run the agent of this node until it is stopped."""
    from vigia.nodes import server, settings
    from vigia_service import logs

    logs.setup("logfmt", "info")
    server.serve(settings.load(file))


@node.command("check-config")
@_config
@json_option
def check_config(file: Path, as_json: bool) -> None:
    """Validate the agent's configuration; change nothing."""
    from vigia import console
    from vigia.nodes import settings

    found = settings.load(file)
    if as_json:
        console.print_json({"config": str(file), "ok": True, "listen": f"{found.listen}:{found.port}"})
    else:
        click.echo(f"{file}: agent at {found.listen}:{found.port}")


@node.command()
@click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="Topology file of the nodes.",
)
@json_option
@click.pass_context
def status(context: click.Context, file: Path, as_json: bool) -> None:
    """Ask the agents of a topology; exit 1 if one does not answer."""
    import vigia_config
    from vigia import console
    from vigia.nodes import testbed
    from vigia.nodes.topology import NodesTopology

    topology = vigia_config.load(file, NodesTopology)
    found: list[dict[str, object]] = []
    with testbed.connect(topology) as hosts:
        for name, host in hosts.items():
            try:
                found.append({"node": name, "environment": host.environment()})
            except VigiaError as e:
                found.append({"node": name, "error": str(e)})
    if as_json:
        console.print_json(found)
    else:
        console.print_table(("node", "state", "kernel", "load"), [_row(f) for f in found])
    if any("error" in f for f in found):
        context.exit(Exit.FAILED)


def _row(found: dict[str, object]) -> tuple[object, ...]:
    about = found.get("environment")
    if not isinstance(about, dict):
        return found["node"], found["error"], "", ""
    return found["node"], "answers", about.get("kernel", ""), (about.get("load") or [""])[0]
