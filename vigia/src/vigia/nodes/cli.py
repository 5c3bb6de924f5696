"""vigia node serve, check-config and status."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

import vigia_config
from vigia import console
from vigia.errors import VigiaError

__all__ = ["node"]

_config = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    default=Path("/etc/vigia/node.yaml"),
    show_default=True,
    help="Configuration of the agent.",
)


@click.group()
def node() -> None:
    """The agent that lets campaigns measure across real nodes."""


@node.command()
@_config
def serve(file: Path) -> None:
    """Run the agent of this node until it is told to end."""
    from vigia.nodes import server, settings  # noqa: PLC0415 - takes a second to load

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    server.serve(settings.load(file))


@node.command("check-config")
@_config
def check_config(file: Path) -> None:
    """Say what is wrong with the agent's configuration, with line numbers."""
    from vigia.nodes import settings  # noqa: PLC0415 - takes a second to load

    found = settings.load(file)
    click.echo(f"{file}: agent at {found.listen}:{found.port}")


@node.command()
@click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="Topology of real nodes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(file: Path, as_json: bool) -> None:
    """Ask every agent of a topology what its node is. Exit status 1: one does not answer."""
    from vigia.nodes import bed  # noqa: PLC0415 - takes a second to load
    from vigia.nodes.topology import Topology  # noqa: PLC0415

    topology = vigia_config.load(file, Topology)
    found: list[dict[str, object]] = []
    with bed.connect(topology) as hosts:
        for name, host in hosts.items():
            try:
                found.append({"node": name, "environment": host.environment()})
            except VigiaError as e:
                found.append({"node": name, "error": str(e)})
    if as_json:
        console.print_json(found)
    else:
        click.echo(console.table(("node", "state", "kernel", "load"), [_row(f) for f in found]))
    sys.exit(1 if any("error" in f for f in found) else 0)


def _row(found: dict[str, object]) -> tuple[object, ...]:
    about = found.get("environment")
    if not isinstance(about, dict):
        return found["node"], found["error"], "", ""
    return found["node"], "answers", about.get("kernel", ""), (about.get("load") or [""])[0]
