"""vigia compose: what the containers of docker-compose.yml run."""

from __future__ import annotations

from pathlib import Path

import click

from vigia.cli.certs import show_status
from vigia.cli.options import json_option
from vigia.errors import VigiaError
from vigia_service.cli import Group
from vigia_service.exits import Exit

__all__ = ["compose"]

_volume = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/etc/vigia"),
    show_default=True,
    help="Volume of the configuration of all containers.",
)


@click.group(cls=Group)
def compose() -> None:
    """Commands that the containers of docker-compose.yml run."""


@compose.command("init")
@_volume
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/data"),
    show_default=True,
    help="Folder in which the data volumes are mounted.",
)
@click.option(
    "--profiles",
    envvar="COMPOSE_PROFILES",
    default="",
    help="Profiles that are enabled; only tls makes a difference.",
)
@click.option(
    "--grafana-address",
    envvar="VIGIA_GRAFANA_ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Where Grafana listens; people must sign in unless it is a loopback address.",
)
@json_option
def init(folder: Path, data: Path, profiles: str, grafana_address: str, as_json: bool) -> None:
    """Write configuration, secrets and certificates.

    Certificates are for the profile tls. Existing secrets and an existing authority are kept. The password
    of Grafana's admin is taken from the environment variable VIGIA_GRAFANA_PASSWORD, or generated.
    """
    import os

    from vigia import console
    from vigia.compose.files import DATA, USERS, ComposeWish, Volume

    names = {name.strip() for name in profiles.split(",")}
    password = os.environ.get("VIGIA_GRAFANA_PASSWORD", "")
    Volume(folder).write(ComposeWish("tls" in names, grafana_address, password))
    for part in DATA:
        if (data / part).is_dir():
            os.chown(data / part, USERS[part], USERS[part])
    if as_json:
        console.print_json({"directory": str(folder), "parts": list(USERS), "tls": "tls" in names})
    else:
        scheme = "TLS" if "tls" in names else "plain HTTP"
        click.echo(f"wrote the configuration of {len(USERS)} parts to {folder}, {scheme}")


@compose.command("certificates")
@_volume
@json_option
@click.pass_context
def certificates(context: click.Context, folder: Path, as_json: bool) -> None:
    """Show when each certificate expires; exit 1 if one does soon."""
    from vigia.compose.files import Volume

    if not Volume(folder).encrypted:
        raise VigiaError(
            "this site has no certificates: --profile tls is not seen by what is outside of profiles; "
            "set COMPOSE_PROFILES=tls (with your other profiles, also in .env), and start it again"
        )
    if not show_status(folder / "ca", as_json):
        context.exit(Exit.FAILED)


@compose.command("lab")
@_volume
def lab(folder: Path) -> None:
    """Run the lab beside the other containers.

    Registers its nodes with them, and removes it on SIGTERM.
    """
    from vigia.compose import lab as containers_lab
    from vigia.compose.files import Volume

    containers_lab.run(Volume(folder))
