"""The compute nodes: their virtual switches and what controls these."""

from __future__ import annotations

import json

from vigia.lab import openvswitch
from vigia.lab.model import Datapath, Lab, Node
from vigia.lab.neutron import configuration
from vigia.lab.neutron.api import Neutron
from vigia.lab.neutron.places import Driver, NeutronPlaces
from vigia.lab.neutron.services import Supervised, start, until

__all__ = ["AGENTS", "start_agents", "start_switches"]

AGENTS = {
    "ovn": "ovn-controller",
    "openvswitch": "neutron-openvswitch-agent",
    "linuxbridge": "neutron-linuxbridge-agent",
}
"""The program on each node that does what the control plane wants."""


def start_switches(lab: Lab, datapath: Datapath) -> str:
    """Start Open vSwitch on the nodes that have it, with what tunnels leave by."""
    nodes = [n for n in lab.nodes if n.has("openvswitch")]
    for node in nodes:
        openvswitch.make_uplink(node, lab.layout, datapath)
    return f"Open vSwitch ({datapath} datapath) on {', '.join(n.name for n in nodes)}" if nodes else ""


def start_agents(lab: Lab, driver: Driver, datapath: Datapath) -> str:
    """Start what controls the switches, and wait until Neutron knows them all."""
    places = NeutronPlaces(lab.layout)
    for node in lab.nodes:
        start(places, _agent(lab, node, driver, datapath))
    neutron = Neutron(places, driver)
    wanted = {n.name for n in lab.nodes}

    def alive() -> bool:
        return wanted <= {a["host"] for a in neutron.listed("agents") if a["alive"] and a["admin_state_up"]}

    until(places, f"{AGENTS[driver]} of all nodes", alive)
    return f"{AGENTS[driver]} runs on {len(wanted)} nodes"


def _agent(lab: Lab, node: Node, driver: Driver, datapath: Datapath) -> Supervised:
    places = NeutronPlaces(lab.layout)
    database = f"unix:{lab.layout.ovs(node.name)}/db.sock"
    run = {"OVS_RUNDIR": str(lab.layout.ovs(node.name))}
    if driver == "ovn":
        _join_ovn(lab, node, datapath)
        folder = places.directory / node.name
        folder.mkdir()
        argv = [AGENTS[driver], database, f"--pidfile={folder}/ovn-controller.pid", "-vconsole:info"]
        return Supervised(node.name, node.netns, argv, {**run, "OVN_RUNDIR": str(folder)})
    local = node.tunnel if driver == "openvswitch" else node.underlay
    file = configuration.agent(places, driver, node.name, str(local.ip), database)
    (file.parent / "state").mkdir()
    return Supervised(node.name, node.netns, [AGENTS[driver], "--config-file", str(file)], run)


def _join_ovn(lab: Lab, node: Node, datapath: Datapath) -> None:
    """Say in the node's database where OVN is, and how the node's tunnels end."""
    said = {
        "system-id": node.name,
        "hostname": node.name,
        "ovn-remote": f"tcp:{NeutronPlaces(lab.layout).address}:6642",
        "ovn-encap-type": "geneve",
        "ovn-encap-ip": str(node.tunnel.ip),
        "ovn-bridge-datapath-type": "netdev" if datapath == "userspace" else "system",
    }
    words = [f"external_ids:{key}={json.dumps(value)}" for key, value in said.items()]
    openvswitch.vsctl(lab.layout, node.name, "set", "Open_vSwitch", ".", *words)
