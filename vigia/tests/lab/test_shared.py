"""The demo's own lab, really up under another name: both switches on the same two nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labkit import ROOT

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import openvswitch, preflight
from vigia.lab.model import Lab
from vigia_testing import eventually

pytestmark = pytest.mark.netns

# What a test sends, by its size: the machines of the other switch ask for each other's addresses at any time.
ECHO_SIZE = 77  # bytes of payload
ECHO_IN_VXLAN = f"udp port 4789 and udp[4:2] = {8 + 8 + 14 + 20 + 8 + ECHO_SIZE} and udp[39] = 1"
LARGE = "ip6[4:2] > 1500"
"""In a tunnel over IPv6 the echoes of a test alone: nothing else fills a tenant's frame."""


def test_every_path_is_there_and_healthy(shared: Any) -> None:
    report = shared.well("lab", "status", "--json").json
    assert {p["path"] for p in report["paths"]} == {p.name for p in shared.lab.topology.paths}
    assert {n["switch"] for n in report["nodes"]} == {"both"}
    assert all(set(n["daemons"]) == set(openvswitch.DAEMONS) for n in report["nodes"])
    assert "already up" in shared.up_again().stdout, "up again finds the same lab"


@pytest.mark.parametrize("tenant", ["red", "blue", "_infra"])
def test_the_switches_of_a_node_are_apart(shared: Any, tenant: str) -> None:
    """The same addresses on the bridge and on Open vSwitch: an echo stays on the network it was sent on."""
    for path, other in (("linuxbridge-vxlan", "ovs-vxlan"), ("ovs-gre", "linuxbridge-vxlan")):
        mine, foreign = (shared.lab.endpoint("node2", tenant, p) for p in (path, other))
        neighbour = f"node1/{tenant}/{path}"
        assert shared.inside(neighbour, "ping", "-c", "1", "-w", "60", str(mine.address.ip)).status == 0
        known = shared.inside(neighbour, "ip", "neigh", "show", str(mine.address.ip)).stdout
        assert mine.mac in known and foreign.mac not in known


def test_tunnels_of_the_two_switches_come_from_addresses_of_their_own(shared: Any) -> None:
    """The wire between the nodes has what each of them sent, and the enforcers know the node by either."""
    node = shared.lab.node("node1")
    wire = shared.lab.links[0].netns
    for path, outer in (("linuxbridge-vxlan", node.underlay), ("ovs-vxlan", node.tunnel)):
        with _listening(wire, "node1", ECHO_IN_VXLAN) as said:
            e = shared.lab.endpoint("node1", "blue", path)
            ping = ("ping", "-s", str(ECHO_SIZE), "-c", "3", "-i", "0.2", "-w", "60", str(e.peer))
            assert shared.inside(f"node1/blue/{path}", *ping).status == 0
            line = said()
        assert f" {outer.ip}." in line, line


class _listening:
    """tcpdump on a port of the wire, of what comes in there; ends with one frame."""

    def __init__(self, netns: str, device: str, what: str) -> None:
        argv = ["ip", "netns", "exec", netns, "tcpdump", "-lnn", "-Q", "in", "-c", "1", "-i", device, what]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> Callable[[], str]:
        assert self._process.stdout and self._process.stderr
        while "listening on" not in (line := self._process.stderr.readline()):
            assert line, "tcpdump ended"
        return self._process.stdout.readline

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.communicate()


def test_each_rule_of_an_openflow_path_forwards_what_it_names(shared: Any) -> None:
    """A datagram from any other port has no rule on the paths that look at ports."""
    e = shared.lab.endpoint("node1", "_infra", "ovs-openflow-exact")
    shared.inside("node1/_infra/ovs-openflow-exact", "ping", "-c", "1", "-w", "60", str(e.peer))
    rules = _rules(shared, f"cookie={e.key}/-1")
    probes = [r for r in rules if "priority=1000" in r]
    assert len(probes) == 4 and all(" n_packets=0," in r for r in probes), "an echo is no probe"
    script = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        f"s.bind(('{e.address.ip}', 20862)); s.sendto(b'x', ('{e.peer}', 862)); s.sendto(b'x', ('{e.peer}', 863))"
    )
    done = shared.inside("node1/_infra/ovs-openflow-exact", "python3", "-c", script)
    assert done.status == 0, done.stderr

    def hit() -> list[str]:
        found = _rules(shared, f"cookie={e.key}/-1")
        return [r for r in found if "priority=1000" in r and " n_packets=0," not in r]

    eventually(lambda: len(hit()) == 1, "one rule to have seen the datagram")
    assert " n_packets=1," in hit()[0] and "tp_dst=862 " in hit()[0]


def _rules(shared: Any, *match: str) -> list[str]:
    argv = ["ovs-ofctl", "--protocols=OpenFlow14", "dump-flows", "br-of", *match]
    done = commands.run(argv, env={"OVS_RUNDIR": str(shared.layout.ovs("node1"))})
    return [line for line in done.stdout.splitlines() if "cookie=" in line]


def test_a_kernel_has_one_vxlan_port(demo: Lab, pairs: Lab) -> None:
    assert preflight.choose_datapath("auto", demo) == "userspace"
    with pytest.raises(VigiaError) as e:
        preflight.choose_datapath("kernel", demo)
    assert str(e.value) == (
        "node node1 has VXLAN on a Linux bridge and on Open vSwitch, and both cannot have UDP port 4789 of one "
        "kernel; use --ovs-datapath userspace, or a node for each switch"
    )
    assert preflight.choose_datapath("auto", pairs) == preflight.choose_datapath("auto")


def test_a_lab_may_have_an_underlay_of_ipv6(tmp_path: Path, sixth: Any) -> None:
    """Tunnels of both switches, the direct path and the enforcers' notices, all between IPv6 addresses."""
    assert sixth.up().status == 0
    done = sixth.well("lab", "status", "--json")
    assert {(p["path"], p["ip"]) for p in done.json["paths"]} >= {
        ("direct", 6),
        ("linuxbridge-vxlan", 4),
        ("ovs-vxlan", 4),
        ("ovs-gre", 4),
    }
    node = sixth.lab.node("node1")
    wire = sixth.lab.links[0].netns
    for path, outer, what in (
        ("linuxbridge-vxlan", node.underlay, "ip6 and udp port 4789"),
        ("ovs-vxlan", node.tunnel, "ip6 and udp port 4789"),
        ("ovs-gre", node.tunnel, "ip6 proto 47"),
    ):
        with _listening(wire, "node1", f"{what} and {LARGE}") as said:
            e = sixth.lab.endpoint("node1", "blue", path)
            # As large as a frame may be: the longer header has room in the underlay's.
            ping = ("ping", "-c", "3", "-i", "0.2", "-w", "60", "-M", "do", "-s", "1472", str(e.peer))
            assert sixth.inside(f"node1/blue/{path}", *ping).status == 0, path
            assert f" {outer.ip}" in said()
    for program in ("probe", "enforcer"):
        file = sixth.layout.node("node1") / f"{program}.yaml"
        checked = commands.run([str(ROOT / f"bin/vigia-{program}"), "check-config", "--config", str(file)])
        assert "OK" in checked.stdout
    notices = (sixth.layout.node("node1") / "site.yaml").read_text()
    assert "[fd00:99:1::2]:9876" in notices
