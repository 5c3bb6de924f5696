"""The command line. What asks the clouds is imported when they are asked."""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vigia_identity import __version__
from vigia_service import cli as frame
from vigia_service.cli import Checked, Options, Program
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from vigia_identity.config import Config

__all__ = ["main"]


def _run(path: Path) -> int:
    from vigia_identity import looker

    _quiet()
    return looker.run(path)


def _check(path: Path) -> Checked:
    config = _load(path)
    clouds = [name for name in ("openstack", "kubernetes") if getattr(config, name) is not None]
    return Checked(" and ".join(clouds), {"clouds": clouds})


def _load(path: Path) -> Config:
    from vigia_config import load
    from vigia_identity.config import Config

    return load(path, Config)


PROGRAM = Program(
    name="vigia-identity",
    version=__version__,
    summary="Ask the clouds for names of tenants and owners of ports, and write them for the exporters.",
    run=_run,
    check=_check,
)


@click.option("--once", is_flag=True, help="Ask once, write, and exit: 0 if every cloud answered.")
@click.option("--json", "as_json", is_flag=True, help="With --once, print what is known as JSON.")
@click.option("--check-config", "check", is_flag=True, help="The same as the command check-config.")
def _start(options: Options, *, once: bool, as_json: bool, check: bool) -> int:
    path = options.path()
    options.set_up_logs()
    if check:
        click.echo(f"{path}: OK, {_check(path).text}")
        return Exit.OK
    return _once(path, as_json) if once else _run(path)


def _once(path: Path, as_json: bool) -> int:
    from vigia_identity.looker import Looker
    from vigia_identity.probing.prober import Prober

    _quiet()
    looker = Looker(_load(path))
    well = looker.once()
    well = Prober(lambda: looker.config).once() and well
    identity = looker.identity()
    if as_json and identity is not None:
        hosts = {h: [vars(p) for p in ports] for h, ports in identity.ports.items()}
        click.echo(json.dumps({"tenants": identity.names, "ports": hosts}))
    return Exit.OK if well else Exit.FAILED


def _quiet() -> None:
    """Keep the cloud's SDK from logging its requests."""
    for chatty in ("keystoneauth", "openstack"):
        logging.getLogger(chatty).setLevel(logging.ERROR)


cli = frame.command_line(PROGRAM, _start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code, see vigia_service.exits."""
    return frame.main(cli, PROGRAM.name, arguments)
