"""The whole command: a table of groups and commands, each loaded when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from vigia.errors import OptionError, VigiaError
from vigia_service.cli import Group

__all__ = ["Tree"]


class Tree(Group):
    """A group whose commands are imported from their modules when they are used."""

    def __init__(self, *arguments: Any, table: Mapping[str, str], **options: Any) -> None:
        """table has the module of each command; it is called there as it is here."""
        super().__init__(*arguments, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the table, in its order."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        module = self._table.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or say which may have been meant: vigia run may be vigia campaign run."""
        if self.get_command(ctx, args[0]) is None:
            groups = [(g, self.get_command(ctx, g)) for g in self.list_commands(ctx)]
            found = [
                f"vigia {g} {args[0]}"
                for g, c in groups
                if isinstance(c, click.Group) and args[0] in c.commands
            ]
            if found:
                ctx.fail(f"No such command '{args[0]}'; did you mean {' or '.join(found)}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for; what the system refuses is a line, too."""
        try:
            return super().invoke(ctx)
        except OptionError as e:
            raise click.UsageError(str(e)) from e
        except BrokenPipeError:
            raise  # the reader has gone; click ends quietly
        except OSError as e:
            raise VigiaError(f"{e.filename or 'the system says'}: {e.strerror or e}") from e
