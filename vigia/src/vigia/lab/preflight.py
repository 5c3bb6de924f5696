"""What the machine must have before anything is made: rights, programs, kernel features, free addresses."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import openflow, sriov, state
from vigia.lab.model import Datapath, Lab, Node
from vigia.lab.naming import Layout

__all__ = [
    "AGENT_PORTS",
    "FEATURES",
    "IPSEC_PACKAGES",
    "OVS_PACKAGES",
    "KernelFeature",
    "Wish",
    "check",
    "check_addresses",
    "check_features",
    "check_filesystem",
    "check_programs",
    "check_rights",
    "choose_datapath",
]

AGENT_PORTS = {9871: "vigia-probe", 9872: "vigia-exporter", 9873: "vigia-enforcer"}
"""Ports of a node's agents on its loopback address."""

Wish = Literal["auto", "kernel", "userspace"]
"""Which datapath of Open vSwitch is asked for."""

_CAPABILITIES = {12: "CAP_NET_ADMIN", 13: "CAP_NET_RAW", 19: "CAP_SYS_PTRACE", 21: "CAP_SYS_ADMIN"}
_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ping": "iputils-ping",
    "mount": "mount",
    "umount": "mount",
}
OVS_PACKAGES = {
    "ovsdb-tool": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
}


IPSEC_PACKAGES = {
    "charon-systemd": "charon-systemd libcharon-extra-plugins libstrongswan-standard-plugins",
    "swanctl": "strongswan-swanctl",
}
"""What IPsec paths need."""


@dataclass(frozen=True)
class KernelFeature:
    """Something that the kernel must be able to make, tried in a namespace of its own."""

    name: str
    option: str
    command: str


FEATURES: tuple[KernelFeature, ...] = (
    KernelFeature("veth", "CONFIG_VETH", "ip link add name t0 type veth peer name t1"),
    KernelFeature(
        "sch_tbf", "CONFIG_NET_SCH_TBF", "tc qdisc add dev t0 root tbf rate 1mbit burst 3kb limit 9kb"
    ),
    KernelFeature("sch_ingress", "CONFIG_NET_SCH_INGRESS", "tc qdisc add dev t0 clsact"),
    KernelFeature(
        "act_mirred",
        "CONFIG_NET_CLS_U32 and CONFIG_NET_ACT_MIRRED",
        "tc filter add dev t0 ingress protocol all u32 match u32 0 0 action mirred egress mirror dev t1",
    ),
    KernelFeature("bridge", "CONFIG_BRIDGE", "ip link add name t2 type bridge"),
    KernelFeature("vxlan", "CONFIG_VXLAN", "ip link add name t3 type vxlan id 1 dev t0 dstport 4789"),
    KernelFeature("macvlan", "CONFIG_MACVLAN", "ip link add link t0 name t4 type macvlan"),
)
"""In this order: a trial may use the devices of those before it."""


def check(lab: Lab, datapath: Datapath) -> None:
    """Raise VigiaError for the first thing that is missing or taken. Leaves nothing behind."""
    uses_ovs = any(n.has("openvswitch") for n in lab.nodes)
    check_rights()
    check_programs({**_PACKAGES, **(OVS_PACKAGES if uses_ovs else {})})
    if any(s.kind == "ipsec" for n in lab.nodes for s in n.stations):
        check_programs(IPSEC_PACKAGES)
    check_features(lab.layout, FEATURES)
    if any(e.rules_by == "os-ken" for e in lab.endpoints):
        openflow.check_controller()
    for path in (p for p in lab.topology.paths if p.kind == "sriov"):
        wanted = sum(s.path == path.name for n in lab.nodes for s in n.stations)
        sriov.take(wanted, path.device)
    check_filesystem(Path("/proc/filesystems").read_text())
    if uses_ovs and datapath == "userspace" and not Path("/dev/net/tun").exists():
        raise VigiaError(
            "/dev/net/tun is missing (Open vSwitch's userspace datapath makes tap devices); run: modprobe tun"
        )
    check_addresses(lab)


def check_rights() -> None:
    """Raise VigiaError if a capability is missing."""
    status = Path("/proc/self/status").read_text()
    held = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    missing = [name for bit, name in _CAPABILITIES.items() if not held >> bit & 1]
    if missing:
        raise VigiaError(f"the lab needs root ({', '.join(missing)} missing); run it as root")


def check_programs(packages: Mapping[str, str]) -> None:
    """Raise VigiaError if a program is not installed."""
    for program, package in packages.items():
        if commands.find(program) is None:
            raise VigiaError(f"{program} is not installed; run: apt-get install {package}")


def check_features(layout: Layout, features: tuple[KernelFeature, ...]) -> None:
    """Raise VigiaError if the kernel cannot make something."""
    scratch = f"{layout.prefix}check"
    commands.run(["ip", "netns", "add", scratch])
    try:
        for feature in features:
            try:
                commands.run(feature.command.split(), netns=scratch)
            except commands.CommandError as e:
                raise VigiaError(
                    f"the kernel has no {feature.name}; run: modprobe {feature.name}, "
                    f"or use a kernel with {feature.option} ({e})"
                ) from e
    finally:
        commands.run(["ip", "netns", "del", scratch])


def check_filesystem(known: str) -> None:
    """Raise VigiaError if the BPF file system is not among those that the kernel knows."""
    if "bpf" not in (line.split()[-1] for line in known.splitlines() if line.strip()):
        raise VigiaError("the kernel has no BPF file system; use a kernel with CONFIG_BPF_SYSCALL")


def choose_datapath(wish: Wish, lab: Lab | None = None) -> Datapath:
    """Return where Open vSwitch will forward. Raises VigiaError if the kernel is asked for and cannot.

    A kernel gives the UDP port of VXLAN in a namespace either to Open vSwitch or to the devices of bridges.
    """
    if wish == "userspace":
        return "userspace"
    shared = next((n.name for n in lab.nodes if _vxlan_twice(n)), None) if lab else None
    if shared is not None:
        if wish == "kernel":
            raise VigiaError(
                f"node {shared} has VXLAN on a Linux bridge and on Open vSwitch, and both cannot have UDP "
                "port 4789 of one kernel; use --ovs-datapath userspace, or a node for each switch"
            )
        return "userspace"
    loaded = Path("/sys/module/openvswitch").exists()
    if not loaded and commands.find("modprobe"):
        loaded = commands.run(["modprobe", "--quiet", "openvswitch"], check=False).status == 0
    if wish == "kernel" and not loaded:
        raise VigiaError(
            "the kernel has no openvswitch module; use --ovs-datapath userspace, "
            "or a kernel with CONFIG_OPENVSWITCH"
        )
    return "kernel" if loaded else "userspace"


def _vxlan_twice(node: Node) -> bool:
    return len({e.switch for e in node.endpoints if e.encap == "vxlan"}) > 1


def check_addresses(lab: Lab) -> None:
    """Raise VigiaError if another lab or program has the addresses of the agents."""
    mine = {node.agent: node.name for node in lab.nodes}
    for file in sorted(lab.layout.root.glob("*/state.json")):
        other = state.read(Layout(file.parent.name, lab.layout.root))
        if other is None or other.lab.name == lab.name:
            continue
        for node in other.lab.nodes:
            if node.agent in mine:
                raise VigiaError(
                    f"{node.agent} of node {mine[node.agent]} belongs to {node.name} of lab {other.lab.name};"
                    f" give this lab other agents, or run: vigia lab down --lab {other.lab.name}"
                )
    for node in lab.nodes:
        for port, program in AGENT_PORTS.items():
            _check_free(str(node.agent), port, f"{program} of node {node.name}")


def _check_free(address: str, port: int, user: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((address, port))
            s.listen(1)
        except OSError as e:
            raise VigiaError(
                f"{address}:{port} ({user}) cannot be used: {e.strerror}; "
                f"stop what listens there (ss -ltnp), or give the lab other agents"
            ) from e
