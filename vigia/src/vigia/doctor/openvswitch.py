"""Open vSwitch: its sockets, its datapath, and what spoils the one in user space."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vigia.doctor.finding import Finding, absent, fault, fine, warning
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import buffers

__all__ = ["Bridge", "check"]

_AGENTS = ("vigia-exporter", "vigia-enforcer")
_ENOUGH = 1 << 20
"""Bytes of a packet socket's buffer below which bursts of some 50 Mbit/s are lost."""


@dataclass(frozen=True)
class Bridge:
    """A bridge, as the database has it."""

    name: str
    datapath: str
    protocols: tuple[str, ...]
    ports: tuple[str, ...]


def check(rundir: Path, namespace: str | None) -> Iterator[Finding]:
    """Look at the Open vSwitch whose sockets are in rundir and whose ports are in a namespace."""
    database = rundir / "db.sock"
    if not database.exists():
        yield absent("ovs", f"no Open vSwitch: {database} is not there", *_AGENTS)
        return
    try:
        _connect(database)
    except OSError as e:
        fix = "systemctl restart openvswitch-switch" if e.errno else f"look at {database}"
        yield fault("ovs", f"{database} does not answer: {e.strerror}", fix, *_AGENTS)
        return
    yield fine("ovs", f"{database} answers", *_AGENTS)
    try:
        bridges = _bridges(database)
    except VigiaError as e:
        yield fault("ovs", f"the database cannot be read: {e}", "ovs-vsctl show", *_AGENTS)
        return
    for bridge in bridges:
        yield _openflow(bridge)
    userspace = [b for b in bridges if b.datapath == "netdev"]
    if userspace:
        yield from _packet_buffers(rundir)
        for bridge in userspace:
            yield from _offloads(bridge, namespace)


def _connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5)
        s.connect(str(path))


def _bridges(database: Path) -> list[Bridge]:
    def read(table: str, columns: str) -> list[list[object]]:
        argv = ["ovs-vsctl", f"--db=unix:{database}", "--timeout=5", "--format=json"]
        out = commands.run([*argv, f"--columns={columns}", "list", table]).stdout
        rows: list[list[object]] = json.loads(out)["data"]
        return rows

    ports = {str(_set(uuid)[0]): str(name) for uuid, name in read("Port", "_uuid,name")}
    found = []
    for name, datapath, protocols, members in read("Bridge", "name,datapath_type,protocols,ports"):
        names = tuple(sorted(ports[u] for u in map(str, _set(members)) if u in ports))
        found.append(Bridge(str(name), str(datapath), tuple(map(str, _set(protocols))), names))
    return found


def _set(value: object) -> list[object]:
    """Return the members of a set of RFC 7047 (section 5.1), of which a single one is written bare."""
    if isinstance(value, list) and value[0] == "set":
        return [member for item in value[1] for member in _set(item)]
    if isinstance(value, list) and value[0] == "uuid":
        return [value[1]]
    return [value]


def _openflow(bridge: Bridge) -> Finding:
    if not bridge.protocols or "OpenFlow14" in bridge.protocols:
        return fine("openflow", f"bridge {bridge.name} supports OpenFlow 1.4", "vigia-exporter")
    wanted = ",".join((*bridge.protocols, "OpenFlow14"))
    return warning(
        "openflow",
        f"bridge {bridge.name} speaks {', '.join(bridge.protocols)} only: fewer port statistics, no bundles",
        f"ovs-vsctl set bridge {bridge.name} protocols={wanted}",
        "vigia-exporter",
    )


def _packet_buffers(rundir: Path) -> Iterator[Finding]:
    pidfile = rundir / "ovs-vswitchd.pid"
    try:
        found = buffers.read_all(int(pidfile.read_text()))
    except (OSError, ValueError, VigiaError) as e:
        yield warning(
            "ovs-buffers", f"cannot be looked at: {e}", f"run as root; is {pidfile} right?", *_AGENTS
        )
        return
    small = [b for b in found if b.receive < _ENOUGH]
    if not small:
        yield fine("ovs-buffers", f"{len(found)} packet sockets with 1 MiB or more", *_AGENTS)
        return
    yield warning(
        "ovs-buffers",
        f"{len(small)} of {len(found)} packet sockets of ovs-vswitchd have {small[0].receive} bytes: "
        "bursts are lost, and no counter of Open vSwitch shows it",
        "sysctl -w net.core.rmem_default=8388608 && systemctl restart openvswitch-switch",
        *_AGENTS,
    )


def _offloads(bridge: Bridge, namespace: str | None) -> Iterator[Finding]:
    """The datapath does not fill in checksums that were left to a device: the receiver drops the packet."""
    bad = 0
    for port in bridge.ports:
        for device, where in _ends(port, namespace):
            if _leaves_checksums(device, where):
                bad += 1
                yield fault(
                    "ovs-offloads",
                    f"{device} in namespace {where}, at port {port} of {bridge.name}, has TX checksum "
                    "offload on: TCP through Open vSwitch's userspace datapath fails",
                    f"ip netns exec {where} ethtool -K {device} tx off",
                    *_AGENTS,
                )
    if not bad:
        yield fine("ovs-offloads", f"no port of {bridge.name} has TX checksum offload on", *_AGENTS)


def _ends(port: str, namespace: str | None) -> Iterator[tuple[str, str]]:
    """Yield the tenant's end of a veth port, if it is in a namespace with a name."""
    link = _links(namespace).get(port, {})
    if link.get("linkinfo", {}).get("info_kind") != "veth" or "link_netnsid" not in link:
        return
    done = commands.run(["ip", "-json", "netns", "list-id"], netns=namespace, check=False)
    known = {n["nsid"]: n.get("name", "") for n in json.loads(done.stdout or "[]")}
    where = known.get(link["link_netnsid"], "")
    if where:
        yield from (
            (str(n["ifname"]), where) for n in _links(where).values() if n["ifindex"] == link["link_index"]
        )


def _links(namespace: str | None) -> dict[str, dict[str, Any]]:
    done = commands.run(["ip", "-json", "-details", "link"], netns=namespace, check=False)
    return {str(link["ifname"]): link for link in json.loads(done.stdout or "[]")}


def _leaves_checksums(device: str, namespace: str) -> bool:
    done = commands.run(["ethtool", "-k", device], netns=namespace, check=False)
    return bool(re.search(r"^tx-checksumming: on", done.stdout, re.MULTILINE))
