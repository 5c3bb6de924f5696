"""Tenants and their machines: projects, networks and ports of Neutron, and namespaces plugged into them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vigia.host import commands
from vigia.lab import naming, openvswitch, underlay
from vigia.lab.model import Datapath, Endpoint, Lab, Node
from vigia.lab.neutron.api import Keystone, Neutron
from vigia.lab.neutron.places import Driver, NeutronPlaces
from vigia.lab.neutron.services import run, until
from vigia.lab.schema import NetworkSpec

__all__ = ["Known", "attach", "detach", "known", "make", "plug", "read_known", "workload"]

_MTU = 1500


@dataclass(frozen=True)
class Known:
    """What the cloud chose."""

    driver: Driver
    projects: Mapping[str, str]
    """Id of each tenant's project; that of the operator is _infra's."""
    ports: Mapping[str, str]
    """Id of each machine's port, by the name that the lab gave it."""
    networks: Mapping[int, str]
    """Id of each network by its key in the topology."""
    keys: Mapping[int, int]
    """Key of each network on the wire, by its key in the topology: OVN draws its own."""

    def network_of(self, e: Endpoint) -> str:
        """Return the id of a machine's network."""
        return self.networks[next(key for key, wire in self.keys.items() if wire == e.key)]


def read_known(lab: Lab) -> Known | None:
    """Return what the cloud chose, None while it has not."""
    try:
        record: Any = json.loads(NeutronPlaces(lab.layout).known.read_text())
        by_key = {name: {int(k): v for k, v in record[name].items()} for name in ("networks", "keys")}
        return Known(record["driver"], record["projects"], record["ports"], **by_key)
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None


def known(lab: Lab) -> Lab:
    """Return the lab with its ports as the cloud made them; as it is while the cloud has none."""
    found = read_known(lab)
    if found is None:
        return lab
    nodes = [replace(n, endpoints=tuple(_known(e, found) for e in n.endpoints)) for n in lab.nodes]
    return replace(lab, nodes=tuple(nodes))


def _known(e: Endpoint, found: Known) -> Endpoint:
    port, network, key = found.ports[e.port], found.networks[e.key], found.keys[e.key]
    # Nova, os-vif and Neutron's agents name devices so.
    return replace(
        e, port=port, device=f"tap{port[:11]}", key=key, bridge=f"brq{network[:11]}", tunnel=f"vxlan-{key}"
    )


def make(lab: Lab, driver: Driver) -> str:
    """Make projects, networks and ports, bound to the nodes; return what was made."""
    places = NeutronPlaces(lab.layout)
    neutron = Neutron(places, driver)
    keystone = None if driver == "ovn" else Keystone(places)
    tenants = [naming.INFRA, *(t.name for t in lab.tenants())]
    projects = {
        name: keystone.add_project(_shown(name)) if keystone else _project_id(lab, name) for name in tenants
    }
    networks: dict[int, str] = {}
    ports: dict[str, str] = {}
    for spec in lab.topology.networks:
        network = neutron.add("network", **_network(lab, spec, projects[spec.tenant]))
        networks[spec.key] = network["id"]
        made = [neutron.add("subnet", **s, network_id=network["id"]) for s in _subnets(spec, projects)]
        subnets = {s["ip_version"]: s["id"] for s in made}
        wanted = [e for e in lab.endpoints if e.key == spec.key]
        items = [_port(e, network["id"], subnets, projects[e.tenant]) for e in wanted]
        for e, port in zip(wanted, neutron.add_many("port", items), strict=True):
            ports[e.port] = port["id"]
    keys = _wire_keys(places, networks) if driver == "ovn" else {key: key for key in networks}
    record = {"driver": driver, "projects": projects, "ports": ports, "networks": networks, "keys": keys}
    places.known.write_text(json.dumps(record, indent=1) + "\n")
    return f"made {len(projects)} projects, {len(networks)} networks and {len(ports)} ports"


def plug(lab: Lab, driver: Driver, datapath: Datapath) -> str:
    """Bring up the machines and plug them as Nova does; wait until Neutron says that all ports work."""
    here = known(lab)
    for node in here.nodes:
        attach(here, node, datapath)
    neutron = Neutron(NeutronPlaces(lab.layout), driver)
    wanted = {e.port for e in here.endpoints}

    def work() -> bool:
        return wanted <= {p["id"] for p in neutron.listed("ports", status="ACTIVE", fields="id")}

    until(NeutronPlaces(lab.layout), "Neutron's ports", work)
    return f"plugged {len(wanted)} machines"


def attach(lab: Lab, node: Node, datapath: Datapath) -> None:
    """Bring up the machines of a node and join them to its switch; the names are the cloud's."""
    underlay.make_ports(node)
    if node.has("openvswitch"):
        _plug_switch(lab, node)
    else:
        _plug_bridges(node)
    userspace = node.has("openvswitch") and datapath == "userspace"
    for e in node.endpoints:
        underlay.make_endpoint(e, checksum_offload=not userspace)


def detach(lab: Lab, e: Endpoint) -> None:
    """Take a machine off its node, as Nova does when it has migrated."""
    node = lab.node(e.node)
    if node.has("openvswitch"):
        openvswitch.vsctl(lab.layout, node.name, "del-port", "br-int", e.device)
    commands.ip_batch([f"link del {e.device}"], netns=node.netns)


def _shown(tenant: str) -> str:
    return "operator" if tenant == naming.INFRA else tenant


def _project_id(lab: Lab, tenant: str) -> str:
    """Return a project's id where no Keystone draws one: as Keystone's look, and always the same."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"{_shown(tenant)}.{lab.name}.vigia").hex


def _network(lab: Lab, spec: NetworkSpec, project: str) -> Mapping[str, Any]:
    path = next(p for p in lab.topology.paths if p.name == spec.path)
    return {
        "name": f"{spec.path}-{_shown(spec.tenant)}",
        "project_id": project,
        "mtu": _MTU,
        "provider:network_type": path.encap,
        "provider:segmentation_id": spec.key,
    }


def _subnets(spec: NetworkSpec, projects: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for version, subnet in ((4, spec.subnet), (6, spec.subnet6)):
        if subnet is not None:
            yield {
                "ip_version": version,
                "cidr": str(subnet),
                "enable_dhcp": False,
                "gateway_ip": None,
                "project_id": projects[spec.tenant],
            }


def _port(e: Endpoint, network: str, subnets: Mapping[int, str], project: str) -> Mapping[str, Any]:
    addresses = [a for a in (e.address, e.address6) if a is not None]
    return {
        "name": e.port,
        "network_id": network,
        "project_id": project,
        "mac_address": e.mac,
        "fixed_ips": [{"subnet_id": subnets[a.version], "ip_address": str(a.ip)} for a in addresses],
        "binding:host_id": e.node,
        "device_owner": "compute:nova",
        "device_id": workload(e),
    }


def workload(e: Endpoint) -> str:
    """Return the id that Nova would give the machine."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{e.netns}.vigia"))


def _wire_keys(places: NeutronPlaces, networks: Mapping[int, str]) -> dict[int, int]:
    """Return what OVN puts into Geneve: its datapaths' keys, not the segmentation ids that Neutron shows."""
    argv = ["ovn-sbctl", f"--db={places.southbound}", "--format=json", "--columns=external_ids,tunnel_key"]

    def read() -> dict[str, int]:
        said = json.loads(run(places, [*argv, "list", "Datapath_Binding"]).stdout)["data"]
        return {dict(ids[1]).get("name", ""): key for ids, key in said}

    wanted = {key: f"neutron-{network}" for key, network in networks.items()}
    until(places, "ovn-northd", lambda: set(wanted.values()) <= set(read()))
    found = read()
    return {key: found[name] for key, name in wanted.items()}


def _plug_switch(lab: Lab, node: Node) -> None:
    words: list[str] = []
    for e in node.endpoints:
        identity = {
            "iface-id": e.port,
            "iface-status": "active",
            "attached-mac": e.mac,
            "vm-uuid": workload(e),
            **({"vigia-tenant": naming.INFRA} if e.tenant == naming.INFRA else {}),
        }
        words += ["--", "add-port", "br-int", e.device, "--", "set", "Interface", e.device]
        words += [f"external_ids:{key}={json.dumps(value)}" for key, value in identity.items()]
    openvswitch.vsctl(lab.layout, node.name, *words)


def _plug_bridges(node: Node) -> None:
    """Join taps to their networks' bridges, which the agent or os-vif makes, whoever comes first."""
    bridges = dict.fromkeys(e.bridge for e in node.endpoints)
    lines = [f"link add name {b} type bridge forward_delay 0 stp_state 0 mcast_snooping 0" for b in bridges]
    commands.ip_batch(lines, netns=node.netns, force=True)
    lines = [f"link set {b} up" for b in bridges]
    lines += [f"link set {e.device} master {e.bridge}" for e in node.endpoints]
    commands.ip_batch(lines, netns=node.netns)
