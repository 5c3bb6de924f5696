"""The command line of a service: options and commands that all of them have.

Nothing heavy is imported here: ``--help``, ``--version`` and a health check
that is run every few seconds need no web server, no numpy, not even YAML.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vigia_service.errors import ServiceError
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from vigia_config.tls import Tls

__all__ = [
    "Checked",
    "Group",
    "Options",
    "Program",
    "as_json",
    "command_line",
    "common",
    "main",
]

FORMATS = ("text", "json", "markdown")
LOG_LEVELS = ("debug", "info", "warn", "error")
LOG_FORMATS = ("logfmt", "json")

CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of every command line."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Checked:
    """What check-config says of a valid configuration."""

    text: str
    """For people, after "FILE: OK, "; may be empty."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """For programs, beside config and ok."""


@dataclass(frozen=True)
class Program:
    """A service, as its command line needs to know it. The callables import what they need."""

    name: str
    version: str
    summary: str
    """What it does, in a sentence."""
    run: Callable[[Path], int]
    """Runs the service with a configuration file until it is told to stop; returns the exit code."""
    check: Callable[[Path], Checked]
    """Reads and validates a configuration file."""
    part: str | None = None
    """Name in the catalogue of metrics; None if it has no metrics."""
    ready_url: str | None = None
    """Where an instance is by default; None if it has no readiness page."""
    listener: Callable[[Path], tuple[str, Tls | None]] | None = None
    """Returns where an instance with a configuration file listens."""


@dataclass
class Options:
    """Options that may stand before or after the command."""

    config: Path | None = None
    log_level: str = "info"
    log_format: str = "logfmt"

    def path(self) -> Path:
        """Return the configuration file. Raises click.UsageError."""
        if self.config is None:
            raise click.UsageError("--config FILE is missing")
        return self.config

    def set_up_logs(self, level: str | None = None) -> None:
        """Log as the options say, or at another level."""
        from vigia_service import logs

        logs.setup(self.log_format, level or self.log_level)


class Group(click.Group):
    """A group whose help shows every command's first sentence whole, and that knows near misses."""

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
            near = difflib.get_close_matches(name, self.list_commands(ctx), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command '{name}'{hint}")
        return super().resolve_command(ctx, args)


def common(command: F) -> F:
    """Accept --config, --log.level and --log.format; they are kept in the context's Options."""

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(context.ensure_object(Options), parameter.name or "", value)

    def option(flag: str, name: str, kind: click.ParamType[Any], words: str) -> Callable[[F], F]:
        return click.option(flag, name, type=kind, help=words, expose_value=False, callback=keep)

    decorated = command
    for flag, name, kind, words in (
        ("--log.format", "log_format", click.Choice(LOG_FORMATS), "Format of the log on standard error."),
        ("--log.level", "log_level", click.Choice(LOG_LEVELS), "Least severity that is logged."),
        ("--config", "config", click.Path(path_type=Path), "Configuration file (YAML)."),
    ):
        decorated = option(flag, name, kind, words)(decorated)
    return decorated


def as_json(command: F) -> F:
    """Accept --json as the parameter as_json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def command_line(program: Program, start: Callable[..., int] | None = None) -> Group:
    """Return the command line of a service; its own commands are added with ``@group.command()``.

    ``start`` replaces what happens without a command. It takes the Options, and by keyword the
    parameters of the click options that it is decorated with.
    """
    begin = start or (lambda options: _run(program, options))

    @click.group(
        program.name,
        cls=Group,
        help=f"{program.summary}\n\nWithout a command: run the service.",
        invoke_without_command=True,
        context_settings=dict(CONTEXT),
    )
    @common
    @click.version_option(program.version, "--version", prog_name=program.name)
    @click.pass_context
    def group(context: click.Context, /, **given: Any) -> int | None:
        options = context.ensure_object(Options)
        return None if context.invoked_subcommand else begin(options, **given)

    group.params[:0] = reversed(getattr(start, "__click_params__", []))
    if program.part is not None:
        _list_metrics(program.part)(group)
    _add_run(group, program)
    _add_check_config(group, program)
    if program.ready_url is not None:
        _add_healthcheck(group, program)
    return group


def _run(program: Program, options: Options) -> int:
    path = options.path()
    options.set_up_logs()
    return program.run(path)


def _add_run(group: Group, program: Program) -> None:
    @group.command()
    @common
    @click.pass_obj
    def run(options: Options) -> int:
        """Run the service."""
        return _run(program, options)


def _add_check_config(group: Group, program: Program) -> None:
    @group.command("check-config")
    @as_json
    @common
    @click.pass_obj
    def check_config(options: Options, as_json: bool) -> None:
        """Read and validate the configuration, then exit."""
        path = options.path()
        checked = program.check(path)
        if as_json:
            click.echo(json.dumps({"config": str(path), "ok": True, **checked.fields}))
        else:
            click.echo(", ".join(filter(None, (f"{path}: OK", checked.text))))


def _add_healthcheck(group: Group, program: Program) -> None:
    @group.command()
    @click.option("--url", help=f"Readiness URL; default: of the configured address, or {program.ready_url}.")
    @as_json
    @common
    @click.pass_obj
    def healthcheck(options: Options, url: str | None, as_json: bool) -> int:
        """Ask a running instance whether it is ready; exit 0 if it is."""
        return _healthcheck(program, options.config, url, as_json)


def _healthcheck(program: Program, config: Path | None, url: str | None, as_json: bool) -> int:
    from vigia_service import health

    if url is not None and not health.is_url(url):
        raise click.UsageError(f"--url {url}: is not a URL; write for example {program.ready_url}")
    listen, tls = program.listener(config) if config and program.listener else (None, None)
    url = url or (health.url_of(listen, tls=tls is not None) if listen else None) or program.ready_url or ""
    found = health.ask(url, tls.client() if tls else None)
    if as_json:
        click.echo(json.dumps({"url": url, "ready": found.ready, "answer": found.text}))
    elif found.ready:
        click.echo(f"{url}: {found.text}")
    else:
        raise ServiceError(f"{url} answers {found.status}: {found.text}")
    return Exit.OK if found.ready else Exit.FAILED


def _list_metrics(part: str) -> Callable[[F], F]:
    def show(context: click.Context, _parameter: click.Parameter, form: str | None) -> None:
        if form is not None:
            from vigia_catalog import part_metrics
            from vigia_catalog.listing import listing

            click.echo(listing(part_metrics(part), form))
            context.exit()

    return click.option(
        "--list-metrics",
        type=click.Choice(FORMATS),
        is_flag=False,
        flag_value="text",
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print every metric of this program and exit.",
    )


def main(group: click.Group, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; a failure is one line (or more) on standard error."""
    try:
        code = group.main(list(arguments) if arguments is not None else None, name, standalone_mode=False)
    except click.UsageError as e:
        return _complain(name, f"{e.format_message().rstrip('.')}; see {name} --help", Exit.USAGE)
    except click.ClickException as e:
        return _complain(name, e.format_message(), Exit.FAILED)
    except click.Abort:
        return Exit.FAILED
    except ServiceError as e:
        return _complain(name, str(e), Exit.FAILED)
    except Exception as e:
        from vigia_config import ConfigError

        if isinstance(e, ConfigError):
            return _complain(name, str(e), Exit.FAILED)
        raise
    return code if isinstance(code, int) else Exit.OK


def _complain(name: str, message: str, code: Exit) -> Exit:
    for line in message.splitlines():
        sys.stderr.write(f"{name}: {line}\n")
    return code
