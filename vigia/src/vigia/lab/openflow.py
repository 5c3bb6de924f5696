"""Rules of the bridges that forward by OpenFlow alone, and how they are installed.

A path whose mode is openflow has its ports on a bridge of their own, which drops
what no rule matches (fail_mode=secure). The lab installs permanent rules before
the first packet, by ovs-ofctl or by an os-ken controller, as the topology says;
nobody has to decide anything afterwards.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands, processes
from vigia.lab import matching
from vigia.lab.matching import Ends, Match
from vigia.lab.model import ASKS, STAMP_PORT, Endpoint, Installer, Node
from vigia.lab.naming import Layout
from vigia_service.patience import Patience

__all__ = [
    "BRIDGE",
    "OFCTL_TIMEOUT",
    "Switch",
    "check_controller",
    "count",
    "forwarding",
    "install",
    "ports",
    "switch",
    "tell_neighbours",
    "tunnel_ports",
]

BRIDGE = "br-of"
"""Bridge of a node whose ports forward by rules."""

OFCTL_TIMEOUT = 120.0
"""Seconds for one ovs-ofctl; a hundred thousand rules take 5 on an idle core."""

_ADDRESS, _PORTS = "127.0.0.1", (6653, 6654)
"""Where the controller listens, in the node's namespace: on OpenFlow's port at IANA and on the next, in turn.
A switch connects to a new address at once, and to one that did not answer after up to eight seconds."""

_READY_SECONDS = 60.0

_RUN = (
    "from vigia.lab import controller; controller.run()"  # os-ken finds applications by their module's name
)

_TUNNELS = 1000  # OpenFlow port numbers from here on are tunnels
_PRIORITY = 100


@dataclass(frozen=True)
class Switch:
    """A bridge that forwards by rules, and who installs them."""

    directory: Path
    """That of the node's Open vSwitch."""
    netns: str
    by: Installer
    bridge: str = BRIDGE


def switch(layout: Layout, node: Node) -> Switch:
    """Return a node's bridge that forwards by rules."""
    by: Installer = next((e.rules_by for e in node.endpoints if e.mode == "openflow"), "ovs-ofctl")
    return Switch(layout.ovs(node.name), node.netns, by)


def check_controller() -> None:
    """Raise VigiaError if os-ken is not there."""
    if find_spec("os_ken") is None:
        raise VigiaError(
            "os-ken, which is to install the rules, is missing; "
            "run: pip install 'vigia[os-ken]', or write rules: ovs-ofctl"
        )


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
        if members[0].match is None:
            rules += _network(members, numbers, tunnel)
        else:
            rules += _pair(members[0], members[0].match, numbers, tunnel)
    return rules


def _pair(e: Endpoint, match: Match, numbers: dict[str, int], tunnel: int) -> Iterator[str]:
    ends = Ends(
        here=numbers[e.device],
        tunnel=tunnel,
        mac=e.mac,
        peer_mac=e.peer_mac,
        address=str(e.address.ip),
        peer=str(e.peer),
        alias=matching.alias(e.address.network),
        asks=ASKS,
        answers=STAMP_PORT,
    )
    return (f"cookie={e.key},{rule}" for rule in matching.pair(match, e.rewrite, ends))


def tell_neighbours(node: Node) -> None:
    """Have the machines know the hardware address of an alias, which nobody answers for."""
    for e in node.endpoints:
        known = {
            "mac": (str(e.peer), matching.ALIAS_MAC),
            "ip": (matching.alias(e.address.network), e.peer_mac),
        }.get(e.rewrite)
        if known:
            address, mac = known
            commands.ip_batch([f"neigh replace {address} lladdr {mac} dev eth0 nud permanent"], netns=e.netns)


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


def install(to: Switch, rules: Sequence[str]) -> None:
    """Replace a bridge's rules in one bundle: all of them or none. Raises CommandError.

    A bundle needs OpenFlow 1.4.
    """
    if to.by == "os-ken":
        _by_controller(to, rules)
    else:
        _ofctl(to, "--bundle", "replace-flows", to.bridge, "-", stdin="".join(f"{r}\n" for r in rules))


def _by_controller(to: Switch, rules: Sequence[str]) -> None:
    """Run a controller, which the switch connects to and which ends once the rules are there.

    The switch keeps the address: it throws its rules away when it gets its
    first controller or loses its last one (ovs-vswitchd, connmgr). Without an
    answer there it forwards by what it has (fail_mode=secure).
    """
    taken = _vsctl(to, "get-controller", to.bridge)
    port = next(p for p in _PORTS if not taken.strip().endswith(f":{p}"))
    argv = [sys.executable, "-c", _RUN, _ADDRESS, str(port)]
    with commands.spawn(argv, json.dumps(list(rules)), netns=to.netns) as controller:
        try:
            _await_listening(controller, port, argv)
            _vsctl(
                to,
                *("set-controller", to.bridge, f"tcp:{_ADDRESS}:{port}"),
                *("--", "set", "Controller", to.bridge, "connection_mode=out-of-band", "max_backoff=1000"),
                *("--", "set", "Bridge", to.bridge, "other_config:disable-in-band=true"),
            )
            _, said = controller.communicate(timeout=OFCTL_TIMEOUT)
        except subprocess.TimeoutExpired as e:
            raise commands.CommandError(argv, f"still running after {OFCTL_TIMEOUT:g} s, killed") from e
        finally:
            controller.kill()
    if controller.returncode != 0:
        raise commands.CommandError(argv, f"exit status {controller.returncode}", said)


def _await_listening(controller: subprocess.Popen[str], port: int, argv: Sequence[str]) -> None:
    patience = Patience(_READY_SECONDS)
    while not processes.listens(controller.pid, port):
        if controller.poll() is not None:
            _, said = controller.communicate()
            raise commands.CommandError(argv, f"exit status {controller.returncode}", said)
        if patience.over():
            raise commands.CommandError(argv, f"does not listen after {_READY_SECONDS:g} s, killed")
        time.sleep(0.02)


def count(of: Switch) -> int:
    """Return how many rules a bridge holds. Raises CommandError."""
    found = re.search(r"flow_count=(\d+)", _ofctl(of, "dump-aggregate", of.bridge))
    return int(found[1]) if found else 0


def _ofctl(of: Switch, *arguments: str, stdin: str = "") -> str:
    argv = ["ovs-ofctl", "--protocols=OpenFlow14", "--timeout=100", *arguments]
    env = {"OVS_RUNDIR": str(of.directory)}
    return commands.run(argv, stdin=stdin, env=env, timeout=OFCTL_TIMEOUT).stdout


def _vsctl(of: Switch, *arguments: str) -> str:
    argv = ["ovs-vsctl", f"--db=unix:{of.directory}/db.sock", "--timeout=20", *arguments]
    return commands.run(argv).stdout
