"""The vigia command: a table of its groups and commands, each defined in a module of its own."""

from __future__ import annotations

from collections.abc import Sequence

import click

from vigia.cli.tree import Tree
from vigia_service import cli

__all__ = ["COMMANDS", "command", "main"]

COMMANDS = {
    "up": "vigia.cli.site",
    "status": "vigia.cli.site",
    "down": "vigia.cli.site",
    "demo": "vigia.cli.demo",
    "flood": "vigia.cli.flood",
    "top": "vigia.cli.top",
    "compare": "vigia.cli.compare",
    "explain": "vigia.cli.explain",
    "lab": "vigia.cli.lab",
    "stack": "vigia.cli.stack",
    "soak": "vigia.cli.soak",
    "campaign": "vigia.cli.campaign",
    "node": "vigia.cli.node",
    "doctor": "vigia.cli.doctor",
    "certs": "vigia.cli.certs",
    "compose": "vigia.cli.compose",
    "completion": "vigia.cli.completion",
}
"""Every command, and the module that has it under its name."""


@click.group("vigia", cls=Tree, table=COMMANDS, context_settings=dict(cli.CONTEXT))
@click.version_option(package_name="vigia", prog_name="vigia")
def command() -> None:
    """Network observability for multi-tenant clouds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return cli.main(command, "vigia", arguments)
