"""The vigia command: a tree of groups, each defined beside what it does."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import click

from vigia.campaign.cli import campaign
from vigia.certs.cli import certs
from vigia.comparison import compare
from vigia.compose.cli import compose
from vigia.demo.cli import demo, down
from vigia.doctor.cli import doctor
from vigia.errors import VigiaError
from vigia.flood.cli import flood
from vigia.lab.cli import lab
from vigia.nodes.cli import node
from vigia.stack.cli import stack
from vigia_config import ConfigError

__all__ = ["main"]


class Tree(click.Group):
    """Shows errors that are for people as a line, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (VigiaError, ConfigError) as e:
            raise click.ClickException(str(e)) from e
        except OSError as e:
            if isinstance(e, BrokenPipeError):
                raise  # the reader has gone; click ends quietly
            raise click.ClickException(f"{e.filename or 'the system says'}: {e.strerror or e}") from e


@click.group(cls=Tree)
@click.version_option(version("vigia"), prog_name="vigia")
def main() -> None:
    """Network observability for multi-tenant clouds: the lab, the stack, the demo, campaigns."""


for command in (certs, demo, doctor, down, lab, node, stack, flood, campaign, compare, compose):
    main.add_command(command)
