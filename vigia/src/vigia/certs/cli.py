"""vigia certs init, vigia certs status."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import yaml

from vigia import console
from vigia.certs.authority import Authority, Issued
from vigia.errors import VigiaError

__all__ = ["PARTS", "certs", "show_status", "web_config"]

PARTS = (
    "vigia-probe",
    "vigia-exporter",
    "vigia-enforcer",
    "vigia-compare",
    "isolation-agent",
    "prometheus",
    "alertmanager",
    "node_exporter",
    "grafana",
    "victoria-metrics",
    "influxdb",
    "vigia-node",
    "vigia",
)
"""Parts that listen, connect, or both."""

_SOON = 14
"""Days before its end from which on a certificate is a fault."""

_HOST = re.compile(r"[0-9a-fA-F:.]+|(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")


@click.group()
def certs() -> None:
    """Certificates for TLS between the parts."""


_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/etc/vigia/tls"),
    show_default=True,
    help="Folder with the authority and what it issued.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@certs.command()
@_folder
@click.option(
    "--host", "hosts", multiple=True, help="Name or address that the parts are reached at; repeatable."
)
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only this part; repeatable.")
@click.option("--renew", is_flag=True, help="Make new certificates though the old ones are good.")
@_json
def init(folder: Path, hosts: tuple[str, ...], parts: tuple[str, ...], renew: bool, as_json: bool) -> None:
    """Found the site's authority unless it is there, and issue what is missing or ends soon.

    Each part gets PART.crt and PART.key for both ends of TLS, and PART.web.yml, which the Go programs
    take by --web.config.file: only clients with a certificate of the same authority are served.
    """
    for host in hosts:
        if not _HOST.fullmatch(host) or len(host) > 253:
            raise VigiaError(
                f'--host "{host}" is neither a name nor an address; write for example node1.example.org'
            )
    authority = Authority.open(folder)
    issued = [authority.issue(part, hosts, renew) for part in parts or PARTS]
    for each in issued:
        (folder / f"{each.part}.web.yml").write_text(web_config(each))
    _show(issued, as_json)


def web_config(issued: Issued) -> str:
    """Return exporter-toolkit's web configuration; paths are relative to the file."""
    return yaml.safe_dump(
        {
            "tls_server_config": {
                "cert_file": issued.certificate.name,
                "key_file": issued.key.name,
                "client_ca_file": "ca.crt",
                "client_auth_type": "RequireAndVerifyClientCert",
                "min_version": "TLS12",
            }
        },
        sort_keys=False,
    )


@certs.command()
@_folder
@_json
def status(folder: Path, as_json: bool) -> None:
    """Show what there is and when it ends. Exit status 1: something ends within 14 days."""
    sys.exit(show_status(folder, as_json))


def show_status(folder: Path, as_json: bool) -> int:
    """Show what a folder has, and return 1 if something ends soon, otherwise 0. Raises VigiaError."""
    if not (folder / "ca.crt").exists():
        raise VigiaError(f"{folder} has no authority; run: vigia certs init --dir {folder}")
    issued = list(Authority.open(folder).issued())
    _show(issued, as_json)
    return 1 if any(each.days < _SOON for each in issued) else 0


def _show(issued: list[Issued], as_json: bool) -> None:
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
        (i.part, f"{i.expires:%Y-%m-%d}", i.days, "made now" if i.fresh else "kept", ", ".join(i.names))
        for i in issued
    ]
    click.echo(console.table(("part", "expires", "days", "state", "names"), rows))
