"""vigia compare: vigia-compare's report, pointed at a lab's Prometheus."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import state
from vigia.lab.cli import lab_option
from vigia.stack import places

__all__ = ["compare"]


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@lab_option
@click.pass_context
def compare(context: click.Context, name: str) -> None:
    """Say which path is better, and whether the difference is real (vigia-compare report)."""
    program = Path(sys.executable).parent / "vigia-compare"
    if not program.is_file():
        raise VigiaError(f"{program} is missing; install it: make deps")
    arguments = list(context.args)
    asked = any(a in ("-h", "--help") or a.split("=")[0] == "--prometheus" for a in arguments)
    if not asked:
        lab = state.running(name).lab
        arguments += ["--prometheus", f"http://{places.stack_address(lab, 9090)}"]
    commands.replace_process([str(program), "report", *arguments])
