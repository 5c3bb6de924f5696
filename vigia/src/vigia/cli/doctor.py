"""vigia doctor."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vigia.cli.options import json_option
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from vigia.doctor.finding import Finding

__all__ = ["doctor"]


@click.command()
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Address that the programs listen on."
)
@click.option(
    "--ovs-rundir",
    type=click.Path(path_type=Path),
    default=Path("/run/openvswitch"),
    show_default=True,
    help="Folder of Open vSwitch's sockets.",
)
@click.option(
    "--pin-dir",
    "pins",
    type=click.Path(path_type=Path),
    default=Path("/sys/fs/bpf/vigia"),
    show_default=True,
    help="Folder of the agents' BPF objects: their bpf.pin_dir.",
)
@click.option("--netns", "namespace", help="Network namespace of Open vSwitch's ports.")
@click.option("--all", "everything", is_flag=True, help="Also print the checks that passed.")
@json_option
@click.pass_context
def doctor(  # noqa: PLR0913 - one per option
    context: click.Context,
    address: str,
    ovs_rundir: Path,
    pins: Path,
    namespace: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Check prerequisites and print fixes.

    Checks what the agents need on this node, and changes nothing. Exit code 1 means that a program cannot
    work here.
    """
    from vigia import console
    from vigia.doctor import examination

    findings = examination.examine(address, ovs_rundir, namespace, pins.absolute())
    count = Counter(f.state for f in findings)
    if as_json:
        console.print_json({"findings": [f.as_json() for f in findings], "count": dict(count)})
    else:
        _print(findings, everything)
        click.echo(
            f"{_counted(count['fault'], 'fault')}, {_counted(count['warning'], 'warning')}, "
            f"{count['ok']} passed, {count['absent']} not on this node"
        )
    if count["fault"]:
        context.exit(Exit.FAILED)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _print(findings: list[Finding], everything: bool) -> None:
    order = {"fault": 0, "warning": 1, "absent": 2, "ok": 3}
    for finding in sorted(findings, key=lambda f: order[f.state]):
        if finding.state in ("ok", "absent") and not everything:
            continue
        click.echo(f"{finding.state:8} {finding.check}: {finding.found}")
        if finding.fix:
            click.echo(f"{'':8} fix: {finding.fix}")
