"""The files that exporters read: each is replaced as a whole, so that none is ever seen half written."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from vigia_identity.clouds import Identity, Port, Site
from vigia_identity.config import Config

__all__ = ["as_yaml", "replace", "tenants_text", "write"]


def write(identity: Identity, config: Config) -> list[Path]:
    """Write the files that have changed and return them. Raises OSError.

    A host that has no ports any more gets an empty list: its exporter still reads the file, and shows
    its age by what it says of when the cloud was asked.
    """
    wanted = {config.tenants_file: tenants_text(identity)}
    if config.contracts_dir is not None:
        sold = _by_host(config.contracts_dir, identity.contracts)
        for host, contracts in sold.items():
            entries = sorted(contracts, key=lambda c: str(c["port"]))
            wanted[config.contracts_dir / f"{host}.yaml"] = as_yaml({"version": 1, "contracts": entries})
    if config.ports_dir is not None:
        for host, ports in _by_host(config.ports_dir, identity.ports).items():
            known = [_entry(p) for p in _unique(ports)]
            wanted[config.ports_dir / f"{host}.yaml"] = as_yaml(
                {"version": 1, "asked": identity.asked, "ports": known}
            )
    if config.sites_dir is not None and identity.site is not None:
        for host, text in _sites(identity.site):
            wanted[config.sites_dir / f"{host}.yaml"] = text
    return [path for path, text in wanted.items() if replace(path, text)]


def _by_host(folder: Path, known: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {f.stem: [] for f in folder.glob("*.yaml")} | known


def _sites(site: Site) -> Iterator[tuple[str, str]]:
    """Yield each host and its file: all hosts, and all ports of those tenants that have one on it.

    What other tenants do changes nothing there. A tenant's ports are the same text in each file, made once.
    """
    here: dict[str, list[str]] = {host: [] for host in site.nodes}
    texts = {}
    for tenant, ports in sorted(site.ports.items()):
        texts[tenant] = as_yaml(ports)
        for host in dict.fromkeys(p["node"] for p in ports):
            here[host].append(tenant)
    head = as_yaml({"version": 1, "nodes": list(site.nodes.values())})
    for host, tenants in here.items():
        own = "".join(texts[t] for t in tenants)
        yield host, head + (f"ports:\n{own}" if own else "ports: []\n")


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
