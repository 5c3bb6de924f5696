"""Rules of the bridges that forward by OpenFlow alone, and how they are installed.

A path whose mode is openflow has its ports on a bridge of their own, which drops
what no rule matches (fail_mode=secure). The lab installs permanent rules before
the first packet; nobody has to decide anything afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from vigia import commands
from vigia.lab.model import Endpoint, Node

__all__ = ["BRIDGE", "OFCTL_TIMEOUT", "count", "forwarding", "install", "ports", "tunnel_ports"]

BRIDGE = "br-of"
"""Bridge of a node whose ports forward by rules."""

OFCTL_TIMEOUT = 120.0
"""Seconds for one ovs-ofctl; a hundred thousand rules take 5 on an idle core."""

_TUNNELS = 1000  # OpenFlow port numbers from here on are tunnels
_PRIORITY = 100


def ports(node: Node) -> dict[str, int]:
    """Return the OpenFlow port number of each endpoint's port, by its device."""
    here = [e for e in node.endpoints if e.mode == "openflow"]
    return {e.device: number for number, e in enumerate(here, start=1)}


def tunnel_ports(node: Node) -> dict[int, int]:
    """Return the OpenFlow port number of each network's tunnel, by its key."""
    keys = dict.fromkeys(e.key for e in node.endpoints if e.mode == "openflow")
    return {key: _TUNNELS + number for number, key in enumerate(keys)}


def forwarding(node: Node) -> list[str]:
    """Return the rules that join the node's endpoints to their networks: by address, broadcasts to all."""
    numbers, tunnels = ports(node), tunnel_ports(node)
    rules: list[str] = []
    for key, tunnel in tunnels.items():
        members = [e for e in node.endpoints if e.mode == "openflow" and e.key == key]
        rules += _network(members, numbers, tunnel)
    return rules


def _network(members: Sequence[Endpoint], numbers: dict[str, int], tunnel: int) -> Iterator[str]:
    head = f"cookie={members[0].key},priority={_PRIORITY}"
    inside = [numbers[e.device] for e in members]
    for source in (*inside, tunnel):
        others = [number for number in (*inside, tunnel) if number != source]
        flood = ",".join(f"output:{number}" for number in others)
        yield f"{head},in_port={source},dl_dst=ff:ff:ff:ff:ff:ff,actions={flood}"
        for e in members:
            if numbers[e.device] != source:
                yield f"{head},in_port={source},dl_dst={e.mac},actions=output:{numbers[e.device]}"
            if source != tunnel:
                yield f"{head},in_port={source},dl_dst={e.peer_mac},actions=output:{tunnel}"


def install(directory: Path, rules: Sequence[str], *, bridge: str = BRIDGE) -> None:
    """Replace a bridge's rules in one bundle: all of them or none. Raises CommandError.

    directory is that of the node's Open vSwitch. A bundle needs OpenFlow 1.4.
    """
    _ofctl(directory, "--bundle", "replace-flows", bridge, "-", stdin="".join(f"{r}\n" for r in rules))


def count(directory: Path, *, bridge: str = BRIDGE) -> int:
    """Return how many rules a bridge holds. Raises CommandError."""
    found = re.search(r"flow_count=(\d+)", _ofctl(directory, "dump-aggregate", bridge))
    return int(found[1]) if found else 0


def _ofctl(directory: Path, *arguments: str, stdin: str = "") -> str:
    argv = ["ovs-ofctl", "--protocols=OpenFlow14", "--timeout=100", *arguments]
    env = {"OVS_RUNDIR": str(directory)}
    return commands.run(argv, stdin=stdin, env=env, timeout=OFCTL_TIMEOUT).stdout
