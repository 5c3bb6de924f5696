"""Machines that no virtual switch sees: their device is a virtual function of a network card, or a macvlan.

Where there is no SR-IOV device a macvlan of the node's underlay device shows
what bypassing the switch does; it is called macvlan, since that is what it is.
"""

from __future__ import annotations

from pathlib import Path

from vigia.host import commands
from vigia.lab import naming, sriov
from vigia.lab.model import Lab, Node, Station

__all__ = ["functions", "make"]


def make(lab: Lab, sysfs: Path = sriov.SYSFS) -> int:
    """Make the machines of all nodes, and return how many there are. Raises VigiaError."""
    for path, ends in functions(lab).items():
        device = next(p.device for p in lab.topology.paths if p.name == path)
        for function, s in zip(sriov.take(len(ends), device, sysfs), ends, strict=True):
            _move(function, s)
    macvlans = [(node, s) for node in lab.nodes for s in node.stations if s.kind == "macvlan"]
    for node, s in macvlans:
        _make_macvlan(node, s)
    return len(macvlans) + sum(map(len, functions(lab).values()))


def functions(lab: Lab) -> dict[str, list[Station]]:
    """Return the machines whose device is a virtual function, by path: one card joins those of a path."""
    found: dict[str, list[Station]] = {}
    for node in lab.nodes:
        for s in node.stations:
            if s.kind == "sriov":
                found.setdefault(s.path, []).append(s)
    return found


def _move(function: str, s: Station) -> None:
    """Give a virtual function, which keeps its name, to a machine."""
    commands.ip_batch([f"link set {function} netns {s.netns}"])
    _bring_up(function, s)


def _make_macvlan(node: Node, s: Station) -> None:
    mac = naming.mac(s.netns, "eth0")
    # Made in the node under a name of its own, which is changed where no other eth0 is.
    commands.ip_batch(
        [f"link add link eth0 name mv0 netns {s.netns} address {mac} type macvlan mode bridge"],
        netns=node.netns,
    )
    commands.ip_batch(["link set mv0 name eth0"], netns=s.netns)
    _bring_up("eth0", s)


def _bring_up(device: str, s: Station) -> None:
    commands.ip_batch(
        [
            "link set lo up",
            f"link set {device} mtu 1500",
            f"addr add {s.address} dev {device}",
            f"link set {device} up",
        ],
        netns=s.netns,
    )
