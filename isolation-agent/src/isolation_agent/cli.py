"""The command line.

Commands import what they need when they run: a health check that is asked
every few seconds must not load a web server and a database.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isolation_agent import __version__
from vigia_service import cli
from vigia_service.cli import Checked, Options, Program, as_json, common
from vigia_service.errors import ServiceError
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from vigia_config.tls import Tls

__all__ = ["group", "main"]

_MAX_ALERT_FILE = 16 << 20


def _run(path: Path) -> int:
    from isolation_agent.serve import serve

    return serve(path)


def _check(path: Path) -> Checked:
    from isolation_agent.config import load_settings

    settings = load_settings(path)
    policies, hosts = len(settings.policies.policies), len(settings.config.hosts)
    version = settings.policies.version
    return Checked(
        f"{policies} policies (version {version}), {hosts} hosts",
        {"policies": policies, "hosts": hosts, "policy_version": version},
    )


def _listener(path: Path) -> tuple[str, Tls | None]:
    from isolation_agent.config import Config
    from vigia_config import load

    config = load(path, Config)
    return config.listen, config.tls


PROGRAM = Program(
    "isolation-agent",
    __version__,
    "Rate-limit a flooding tenant at its own port until the flood ends.",
    _run,
    _check,
    part="agent",
    ready_url="http://127.0.0.1:9874/-/ready",
    listener=_listener,
)

group = cli.command_line(PROGRAM)


@group.command("simulate")
@click.option(
    "--alert",
    "source",
    type=click.File("rb"),
    required=True,
    help="File with an alert or a webhook message as JSON; - is standard input.",
)
@as_json
@common
@click.pass_obj
def simulate_command(options: Options, source: Any, as_json: bool) -> None:
    """Print what would be decided about an alert; change nothing."""
    from isolation_agent.actions.simulate import simulate
    from isolation_agent.alerts.payload import BadPayload, parse_alert
    from isolation_agent.clock import SystemClock
    from isolation_agent.config import load_settings
    from isolation_agent.storage.policies import on_record

    options.set_up_logs("error")
    settings, clock = on_record(load_settings(options.path())), SystemClock()
    raw = source.read(_MAX_ALERT_FILE + 1)
    if len(raw) > _MAX_ALERT_FILE:
        raise ServiceError(f"{source.name}: is larger than {_MAX_ALERT_FILE} bytes; give fewer alerts")
    try:
        alerts = parse_alert(raw, settings.config.limits.alerts, clock.now())
    except BadPayload as e:
        raise ServiceError(f"{source.name}: {e}") from e
    decisions = [simulate(alert, settings, clock) for alert in alerts]
    if as_json:
        click.echo(json.dumps({"decisions": decisions}, indent=2))
        return
    for decision in decisions:
        click.echo(_decision_line(decision))


@group.group(cls=cli.Group, no_args_is_help=False)
def audit() -> None:
    """Work with the audit log."""


@audit.command("verify")
@click.option(
    "--file", "path", type=click.Path(path_type=Path), help="Audit log; default: the configured one."
)
@as_json
@common
@click.pass_obj
def audit_verify(options: Options, path: Path | None, as_json: bool) -> int:
    """Check the hash chain of the audit log; name the first broken record."""
    from isolation_agent.config import load_settings
    from isolation_agent.storage.audit import verify
    from isolation_agent.web.answers.audit import AuditVerification

    path = path or load_settings(options.path()).audit_path
    result = verify(path)
    if as_json:
        click.echo(json.dumps({"file": str(path), **AuditVerification.of(result).model_dump()}))
    elif result.ok:
        click.echo(f"{path}: OK, {result.records} records, the last is {result.head.seq} {result.head.hash}")
    if result.ok:
        return Exit.OK
    if not as_json:
        raise ServiceError(
            f"{path}:{result.line}: {result.problem}; the {result.records} records before it are intact"
        )
    return Exit.FAILED


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
    """Run the command line and return the exit code."""
    return cli.main(group, PROGRAM.name, arguments)
