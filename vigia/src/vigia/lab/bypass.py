"""Machines whose device is a macvlan of the node's underlay device: no virtual switch sees their packets.

Where there is no SR-IOV device this shows what bypassing the switch does; it is
called macvlan, since that is what it is.
"""

from __future__ import annotations

from vigia import commands
from vigia.lab import naming
from vigia.lab.model import Node

__all__ = ["make"]


def make(node: Node) -> int:
    """Make a node's macvlan machines, and return how many there are."""
    stations = [s for s in node.stations if s.kind == "macvlan"]
    for s in stations:
        mac = naming.mac(s.netns, "eth0")
        # Made in the node under a name of its own, which is changed where no other eth0 is.
        commands.ip_batch(
            [f"link add link eth0 name mv0 netns {s.netns} address {mac} type macvlan mode bridge"],
            netns=node.netns,
        )
        commands.ip_batch(
            [
                "link set lo up",
                "link set mv0 name eth0",
                "link set eth0 mtu 1500",
                f"addr add {s.address} dev eth0",
                "link set eth0 up",
            ],
            netns=s.netns,
        )
    return len(stations)
