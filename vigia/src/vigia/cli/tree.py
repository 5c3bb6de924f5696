"""Groups of commands: loaded when they are used, with whole sentences in help, and near misses named."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from vigia.cli.exits import Exit
from vigia.errors import OptionError, VigiaError

__all__ = ["CONTEXT", "Group", "Tree"]

CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of every command."""


class Group(click.Group):
    """A group whose help shows every command's first sentence whole, and that knows near misses."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, without cutting what they say of themselves."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, c.get_short_help_str(10_000)) for name, c in commands if c and not c.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the exit codes."""
        super().format_epilog(ctx, formatter)
        if ctx.parent is None:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code.value), code.meaning) for code in Exit])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or say which one may have been meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = self.near(ctx, name)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command '{name}'{hint}")
        return super().resolve_command(ctx, args)

    def near(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands that may have been meant by a name that is none, as they are typed."""
        close = difflib.get_close_matches(name, self.list_commands(ctx), 1)
        return [f"{ctx.command_path} {c}" for c in close]


class Tree(Group):
    """The whole command: a table of groups and commands, each imported from its module when it is used.

    Errors that are for people are shown as a line, without a traceback.
    """

    def __init__(self, *arguments: Any, table: Mapping[str, str], **options: Any) -> None:
        """table has the module of each command; it is called there as it is here."""
        super().__init__(*arguments, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        module = self._table.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def near(self, ctx: click.Context, name: str) -> list[str]:
        """Look into the groups, too: vigia run may mean vigia campaign run."""
        found = super().near(ctx, name)
        for group in self.list_commands(ctx):
            command = self.get_command(ctx, group)
            if isinstance(command, click.Group) and name in command.commands:
                found.append(f"{ctx.command_path} {group} {name}")
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except OptionError as e:
            raise click.UsageError(str(e)) from e
        except VigiaError as e:
            raise click.ClickException(str(e)) from e
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click ends with it
        except OSError as e:
            raise click.ClickException(f"{e.filename or 'the system says'}: {e.strerror or e}") from e
        except Exception as e:
            from vigia_config import ConfigError

            if isinstance(e, ConfigError):
                raise click.ClickException(str(e)) from e
            raise
