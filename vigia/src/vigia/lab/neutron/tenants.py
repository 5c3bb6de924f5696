"""Tenants in the agents' files: projects' ids, as the cloud's databases have them, with names beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vigia.lab import naming
from vigia.lab.files import dump, enforcer
from vigia.lab.model import Lab, Node
from vigia.lab.neutron import guest
from vigia.lab.neutron.machines import Known, read_known, workload
from vigia.lab.neutron.places import NeutronPlaces

__all__ = ["by_project", "write_hosts"]


def by_project(lab: Lab, name: str, content: Any) -> Any:
    """Return a file's content with projects in place of the lab's tenants, and OVN as a source of ports.

    The operator's own ports stay _infra's: whoever plugged them has marked them so.
    """
    found = read_known(lab)
    if found is None:
        return content
    projects = {t: p for t, p in found.projects.items() if t != naming.INFRA}
    changed = _changed(content, projects)
    if name == "exporter.yaml":
        changed["tenants"] = [{**t, "id": projects.get(t["id"], t["id"])} for t in content["tenants"]]
    places = NeutronPlaces(lab.layout)
    if name in ("exporter.yaml", "enforcer.yaml"):
        if found.driver == "ovn":
            changed["ovn_southbound"] = places.southbound
        else:
            changed["ports_file"] = str(places.hosts / f"{content['node']}.yaml")
        if (own := guest.read(lab)) is not None and own.node == content["node"]:
            changed["libvirt_dir"] = str(places.domains(own.node))
    if name == "enforcer.yaml":
        changed["contracts_file"] = str(places.contracts / f"{content['node']}.yaml")
        changed["fast_loop"]["site_file"] = str(places.sites / f"{content['node']}.yaml")
    return changed


def write_hosts(lab: Lab) -> None:
    """Write whose each node's ports are, and who is where, as vigia-identity does, which keeps it so then."""
    found = read_known(lab)
    if found is None:
        return
    places = NeutronPlaces(lab.layout)
    for folder in (places.hosts, places.contracts, places.sites):
        folder.mkdir()
    for node in lab.nodes:
        site = by_project(lab, enforcer.SITE, enforcer.site(lab, node))
        own = [p for p in site["ports"] if p["tenant"] != naming.INFRA]
        (places.sites / f"{node.name}.yaml").write_text(dump({**site, "ports": own}))
        (places.hosts / f"{node.name}.yaml").write_text(
            dump({"version": 1, "ports": _owners(lab, node, found)})
        )
        (places.contracts / f"{node.name}.yaml").write_text(dump({"version": 1, "contracts": []}))


def _owners(lab: Lab, node: Node, found: Known) -> list[dict[str, str]]:
    projects = {**found.projects, naming.INFRA: naming.INFRA}
    own = guest.read(lab)
    more = [own] if own is not None and own.node == node.name else []
    return [
        {
            "device": g.device,
            "port": g.port,
            "tenant": projects[g.tenant],
            "network": g.network,
            "workload": g.workload,
        }
        for g in more
    ] + [
        {
            "device": e.device,
            "port": e.port,
            "tenant": projects[e.tenant],
            "network": found.network_of(e),
            "workload": workload(e),
        }
        for e in node.endpoints
    ]


def _changed(content: Any, projects: Mapping[str, str]) -> Any:
    if isinstance(content, Mapping):
        return {
            key: projects.get(value, value)
            if key == "tenant" and isinstance(value, str)
            else _changed(value, projects)
            for key, value in content.items()
        }
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [_changed(item, projects) for item in content]
    return content
