"""Nodes with Open vSwitch: one database and one ovs-vswitchd per node, in the node's namespace.

With the kernel datapath, tunnels leave through the node's kernel: the tunnel
address is a second one on eth0. With the userspace datapath ovs-vswitchd sends
them itself: it has a macvlan device beside eth0, which shares the wire and its
queue with it, so that the direct path still bypasses the virtual switch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands, netns, processes
from vigia.lab import naming, openflow
from vigia.lab.model import Datapath, Endpoint, Node
from vigia.lab.naming import Layout
from vigia.lab.underlay import UNDERLAY_MTU, add_address

__all__ = [
    "DAEMONS",
    "PHYSICAL",
    "Daemon",
    "control",
    "daemons",
    "forget_cached_flows",
    "interface_errors",
    "is_daemon",
    "make_switch",
    "make_uplink",
    "start",
    "transact",
    "vsctl",
    "vswitchd",
]

DAEMONS = ("ovs-vswitchd", "ovsdb-server")
"""The processes of a node, in the order in which they are stopped."""

PHYSICAL = "phy0"
"""The macvlan device that ovs-vswitchd sends tunnels through (userspace datapath)."""

_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")


@dataclass(frozen=True)
class Daemon:
    """A process of a node's Open vSwitch as its pid file has it."""

    name: str
    pid: int
    alive: bool
    """Whether that process is there and really is this daemon."""


def make_switch(node: Node, layout: Layout, datapath: Datapath) -> None:
    """Start a node's Open vSwitch and join its tenant ports to their networks."""
    make_uplink(node, layout, datapath)
    vsctl(layout, node.name, *_transaction(node, datapath))
    _check_interfaces(node, layout)
    if openflow.ports(node):
        openflow.install(openflow.switch(layout, node), openflow.forwarding(node))
        openflow.tell_neighbours(node)


def make_uplink(node: Node, layout: Layout, datapath: Datapath) -> None:
    """Start a node's Open vSwitch with what tunnels leave by, and nothing else."""
    if datapath == "kernel":
        commands.ip_batch([add_address(node.netns, "eth0", node.tunnel)], netns=node.netns)
    else:
        _make_physical(node)
    start(node.netns, layout.ovs(node.name))
    words = ["set", "Open_vSwitch", ".", f"external_ids:system-id={node.name}"]
    if datapath == "userspace":
        # Tunnel packets are addressed to br-phy, and arrive only with the macvlan device's address.
        words += _bridge(node, "br-phy", "netdev", naming.mac(node.netns, PHYSICAL))
        words += ["--", "add-port", "br-phy", PHYSICAL]
    vsctl(layout, node.name, *words)
    if datapath == "userspace":
        commands.ip_batch(
            [add_address(node.netns, "br-phy", node.tunnel), f"link set br-phy mtu {UNDERLAY_MTU} up"],
            netns=node.netns,
        )


def _make_physical(node: Node) -> None:
    mac = naming.mac(node.netns, PHYSICAL)
    commands.ip_batch(
        [f"link add link eth0 name {PHYSICAL} mtu {UNDERLAY_MTU} address {mac} type macvlan mode bridge"],
        netns=node.netns,
    )

    # The kernel sees a copy of every tunnel packet and must not answer that
    # nobody listens: none of the sources is reached through this device.
    def drop_copies() -> None:
        Path(f"/proc/sys/net/ipv4/conf/{PHYSICAL}/rp_filter").write_text("1")

    netns.inside(node.netns, drop_copies)
    commands.ip_batch([f"link set {PHYSICAL} up"], netns=node.netns)


def start(namespace: str, directory: Path) -> None:
    """Start an Open vSwitch of a namespace, with all its files in a folder. Raises CommandError."""
    directory.mkdir(mode=0o755, parents=True)
    commands.run(["ovsdb-tool", "create", str(directory / "conf.db"), str(_SCHEMA)])
    env = _environment(directory)
    common = ["--detach", "--no-chdir", "-vconsole:off", "-vsyslog:off"]
    files = {d: [f"--pidfile={directory}/{d}.pid", f"--log-file={directory}/{d}.log"] for d in DAEMONS}
    commands.start_daemon(
        [
            "ovsdb-server",
            str(directory / "conf.db"),
            f"--remote=punix:{directory}/db.sock",
            *files["ovsdb-server"],
            *common,
        ],
        netns=namespace,
        env=env,
    )
    transact(directory, "--no-wait", "init")
    commands.start_daemon(
        ["ovs-vswitchd", f"unix:{directory}/db.sock", *files["ovs-vswitchd"], *common],
        netns=namespace,
        env=env,
    )


def _environment(directory: Path) -> dict[str, str]:
    return {f"OVS_{kind}DIR": str(directory) for kind in ("RUN", "LOG", "DB", "SYSCONF")}


def vsctl(layout: Layout, node: str, *arguments: str) -> str:
    """Run ovs-vsctl(8) on a node's database and return its output. Raises CommandError."""
    return transact(layout.ovs(node), *arguments)


def transact(directory: Path, *arguments: str) -> str:
    """Run ovs-vsctl(8) on the database in a folder and return its output. Raises CommandError."""
    argv = ["ovs-vsctl", f"--db=unix:{directory}/db.sock", "--timeout=20", *arguments]
    return commands.run(argv, env=_environment(directory)).stdout


def _transaction(node: Node, datapath: Datapath) -> list[str]:
    """What is in a node's database beside its uplink: bridges, tenant ports with their identity, tunnels."""
    kind = "netdev" if datapath == "userspace" else "system"
    words = _bridge(node, "br-int", kind, naming.mac(node.netns, "br-int"))
    numbers, tunnels = openflow.ports(node), openflow.tunnel_ports(node)
    if numbers:
        mac = naming.mac(node.netns, openflow.BRIDGE)
        words += _bridge(node, openflow.BRIDGE, kind, mac, fail_mode="secure")
    for e in node.endpoints_on("openvswitch"):
        identity = {
            "iface-id": e.port,
            "attached-mac": e.mac,
            "vigia-tenant": e.tenant,
            "vigia-network": e.path,
            "vigia-workload": e.netns,
        }
        bridge = openflow.BRIDGE if e.device in numbers else "br-int"
        words += ["--", "add-port", bridge, e.device, f"tag={e.vlan}"]
        words += ["--", "set", "Interface", e.device]
        words += _port_number(numbers.get(e.device))
        words += [f"external_ids:{key}={json.dumps(value)}" for key, value in identity.items()]
        if e.machine == 1:
            words += _tunnel(node, e, bridge, tunnels.get(e.key))
    return words


def _tunnel(node: Node, first: Endpoint, bridge: str, number: int | None) -> list[str]:
    """Each network has its own tunnel port in the network's VLAN, so there are no loops."""
    name = f"tun-{first.key}"
    return [
        *("--", "add-port", bridge, name, f"tag={first.vlan}"),
        *("--", "set", "Interface", name, f"type={first.encap}"),
        f"options:remote_ip={json.dumps(str(node.tunnel_peer))}",
        f"options:local_ip={json.dumps(str(node.tunnel.ip))}",
        f"options:key={first.key}",
        *_port_number(number),
    ]


def _port_number(number: int | None) -> list[str]:
    return [] if number is None else [f"ofport_request={number}"]


def _bridge(
    node: Node, name: str, datapath_type: str, mac: str, *, fail_mode: str = "standalone"
) -> list[str]:
    settings = [
        f"datapath_type={datapath_type}",
        f"fail_mode={fail_mode}",
        f"other_config:hwaddr={json.dumps(mac)}",
    ]
    return ["--", "add-br", name, "--", "set", "Bridge", name, *settings]


def _check_interfaces(node: Node, layout: Layout) -> None:
    for name, error in interface_errors(layout, node.name).items():
        raise VigiaError(f"Open vSwitch of node {node.name} cannot use {name}: {error}")


def interface_errors(layout: Layout, node: str) -> dict[str, str]:
    """Return the interfaces that ovs-vswitchd could not set up, with its reasons."""
    raw = json.loads(vsctl(layout, node, "--format=json", "--columns=name,error", "list", "Interface"))
    return {name: error for name, error in raw["data"] if isinstance(error, str) and error}


def daemons(layout: Layout, node: str) -> list[Daemon]:
    """Return a node's daemons by their pid files."""
    directory = layout.ovs(node)
    found = []
    for name in DAEMONS:
        file = directory / f"{name}.pid"
        try:
            pid = int(file.read_text())
        except (OSError, ValueError):
            found.append(Daemon(name, 0, False))
        else:
            found.append(Daemon(name, pid, is_daemon(pid, name, directory)))
    return found


def vswitchd(layout: Layout, node: str) -> int:
    """Return the process of a node's ovs-vswitchd. Raises VigiaError if it does not run."""
    for daemon in daemons(layout, node):
        if daemon.name == "ovs-vswitchd" and daemon.alive:
            return daemon.pid
    raise VigiaError(f"ovs-vswitchd of node {node} is not running; see {layout.ovs(node)}/ovs-vswitchd.log")


def forget_cached_flows(layout: Layout, node: str) -> None:
    """Have ovs-vswitchd throw away what it has cached of the rules, so that new ones hold at once.

    Otherwise packets may follow the old rules for about a second. Raises VigiaError.
    """
    control(layout.ovs(node), vswitchd(layout, node), "revalidator/purge")


def control(directory: Path, pid: int, *arguments: str) -> str:
    """Run ovs-appctl(8) on the ovs-vswitchd of a folder and return its output. Raises CommandError."""
    target = str(directory / f"ovs-vswitchd.{pid}.ctl")
    return commands.run(["ovs-appctl", "--timeout=10", "--target", target, *arguments]).stdout


def is_daemon(pid: int, name: str, directory: Path) -> bool:
    """Whether a process is the daemon of that name that the lab started for that directory."""
    arguments = processes.arguments(pid)
    return (
        bool(arguments)
        and Path(arguments[0]).name == name
        and f"--pidfile={directory}/{name}.pid" in arguments
    )
