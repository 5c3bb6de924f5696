"""The files that exporters read: each is replaced as a whole, so that none is ever seen half written."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from vigia_identity.clouds import Identity, Port

__all__ = ["as_yaml", "replace", "tenants_text", "write"]


def write(
    identity: Identity, tenants_file: Path, ports_dir: Path | None, contracts_dir: Path | None = None
) -> list[Path]:
    """Write the files that have changed and return them. Raises OSError.

    A host that has no ports any more gets an empty list: its exporter still reads the file, and shows
    its age by what it says of when the cloud was asked.
    """
    wanted = {tenants_file: tenants_text(identity)}
    if contracts_dir is not None:
        sold: dict[str, list[Any]] = {f.stem: [] for f in contracts_dir.glob("*.yaml")} | identity.contracts
        for host, contracts in sold.items():
            entries = sorted(contracts, key=lambda c: str(c["port"]))
            wanted[contracts_dir / f"{host}.yaml"] = as_yaml({"version": 1, "contracts": entries})
    if ports_dir is not None:
        hosts: dict[str, list[Port]] = {f.stem: [] for f in ports_dir.glob("*.yaml")} | identity.ports
        for host, ports in hosts.items():
            known = [_entry(p) for p in _unique(ports)]
            wanted[ports_dir / f"{host}.yaml"] = as_yaml(
                {"version": 1, "asked": identity.asked, "ports": known}
            )
    return [path for path, text in wanted.items() if replace(path, text)]


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
