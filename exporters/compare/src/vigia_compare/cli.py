"""The command line."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
from pydantic import ValidationError

from vigia_catalog import Metric, part_metrics
from vigia_compare import __version__
from vigia_compare.config import Config
from vigia_compare.errors import CompareError
from vigia_compare.measures import MEASURES
from vigia_config import ConfigError, load

__all__ = ["main"]

PROGRAM = "vigia-compare"
READY_URL = "http://127.0.0.1:9875/-/ready"
FORMATS = ("text", "json", "markdown")
EXIT_ERROR, EXIT_USAGE, EXIT_WORSE = 1, 2, 3

F = TypeVar("F", bound=Callable[..., Any])


def _list_metrics(context: click.Context, _parameter: click.Parameter, form: str | None) -> None:
    if form is not None:
        click.echo(_metrics_as(form, part_metrics("compare")))
        context.exit()


def _config_option(command: F) -> F:
    return click.option(
        "--config", "path", type=click.Path(path_type=Path), help="Configuration file (YAML)."
    )(command)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name=PROGRAM)
@click.option(
    "--list-metrics",
    type=click.Choice(FORMATS),
    is_flag=False,
    flag_value="text",
    is_eager=True,
    expose_value=False,
    callback=_list_metrics,
    help="Print every metric of this program and exit.",
)
@click.option(
    "--log.level",
    "level",
    type=click.Choice(("debug", "info", "warn", "error")),
    default="info",
    help="Least severity that is logged.",
)
@_config_option
@click.pass_context
def cli(context: click.Context, level: str, path: Path | None) -> None:
    """Say which path is better, live, and whether the difference is real.

    Without a command: run the service.
    """
    logging.basicConfig(
        stream=sys.stderr,
        format="time=%(asctime)s level=%(levelname)s source=%(name)s msg=%(message)r",
        level={"warn": "WARNING"}.get(level, level.upper()),
        force=True,
    )
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    context.obj = path
    if context.invoked_subcommand is None:
        context.invoke(run)


def _path(given: Path | None, common: Path | None) -> Path:
    path = given or common
    if path is None:
        raise click.UsageError("--config FILE is missing")
    return path


@cli.command()
@_config_option
@click.pass_obj
def run(common: Path | None, path: Path | None = None) -> int:
    """Run the service."""
    from vigia_compare import service  # noqa: PLC0415 - other commands need no web server

    return service.run(_path(path, common))


@cli.command("check-config")
@_config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def check_config(common: Path | None, path: Path | None, as_json: bool) -> None:
    """Read and validate the configuration, then exit."""
    file = _path(path, common)
    config = load(file, Config)
    if as_json:
        click.echo(json.dumps({"config": str(file), "ok": True, "metrics": config.metrics}))
    else:
        click.echo(f"{file}: OK, {len(config.metrics)} metrics in windows of {config.window:g} s")


@cli.command()
@_config_option
@click.option("--url", help=f"Readiness URL; default: of the configured address, or {READY_URL}.")
@click.pass_obj
def healthcheck(common: Path | None, path: Path | None, url: str | None) -> None:
    """Ask a running instance whether it is ready; exit 0 if it is."""
    file = path or common
    config = load(file, Config) if file else None
    tls = config.tls if config else None
    if config and url is None:
        url = f"{'https' if tls else 'http'}://{config.listen}/-/ready"
    url = url or READY_URL
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"--url {url}: is not a URL; write for example {READY_URL}")
    try:
        connection = HTTPConnection(parts.hostname, parts.port, timeout=5.0)
        if parts.scheme == "https":
            context = tls.client() if tls else None
            connection = HTTPSConnection(parts.hostname, parts.port, timeout=5.0, context=context)
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        text = answer.read(500).decode("utf-8", "replace").strip()
        connection.close()
    except (OSError, HTTPException, ValueError) as e:
        raise CompareError(f"ask {url}: {e or type(e).__name__}; is {PROGRAM} running?") from e
    if answer.status != 200:
        raise CompareError(f"{url} answers {answer.status}: {text}")
    click.echo(f"{url}: {text}")


@cli.command()
@click.option(
    "--prometheus", "url", default="http://127.0.0.1:9090", show_default=True, help="Server to ask."
)
@click.option("--since", default="1h", show_default=True, help="How far back to look.")
@click.option("--window", help="Length of a window [default: period / 60, at least 5s].")
@click.option(
    "--metric", "metrics", multiple=True, type=click.Choice(tuple(MEASURES)), help="Repeatable; default: all."
)
@click.option("--tenant", default="_infra", show_default=True, help="Whose probes to compare.")
@click.option("--minimum-windows", type=click.IntRange(5, 1000), default=12, show_default=True)
@click.option("--against", help="Compare every path with itself this much earlier, for example 1d.")
@click.option(
    "--fail-if",
    multiple=True,
    metavar="A:B | worse",
    help="Exit with 3 if path A is worse than path B on any metric asked; worse: with --against, if any "
    "path is worse than it was. Only differences that separate count. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report(  # noqa: PLR0913
    url: str,
    since: str,
    window: str | None,
    metrics: tuple[str, ...],
    tenant: str,
    minimum_windows: int,
    against: str | None,
    fail_if: tuple[str, ...],
    as_json: bool,
) -> int:
    """Compare paths over a period and print the outcome."""
    from vigia_compare import regression  # noqa: PLC0415 - numpy takes a moment
    from vigia_compare import report as printing  # noqa: PLC0415
    from vigia_compare.evaluation import evaluate  # noqa: PLC0415
    from vigia_compare.prometheus import Prometheus  # noqa: PLC0415

    conditions = [regression.condition(text, against is not None) for text in fail_if]
    period = _seconds("--since", since)
    length = _seconds("--window", window) if window else max(5.0, period / 60.0)
    config = _config(
        prometheus=url,
        tenant=tenant,
        period=f"{period}s",
        window=f"{length}s",
        minimum_windows=minimum_windows,
        **({"metrics": list(metrics)} if metrics else {}),
    )
    with Prometheus(config.prometheus, timeout=30.0) as prometheus:
        now = time.time()
        if against:
            changes = regression.changes(prometheus, config, now, _seconds("--against", against))
            click.echo(json.dumps(regression.as_json(changes)) if as_json else regression.as_text(changes))
            failed = [c for c in conditions if c.fails_on_changes(changes)]
        else:
            found = evaluate(prometheus, config, now)
            click.echo(json.dumps(printing.as_json(found)) if as_json else printing.as_text(found))
            failed = [c for c in conditions if c.fails_on_groups(found.groups)]
    for c in failed:
        sys.stderr.write(f"{PROGRAM}: --fail-if {c.text}: it is\n")
    return EXIT_WORSE if failed else 0


def _config(**values: Any) -> Config:
    try:
        return Config.model_validate(values)
    except ValidationError as e:
        first = e.errors()[0]
        context = first.get("ctx", {})
        field = ".".join(str(x) for x in (*first["loc"], *context.get("at", [])))
        option = {"period": "--since", "window": "--window", "tenant": "--tenant"}.get(field, f"--{field}")
        raise click.UsageError(f"{option}: {first['msg']}") from e


def _seconds(option: str, text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    try:
        seconds = float(text[:-1]) * units[text[-1:]]
    except (ValueError, KeyError):
        raise click.UsageError(
            f"{option} {text}: is not a duration; write for example 30s, 15m, 1h or 1d"
        ) from None
    if not 1.0 <= seconds <= 366 * 86400.0:
        raise click.UsageError(f"{option} {text}: is outside 1s to 366d; write for example 1h")
    return seconds


def _metrics_as(form: str, metrics: Sequence[Metric]) -> str:
    if form == "json":
        fields = ("name", "type", "unit", "labels", "help", "part")
        return json.dumps([{f: getattr(m, f) for f in fields} for m in metrics], indent=2)
    if form == "markdown":
        rows = [
            f"| `{m.name}` | {m.type} | {m.unit} | {' '.join(f'`{x}`' for x in m.labels)} | {m.help} |"
            for m in metrics
        ]
        head = ["| metric | type | unit | labels | help |", "| --- | --- | --- | --- | --- |"]
        return "\n".join([*head, *rows])
    return "\n".join(f"{m.name}{{{','.join(m.labels)}}} {m.type}, {m.unit}\n    {m.help}" for m in metrics)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 for a failure, 2 for a usage error, 3 for a --fail-if that holds."""
    try:
        code = cli.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as e:
        return _complain(f"{e.format_message().rstrip('.')}; see {PROGRAM} --help", EXIT_USAGE)
    except click.ClickException as e:
        return _complain(e.format_message(), EXIT_ERROR)
    except click.Abort:
        return EXIT_ERROR
    except (ConfigError, CompareError) as e:
        return _complain(str(e), EXIT_ERROR)
    return code if isinstance(code, int) else 0


def _complain(message: str, code: int) -> int:
    for line in message.splitlines():
        sys.stderr.write(f"{PROGRAM}: {line}\n")
    return code
