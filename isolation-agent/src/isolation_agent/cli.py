"""The command line.

Commands import what they need when they run: a health check that is asked
every few seconds must not load a web server and a database.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from isolation_agent import __version__
from isolation_agent.errors import AgentError
from isolation_agent.service import logs
from isolation_agent.storage.audit import verify
from vigia_catalog import part_metrics
from vigia_catalog.listing import listing
from vigia_config import ConfigError, load

if TYPE_CHECKING:
    from isolation_agent.config import Settings

__all__ = ["main"]

PROGRAM = "isolation-agent"
READY_URL = "http://127.0.0.1:9874/-/ready"
FORMATS = ("text", "json", "markdown")

EXIT_ERROR = 1
EXIT_USAGE = 2

_MAX_ALERT_FILE = 16 << 20

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class _Options:
    """Options that stand before or after the command."""

    config: Path | None = None
    log_level: str = "info"
    log_format: str = "logfmt"

    def settings(self) -> Settings:
        from isolation_agent.config import load_settings

        return load_settings(self.path())

    def path(self) -> Path:
        if self.config is None:
            raise click.UsageError("--config FILE is missing")
        return self.config


def _common(command: F) -> F:
    """Accept the common options after the command as well."""

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(context.ensure_object(_Options), parameter.name or "", value)

    def option(flag: str, name: str, **extra: Any) -> Callable[[F], F]:
        return click.option(flag, name, expose_value=False, callback=keep, **extra)

    level = option(
        "--log.level", "log_level", type=click.Choice(logs.LEVELS), help="Least severity that is logged."
    )
    form = option(
        "--log.format", "log_format", type=click.Choice(logs.FORMATS), help="Format of the log on stderr."
    )
    config = option("--config", "config", type=click.Path(path_type=Path), help="Configuration file (YAML).")
    return config(level(form(command)))


def _as_json(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _list_metrics(context: click.Context, _parameter: click.Parameter, form: str | None) -> None:
    if form is not None:
        click.echo(listing(part_metrics("agent"), form))
        context.exit()


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
@_common
@click.pass_context
def cli(context: click.Context) -> None:
    """Turn alerts into isolation actions. Without a command: run the service."""
    context.ensure_object(_Options)
    if context.invoked_subcommand is None:
        context.invoke(run)


@cli.command()
@_common
@click.pass_obj
def run(options: _Options) -> int:
    """Run the service."""
    from isolation_agent.serve import serve

    logs.setup(options.log_format, options.log_level)
    return serve(options.path())


@cli.command("check-config")
@_as_json
@_common
@click.pass_obj
def check_config(options: _Options, as_json: bool) -> None:
    """Read and validate configuration, policies and tokens, then exit."""
    settings = options.settings()
    policies, hosts = len(settings.policies.policies), len(settings.config.hosts)
    if as_json:
        found = {"policies": policies, "hosts": hosts, "policy_version": settings.policies.version}
        click.echo(json.dumps({"config": str(settings.path), "ok": True, **found}))
    else:
        click.echo(
            f"{options.config}: OK, {policies} policies (version {settings.policies.version}), {hosts} hosts"
        )


@cli.command("simulate")
@click.option(
    "--alert",
    "source",
    type=click.File("rb"),
    required=True,
    help="File with an alert or a webhook payload as JSON; - is standard input.",
)
@_as_json
@_common
@click.pass_obj
def simulate_command(options: _Options, source: Any, as_json: bool) -> None:
    """Print what would be decided about an alert. Nothing is changed."""
    from isolation_agent.actions.simulate import simulate
    from isolation_agent.alerts.payload import BadPayload, parse_alert
    from isolation_agent.clock import SystemClock
    from isolation_agent.storage.policies import on_record

    logs.setup(options.log_format, "error")
    settings = on_record(options.settings())
    raw = source.read(_MAX_ALERT_FILE + 1)
    if len(raw) > _MAX_ALERT_FILE:
        raise AgentError(f"{source.name}: is larger than {_MAX_ALERT_FILE} bytes; give fewer alerts")
    try:
        alerts = parse_alert(raw, settings.config.limits.alerts)
    except BadPayload as e:
        raise AgentError(f"{source.name}: {e}") from e
    decisions = [simulate(alert, settings, SystemClock()) for alert in alerts]
    if as_json:
        click.echo(json.dumps({"decisions": decisions}, indent=2))
        return
    for decision in decisions:
        click.echo(_decision_line(decision))


@cli.group(no_args_is_help=False)
def audit() -> None:
    """Work with the audit log."""


@audit.command("verify")
@click.option(
    "--file", "path", type=click.Path(path_type=Path), help="Audit log; default: the configured one."
)
@_as_json
@_common
@click.pass_obj
def audit_verify(options: _Options, path: Path | None, as_json: bool) -> int:
    """Check the hash chain; name the first broken record."""
    path = path or options.settings().audit_path
    from isolation_agent.web.answers.audit import AuditVerification

    result = verify(path)
    if as_json:
        click.echo(json.dumps({"file": str(path), **AuditVerification.of(result).model_dump()}))
    elif result.ok:
        click.echo(f"{path}: OK, {result.records} records, the last is {result.head.seq} {result.head.hash}")
    if result.ok:
        return 0
    if not as_json:
        raise AgentError(
            f"{path}:{result.line}: {result.problem}; the {result.records} records before it are intact"
        )
    return EXIT_ERROR


@cli.command()
@click.option("--url", help=f"Readiness URL; default: of the configured address, or {READY_URL}.")
@_as_json
@_common
@click.pass_obj
def healthcheck(options: _Options, url: str | None, as_json: bool) -> int:
    """Ask a running instance whether it is ready; exit 0 if it is."""
    configured, context = _configured(options.config)
    url = url or configured
    status, text = _ask(url, context)
    ready = status == HTTPStatus.OK
    if as_json:
        click.echo(json.dumps({"url": url, "ready": ready, "answer": text}))
        return 0 if ready else EXIT_ERROR
    if not ready:
        raise AgentError(f"{url} answers {status}: {text}")
    click.echo(f"{url}: {text}")
    return 0


def _configured(path: Path | None) -> tuple[str, ssl.SSLContext | None]:
    """Return where an instance with this configuration is, and how to talk to it."""
    if path is None:
        return READY_URL, None
    from isolation_agent.config import Config

    config = load(path, Config)
    if config.tls is None:
        return f"http://{config.listen}/-/ready", None
    return f"https://{config.listen}/-/ready", config.tls.client()


def _ask(url: str, context: ssl.SSLContext | None) -> tuple[int, str]:
    """Get a short text over HTTP. Raises AgentError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"--url {url}: is not a URL; write for example {READY_URL}")
    try:
        opened = HTTPConnection(parts.hostname, parts.port, timeout=5.0)
        if parts.scheme == "https":
            opened = HTTPSConnection(parts.hostname, parts.port, timeout=5.0, context=context)
        with closing(opened) as connection:
            connection.request("GET", parts.path or "/")
            answer = connection.getresponse()
            return answer.status, answer.read(500).decode("utf-8", "replace").strip()
    except (OSError, HTTPException, ValueError) as e:
        raise AgentError(f"ask {url}: {str(e) or type(e).__name__}; is the agent running?") from e


def _decision_line(decision: dict[str, Any]) -> str:
    target = decision.get("target")
    about = (
        f"{target['node']}/{target['port']} ({target['tenant']})"
        if target
        else decision["alert"]["alertname"]
    )
    guard = f" [{decision['guard']}]" if decision.get("guard") else ""
    policy = f" under policy {decision['policy']}" if "policy" in decision else ""
    return f"{decision['decision']}{guard}: {about}{policy}: {decision['reason']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 1 for a failure, 2 for a usage error."""
    try:
        code = cli.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as e:
        return _complain(f"{e.format_message().rstrip('.')}; see {PROGRAM} --help", EXIT_USAGE)
    except click.ClickException as e:
        return _complain(e.format_message(), EXIT_ERROR)
    except click.Abort:
        return EXIT_ERROR
    except (ConfigError, AgentError) as e:
        return _complain(str(e), EXIT_ERROR)
    return code if isinstance(code, int) else 0


def _complain(message: str, code: int) -> int:
    for line in message.splitlines():
        sys.stderr.write(f"{PROGRAM}: {line}\n")
    return code
