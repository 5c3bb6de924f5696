"""Issuing certificates, and the files that the Go programs read them by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from vigia.certs.authority import Authority, Issued
from vigia.errors import OptionError, VigiaError

__all__ = ["issue", "issued", "web_config"]

_HOST = re.compile(r"[0-9a-fA-F:.]+|(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")


def issue(folder: Path, hosts: Iterable[str], parts: Iterable[str], renew: bool) -> list[Issued]:
    """Found a folder's authority unless it is there, and issue what is missing or ends soon.

    Raises VigiaError.
    """
    names = tuple(hosts)
    for host in names:
        if not _HOST.fullmatch(host) or len(host) > 253:
            raise OptionError(
                f'--host "{host}" is neither a name nor an address; write for example node1.example.org'
            )
    authority = Authority.open(folder)
    made = [authority.issue(part, names, renew) for part in parts]
    for each in made:
        (folder / f"{each.part}.web.yml").write_text(web_config(each))
    return made


def issued(folder: Path) -> list[Issued]:
    """Return what a folder's authority has issued. Raises VigiaError if there is none."""
    if not (folder / "ca.crt").exists():
        raise VigiaError(f"{folder} has no authority; run: vigia certs init --dir {folder}")
    return list(Authority.open(folder).issued())


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
