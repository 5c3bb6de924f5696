"""vigia compose: what the containers of docker-compose.yml run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from vigia.certs.cli import show_status
from vigia.compose import lab as containers_lab
from vigia.compose.files import DATA, USERS, Volume, Wish
from vigia.errors import VigiaError

__all__ = ["compose"]


@click.group()
def compose() -> None:
    """What the containers of docker-compose.yml run; not for people."""


_volume = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/etc/vigia"),
    show_default=True,
    help="Volume with the configuration of all containers.",
)


@compose.command("init")
@_volume
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/data"),
    show_default=True,
    help="Folder in which the volumes with data are mounted.",
)
@click.option("--profiles", envvar="COMPOSE_PROFILES", default="", help="Profiles that are on; tls counts.")
@click.option(
    "--grafana-address",
    envvar="VIGIA_GRAFANA_ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Where Grafana listens; people have to sign in unless it is loopback.",
)
def init(folder: Path, data: Path, profiles: str, grafana_address: str) -> None:
    """Write configuration, fresh secrets and, with the profile tls, certificates.

    Secrets and the authority are kept if they are there. The password of Grafana's admin is taken
    from the environment variable VIGIA_GRAFANA_PASSWORD, or made.
    """
    names = {name.strip() for name in profiles.split(",")}
    password = os.environ.get("VIGIA_GRAFANA_PASSWORD", "")
    Volume(folder).write(Wish("tls" in names, grafana_address, password))
    for part in DATA:
        if (data / part).is_dir():
            os.chown(data / part, USERS[part], USERS[part])
    scheme = "TLS" if "tls" in names else "plain HTTP"
    click.echo(f"wrote the configuration of {len(USERS)} parts to {folder}, {scheme}")


@compose.command("certificates")
@_volume
def certificates(folder: Path) -> None:
    """Show until when the parts' certificates hold. Exit status 1: there are none, or one ends soon."""
    if not Volume(folder).encrypted:
        raise VigiaError(
            "this site has no certificates: --profile tls is not seen by what is outside of profiles; "
            "set COMPOSE_PROFILES=tls (with your other profiles, also in .env), and start it again"
        )
    sys.exit(show_status(folder / "ca", as_json=False))


@compose.command("lab")
@_volume
def lab(folder: Path) -> None:
    """Bring the lab up, tell the other containers of its nodes, and remove it on SIGTERM."""
    containers_lab.run(Volume(folder))
