"""The files that exporters read: each is replaced as a whole, so that none is ever seen half written."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from vigia_identity import sitefiles
from vigia_identity.clouds import Identity, Port
from vigia_identity.config import Config

__all__ = ["as_yaml", "replace", "tenants_text", "write"]


def write(identity: Identity, config: Config) -> list[Path]:
    """Write the files that have changed and return them. Raises OSError.

    A host that has no ports any more gets an empty list: its exporter still reads the file, and shows
    its age by what it says of when the cloud was asked.
    """
    return [path for path, text in _texts(identity, config) if replace(path, text)]


def _texts(identity: Identity, config: Config) -> Iterator[tuple[Path, str]]:
    """Yield each file and what it has, one after the other: there may be no room for all together."""
    yield config.tenants_file, tenants_text(identity)
    if (folder := config.contracts_dir) is not None:
        for host, contracts in _by_host(folder, identity.contracts).items():
            entries = sorted(contracts, key=lambda c: str(c["port"]))
            yield folder / f"{host}.yaml", as_yaml({"version": 1, "contracts": entries})
    if (folder := config.ports_dir) is not None:
        for host, ports in _by_host(folder, identity.ports).items():
            known = [_entry(p) for p in _unique(ports)]
            yield (
                folder / f"{host}.yaml",
                as_yaml({"version": 1, "asked": identity.asked, "ports": known}),
            )
    if (folder := config.sites_dir) is not None and identity.site is not None:
        for host, text in sitefiles.texts(identity.site):
            yield folder / f"{host}.yaml", text


def _by_host(folder: Path, known: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {f.stem: [] for f in folder.glob("*.yaml")} | known


def tenants_text(identity: Identity) -> str:
    """Return what vigia-exporter reads as tenants_file."""
    tenants = [{"id": i, "name": n} for i, n in sorted(identity.names.items())]
    return as_yaml({"version": 1, "tenants": tenants})


def as_yaml(content: Any) -> str:
    """Return what a file has."""
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def _entry(port: Port) -> dict[str, str]:
    return {k: v for k, v in vars(port).items() if v}


def _unique(ports: list[Port]) -> list[Port]:
    """Drop ports whose tap would have the name of another's: that name says nothing."""
    devices = Counter(p.device for p in ports)
    return sorted((p for p in ports if devices[p.device] == 1), key=lambda p: p.port)


def replace(path: Path, text: str) -> bool:
    """Replace a file in one step unless it says the same already."""
    content = text.encode()
    try:
        if path.read_bytes() == content:
            return False
    except FileNotFoundError:
        pass
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        Path(name).chmod(0o640)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True
