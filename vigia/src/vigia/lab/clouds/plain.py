"""The plain lab: its namespaces, its wires and its virtual switches, set up by the lab itself."""

from __future__ import annotations

from collections.abc import Iterator

from vigia.lab import (
    buffers,
    bypass,
    files,
    ipsec,
    linuxbridge,
    openvswitch,
    paths,
    preflight,
    underlay,
)
from vigia.lab.clouds import Cloud
from vigia.lab.model import Datapath, Lab

__all__ = ["CLOUD", "raise_buffers"]


def _mount(lab: Lab, datapath: Datapath) -> str:
    return underlay.mount_bpffs(lab)


def _namespaces(lab: Lab, datapath: Datapath) -> str:
    underlay.make_namespaces(lab)
    underlay.make_links(lab)
    for node in lab.nodes:
        underlay.make_ports(node)
    endpoints = sum(1 for _ in lab.endpoints)
    links = f"{len(lab.links)} link{'s' if len(lab.links) > 1 else ''}"
    return f"created {len(lab.nodes)} nodes, {endpoints} virtual machines, {links}"


def _wires(lab: Lab, datapath: Datapath) -> str:
    for link in lab.links:
        underlay.make_wire(link)
    for node in lab.nodes:
        underlay.make_node(node)
    rates = ", ".join(f"{link.name} {link.rate * 8 / 1e6:g} Mbit/s" for link in lab.links)
    return f"connected the nodes: {rates}"


def _machines(lab: Lab, datapath: Datapath) -> str:
    for endpoint in lab.endpoints:
        userspace = endpoint.switch == "openvswitch" and datapath == "userspace"
        underlay.make_endpoint(endpoint, checksum_offload=not userspace)
    return "brought up the virtual machines"


def _bridges(lab: Lab, datapath: Datapath) -> str:
    nodes = [n for n in lab.nodes if n.has("linuxbridge")]
    for node in nodes:
        linuxbridge.make_switch(node)
    return f"Linux bridge on {_names(n.name for n in nodes)}"


def _ovs(lab: Lab, datapath: Datapath) -> str:
    nodes = [n for n in lab.nodes if n.has("openvswitch")]
    for node in nodes:
        openvswitch.make_switch(node, lab.layout, datapath)
    return f"Open vSwitch ({datapath} datapath) on {_names(n.name for n in nodes)}"


def _names(names: Iterator[str]) -> str:
    return ", ".join(names) or "no node"


def _stations(lab: Lab, datapath: Datapath) -> str:
    made = bypass.make(lab)
    ipsec.start(lab)
    protected = sum(s.kind == "ipsec" for node in lab.nodes for s in node.stations) // 2
    if not made and not protected:
        return ""
    return f"{made} machines that bypass the switches, {protected} paths under IPsec" + (
        f" ({ipsec.implementation()})" if protected else ""
    )


def _files(lab: Lab, datapath: Datapath) -> str:
    return f"wrote {files.write(lab, datapath, ipsec.datapath(lab))} files below {lab.layout.directory}"


def _try(lab: Lab, datapath: Datapath) -> str:
    paths.first_packets(paths.tunnels(lab))  # ovs-vswitchd drops what it knows no neighbour for
    wanted = paths.targets(lab)
    paths.first_packets(wanted)
    return f"all paths carry packets ({len(wanted)} pairs)"


def raise_buffers(lab: Lab, datapath: Datapath) -> str:
    """Raise those of ovs-vswitchd: after the first packets, when it has the socket that it sends through."""
    nodes = [n for n in lab.nodes if n.has("openvswitch")]
    if datapath == "kernel" or not nodes:
        return "no buffers to raise: the kernel forwards"
    pids = [openvswitch.vswitchd(lab.layout, node.name) for node in nodes]
    sockets = sum(buffers.raise_all(pid) for pid in pids)
    return f"raised the buffers of {sockets} packet sockets of ovs-vswitchd"


_BUILD = (
    ("mounting the BPF file system", _mount),
    ("creating namespaces", _namespaces),
    ("connecting the nodes", _wires),
    ("bringing up the virtual machines", _machines),
    ("setting up the Linux bridges", _bridges),
    ("starting Open vSwitch", _ovs),
    ("writing the agents' files", _files),
    ("setting up macvlan, SR-IOV and IPsec paths", _stations),
    ("testing all paths", _try),
    ("raising the buffers of Open vSwitch", raise_buffers),
)

CLOUD = Cloud(check=preflight.check, build=_BUILD, daemons=openvswitch.DAEMONS)
