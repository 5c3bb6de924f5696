"""vigia certs: init and status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vigia.certs.parts import PARTS, SOON
from vigia.cli.options import json_option
from vigia_service.cli import Group
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from vigia.certs.authority import Issued

__all__ = ["certs", "show_status"]

_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/etc/vigia/tls"),
    show_default=True,
    help="Folder of the authority and its certificates.",
)


@click.group(cls=Group)
def certs() -> None:
    """Issue and check the certificates for TLS between the parts."""


@certs.command()
@_folder
@click.option(
    "--host", "hosts", multiple=True, help="Name or address that the parts are reached at; repeatable."
)
@click.option("--part", "names", multiple=True, type=click.Choice(PARTS), help="Only this part; repeatable.")
@click.option("--renew", is_flag=True, help="Also renew certificates that are still valid.")
@json_option
def init(folder: Path, hosts: tuple[str, ...], names: tuple[str, ...], renew: bool, as_json: bool) -> None:
    """Create the site's authority and issue missing certificates.

    Certificates that expire within 30 days are renewed.

    Each part gets PART.crt and PART.key for both ends of TLS, and PART.web.yml, which the Go programs
    take by --web.config.file: only clients with a certificate of the same authority are served. An
    existing authority is kept.
    """
    from vigia.certs import issuing

    _show(issuing.issue(folder, hosts, names or PARTS, renew), as_json)


@certs.command()
@_folder
@json_option
@click.pass_context
def status(context: click.Context, folder: Path, as_json: bool) -> None:
    """Show when each certificate expires; exit 1 if one does soon.

    Soon means within 14 days.
    """
    if not show_status(folder, as_json):
        context.exit(Exit.FAILED)


@certs.command()
@_folder
@json_option
def password(folder: Path, as_json: bool) -> None:
    """Have Alertmanager ask for a password.

    Prints the path of alertmanager.password, which it makes unless it is there, and which Prometheus
    shows. Alertmanager takes alertmanager.web.yml by --web.config.file. What that file has already
    stays. Run it again after init.
    """
    from vigia import console
    from vigia.stack import files

    file = files.write_password(folder)
    if as_json:
        console.print_json({"password_file": str(file)})
    else:
        click.echo(file)


def show_status(folder: Path, as_json: bool) -> bool:
    """Show what a folder has, and return whether nothing ends soon. Raises VigiaError."""
    from vigia.certs import issuing

    found = issuing.issued(folder)
    _show(found, as_json)
    return all(each.days >= SOON for each in found)


def _show(issued: list[Issued], as_json: bool) -> None:
    from vigia import console

    if as_json:
        console.print_json(
            [
                {
                    "part": i.part,
                    "certificate": str(i.certificate),
                    "names": i.names,
                    "expires": i.expires.isoformat(),
                    "days": i.days,
                    "fresh": i.fresh,
                }
                for i in issued
            ]
        )
        return
    rows = [
        (i.part, f"{i.expires:%Y-%m-%d}", i.days, "issued now" if i.fresh else "kept", ", ".join(i.names))
        for i in issued
    ]
    console.print_table(("part", "expires", "days", "state", "names"), rows)
