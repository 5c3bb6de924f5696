"""The lab as it is: every namespace, device, daemon and path is looked at, not remembered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import buffers, clouds, openvswitch, paths
from vigia.lab.model import Datapath, Lab, Link, Node
from vigia.lab.state import State
from vigia_text.tables import table

__all__ = ["LabReport", "examine"]

Devices = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class NodeReport:
    """A compute node."""

    node: str
    namespace: str
    switch: str
    datapath: str | None
    """kernel or userspace for Open vSwitch, otherwise absent."""
    agent_address: str
    underlay: str
    tunnel: str
    daemons: dict[str, int]
    """Process number of each daemon that lives."""
    ok: bool


@dataclass(frozen=True)
class PortReport:
    """A tenant's port."""

    port: str
    node: str
    tenant: str
    network: str
    device: str
    workload: str
    address: str
    mac: str
    up: bool


@dataclass(frozen=True)
class PathReport:
    """A path of a tenant, tried with ICMP echoes there and back."""

    path: str
    tenant: str
    source: str
    destination: str
    ip: int
    """Version of IP: 4 or 6."""
    sent: int
    received: int
    rtt_seconds: float | None
    ok: bool


@dataclass(frozen=True)
class WireReport:
    """One direction of a link: the queue towards a node."""

    link: str
    to: str
    rate_bits_per_second: int
    queue_bytes: int
    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    backlog_bytes: int


@dataclass
class LabReport:
    """All of it, and in a line each what is wrong."""

    lab: str
    datapath: Datapath
    nodes: list[NodeReport] = field(default_factory=list)
    ports: list[PortReport] = field(default_factory=list)
    paths: list[PathReport] = field(default_factory=list)
    wires: list[WireReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Return the report as data."""
        return {"ok": not self.problems, **asdict(self)}

    def as_text(self) -> str:
        """Return the report as tables."""
        parts = [
            table(
                ["NODE", "SWITCH", "UNDERLAY", "TUNNEL", "AGENTS", "DAEMONS", "STATE"],
                [
                    (n.node, _switch(n), n.underlay, n.tunnel, n.agent_address, len(n.daemons), _word(n.ok))
                    for n in self.nodes
                ],
            ),
            table(
                ["PORT", "DEVICE", "TENANT", "NETWORK", "ADDRESS", "MAC", "STATE"],
                [
                    (p.port, p.device, p.tenant, p.network, p.address, p.mac, "up" if p.up else "DOWN")
                    for p in self.ports
                ],
            ),
            table(
                ["PATH", "TENANT", "FROM", "TO", "IP", "ANSWERED", "RTT ms", "STATE"],
                [
                    (
                        p.path,
                        p.tenant,
                        p.source,
                        p.destination,
                        p.ip,
                        f"{p.received}/{p.sent}",
                        _ms(p.rtt_seconds),
                        _word(p.ok),
                    )
                    for p in self.paths
                ],
            ),
            table(
                ["LINK", "TOWARDS", "Mbit/s", "QUEUE B", "PACKETS", "DROPPED", "BACKLOG B"],
                [
                    (
                        w.link,
                        w.to,
                        round(w.rate_bits_per_second / 1e6, 3),
                        w.queue_bytes,
                        w.sent_packets,
                        w.dropped_packets,
                        w.backlog_bytes,
                    )
                    for w in self.wires
                ],
            ),
        ]
        parts.append("\n".join([f"problem: {p}" for p in self.problems]) or f"lab {self.lab} is healthy")
        return "\n\n".join(parts)


def _switch(node: NodeReport) -> str:
    return f"{node.switch} ({node.datapath})" if node.datapath else node.switch


def _word(ok: bool) -> str:
    return "ok" if ok else "FAULTY"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.3f}"


def examine(state: State) -> LabReport:
    """Look at every part of a lab that is up."""
    lab = state.lab
    report = LabReport(lab.name, state.datapath)
    for link in lab.links:
        _wire(link, report)
    for node in lab.nodes:
        _node(lab, node, state.datapath, report)
    for trial in paths.measure(paths.targets(lab)):
        t = trial.target
        report.paths.append(
            PathReport(
                t.path,
                t.tenant,
                t.source,
                t.destination,
                t.address.version,
                trial.sent,
                trial.received,
                trial.rtt,
                trial.ok,
            )
        )
        if not trial.ok:
            why = trial.error or f"{trial.received} of {trial.sent} answered"
            report.problems.append(f"path {t.path} of {t.tenant} from {t.source} to {t.destination}: {why}")
    report.problems += clouds.load(state.cloud).problems(lab)
    return report


def _devices(name: str) -> Devices:
    """Return the devices of a namespace by name. Raises VigiaError."""
    found = json.loads(commands.run(["ip", "-json", "link", "show"], netns=name).stdout)
    return {device["ifname"]: device for device in found}


def _up(device: dict[str, Any] | None) -> bool:
    """Whether a device is up and has a carrier; operstate says so up to a second later."""
    return device is not None and {"UP", "LOWER_UP"} <= set(device["flags"])


def _wire(link: Link, report: LabReport) -> None:
    try:
        devices = _devices(link.netns)
        shown = commands.run(["tc", "-json", "-statistics", "qdisc", "show"], netns=link.netns).stdout
    except VigiaError as e:
        report.problems.append(f"link {link.name}: {e}")
        return
    qdiscs = {q["dev"]: q for q in json.loads(shown) if q["kind"] == "tbf"}
    for node in link.nodes:
        if not _up(devices.get(node)):
            report.problems.append(f"link {link.name}: the wire to {node} is down")
        qdisc = qdiscs.get(node)
        if qdisc is None:
            report.problems.append(f"link {link.name}: the rate towards {node} is not limited")
            continue
        counted = (qdisc[key] for key in ("packets", "bytes", "drops", "backlog"))
        report.wires.append(WireReport(link.name, node, link.rate * 8, link.queue, *counted))


def _node(lab: Lab, node: Node, datapath: Datapath, report: LabReport) -> None:
    problems: list[str] = []
    daemons: dict[str, int] = {}
    try:
        devices = _devices(node.netns)
        problems += [f"{d} is down" for d in _switch_devices(node, datapath) if not _up(devices.get(d))]
        if node.has("openvswitch"):
            daemons = {d.name: d.pid for d in openvswitch.daemons(lab.layout, node.name) if d.alive}
            problems += _ovs_problems(lab, node, datapath, daemons)
    except VigiaError as e:
        devices = {}
        problems.append(str(e))
    report.problems += [f"node {node.name}: {p}" for p in problems]
    report.nodes.append(
        NodeReport(
            node=node.name,
            namespace=node.netns,
            switch=node.switch,
            datapath=datapath if node.has("openvswitch") else None,
            agent_address=str(node.agent),
            underlay=str(node.underlay),
            tunnel=str(node.tunnel),
            daemons=daemons,
            ok=not problems,
        )
    )
    _ports(node, devices, report)


def _switch_devices(node: Node, datapath: Datapath) -> Iterator[str]:
    """The devices that a node needs, beside its tenants' ports."""
    yield "eth0"
    for endpoint in node.endpoints_on("linuxbridge"):
        yield endpoint.bridge
        yield endpoint.tunnel
    if node.has("openvswitch") and datapath == "userspace":
        yield openvswitch.PHYSICAL
        yield "br-phy"


def _ovs_problems(lab: Lab, node: Node, datapath: Datapath, daemons: dict[str, int]) -> Iterator[str]:
    for name in openvswitch.DAEMONS:
        if name not in daemons:
            yield f"{name} is not running"
    if len(daemons) < len(openvswitch.DAEMONS):
        return
    kind = openvswitch.vsctl(lab.layout, node.name, "get", "Bridge", "br-int", "datapath_type").strip()
    wanted = {"userspace": "netdev", "kernel": "system"}[datapath]
    if kind != wanted:
        yield f"br-int has the datapath {kind}, not {wanted}"
    for name, error in openvswitch.interface_errors(lab.layout, node.name).items():
        yield f"Open vSwitch cannot use {name}: {error}"
    if datapath == "userspace":
        small = [b for b in buffers.read_all(daemons["ovs-vswitchd"]) if b.receive < buffers.RECEIVE]
        if small:
            yield f"{len(small)} packet sockets of ovs-vswitchd have small buffers ({small[0].receive} bytes)"


def _ports(node: Node, devices: Devices, report: LabReport) -> None:
    for e in node.endpoints:
        up = _up(devices.get(e.device)) and netns.inode(e.netns) is not None
        if not up:
            report.problems.append(
                f"port {e.port}: {e.device} of {node.name} is down or {e.netns} is missing"
            )
        report.ports.append(
            PortReport(e.port, node.name, e.tenant, e.path, e.device, e.netns, str(e.address), e.mac, up)
        )
