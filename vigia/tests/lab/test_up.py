"""The lab t1, up for all of these tests: what passes, what does not, what status and exec say."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from vigia.host import netns
from vigia.lab import naming, state, status
from vigia_testing import DEADLINE, eventually

pytestmark = pytest.mark.netns

OVERLAYS = ["linuxbridge-vxlan", "ovs-vxlan", "ovs-gre"]
TENANTS = ["red", "blue", "_infra"]


def pair(path: str) -> tuple[str, str]:
    return ("lb1", "lb2") if path.startswith("linux") else ("ovs1", "ovs2")


def places(path: str, tenant: str) -> tuple[str, str]:
    """Both ends of a tenant's network."""
    first, second = pair(path)
    return f"{first}/{tenant}/{path}", f"{second}/{tenant}/{path}"


DATA = bytes(range(256)) * 8192
"""2 MiB: more than all buffers on the way hold."""


def transfer(lab: Any, here: str, there: str, address: str) -> bytes:
    """Send DATA by TCP and return what arrives."""
    server = netns.inside(lab.netns(there), lambda: socket.create_server((address, 5999)))
    with server:
        server.settimeout(60)
        client = netns.inside(lab.netns(here), lambda: socket.create_connection((address, 5999), timeout=60))
        accepted, _ = server.accept()
        accepted.settimeout(60)
        sender = threading.Thread(target=lambda: (client.sendall(DATA), client.close()))
        sender.start()
        arrived = b""
        with accepted:
            while more := accepted.recv(1 << 16):
                arrived += more
        sender.join()
    return arrived


@pytest.mark.parametrize("path", OVERLAYS)
def test_tcp_passes_both_ways(lab_up: Any, path: str) -> None:
    """On Open vSwitch a ping passes even where checksums are wrong; a transfer does not."""
    here, there = places(path, "red")
    assert transfer(lab_up, here, there, "192.168.1.2") == DATA
    assert transfer(lab_up, there, here, "192.168.1.1") == DATA


@pytest.mark.parametrize(("nodes", "network"), [(("lb1", "lb2"), "10.99.1"), (("ovs1", "ovs2"), "10.99.2")])
def test_tcp_passes_directly(lab_up: Any, nodes: tuple[str, str], network: str) -> None:
    assert transfer(lab_up, nodes[0], nodes[1], f"{network}.2") == DATA
    assert transfer(lab_up, nodes[1], nodes[0], f"{network}.1") == DATA


@pytest.mark.parametrize("path", OVERLAYS)
def test_bursts_that_the_queue_holds_pass_whole(lab_up: Any, path: str) -> None:
    """150 packets at once, 3000 in all. The default buffers of ovs-vswitchd hold fewer.

    A tunnel may drop some while it asks for the other end's address, see below: then all of them are sent anew.
    """
    here, there = places(path, "blue")
    assert any(bursts_arrive(lab_up, here, there) for _ in range(3))


def bursts_arrive(lab_up: Any, here: str, there: str) -> bool:
    receiver = netns.inside(lab_up.netns(there), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sender = netns.inside(lab_up.netns(here), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        receiver.bind(("192.168.1.2", 5998))
        receiver.settimeout(20)
        for burst in range(20):
            for number in range(150):
                sender.sendto((burst * 150 + number).to_bytes(4, "big").ljust(1400), ("192.168.1.2", 5998))
            for _ in range(150):
                try:
                    receiver.recv(2048)  # the next burst begins when this one is through
                except TimeoutError:
                    return False
    return True


def echoes(lab: Any, place: str, address: str, *options: str, count: int = 10) -> tuple[int, int]:
    """Send echoes; how many were sent, and how many were answered, however late."""
    done = lab.inside(place, "ping", "-c", str(count), "-i", "0.01", "-W", "20", *options, address)
    counted = re.search(r"(\d+) packets transmitted, (\d+) received", done.stdout)
    assert counted, done.stdout + done.stderr
    return int(counted[1]), int(counted[2])


def all_answered(lab: Any, place: str, address: str, *options: str) -> bool:
    """Send ten echoes.

    A tunnel of Open vSwitch in user space drops packets while it asks again for the other end's
    hardware address, for as long as a busy machine lets it wait: some of ten are forgiven where forty
    that follow are all answered.
    """
    sent, answered = echoes(lab, place, address, *options)
    assert sent == 10
    return answered == 10 or echoes(lab, place, address, *options, count=40) == (40, 40)


@pytest.mark.parametrize("path", OVERLAYS)
@pytest.mark.parametrize("tenant", TENANTS)
def test_every_echo_is_answered_both_ways(lab_up: Any, path: str, tenant: str) -> None:
    """Nothing on these paths loses a packet while nobody floods."""
    here, there = places(path, tenant)
    for place, address in ((here, "192.168.1.2"), (there, "192.168.1.1")):
        assert all_answered(lab_up, place, address)


@pytest.mark.parametrize("path", OVERLAYS)
def test_large_packets_pass_whole(lab_up: Any, path: str) -> None:
    """1500 bytes of a tenant fit into the underlay's frames: nothing is fragmented."""
    here, _ = places(path, "red")
    assert all_answered(lab_up, here, "192.168.1.2", "-M", "do", "-s", "1472")
    too_large = lab_up.inside(here, "ping", "-c", "1", "-W", "1", "-M", "do", "-s", "1473", "192.168.1.2")
    assert too_large.status != 0
    assert "message too long" in too_large.stderr


@pytest.mark.parametrize("path", OVERLAYS)
def test_tenants_with_the_same_addresses_do_not_meet(lab_up: Any, path: str) -> None:
    """The peer that a tenant's machine hears is its own, by its hardware address."""
    for tenant in TENANTS:
        here, there = places(path, tenant)
        lab_up.inside(here, "ping", "-c", "1", "-w", "20", "192.168.1.2")
        known = json.loads(lab_up.inside(here, "ip", "-json", "neighbor", "show", "192.168.1.2").stdout)
        own = json.loads(lab_up.inside(there, "ip", "-json", "link", "show", "eth0").stdout)
        assert [n["lladdr"] for n in known] == [own[0]["address"]], tenant


@pytest.mark.parametrize("path", OVERLAYS)
def test_what_one_tenant_sends_reaches_no_other(lab_up: Any, path: str) -> None:
    """Broadcasts as well: they go to every port of a network, so to none of another's."""
    here, there = places(path, "red")
    others = [f"{node}/{tenant}/{path}" for node in pair(path) for tenant in ("blue", "_infra")]
    own = naming.mac(lab_up.netns(here), "eth0")
    with ExitStack() as stack:
        ears = {place: stack.enter_context(ear(lab_up, place)) for place in [there, *others]}
        arrived: list[int] = []

        def reached() -> bool:
            lab_up.inside(here, "ping", "-b", "-c", "25", "-i", "0.01", "-W", "1", "192.168.1.255")
            arrived.append(heard(ears[there], own))
            return sum(arrived) >= 25

        eventually(reached, lambda: f"25 broadcasts to reach the tenant's own machine: {arrived}")
        assert {place: heard(ears[place], own) for place in others} == dict.fromkeys(others, 0)


def ear(lab: Any, place: str) -> socket.socket:
    """A socket that gets every frame at a machine's port."""
    every = 3  # ETH_P_ALL
    made = netns.inside(
        lab.netns(place), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every))
    )
    made.bind(("eth0", every))
    made.setblocking(False)
    return made


def heard(by: socket.socket, source: str) -> int:
    """How many frames from a hardware address came since this was asked last; its neighbours ask for each other, too."""
    count = 0
    while True:
        try:
            frame = by.recv(64)
        except BlockingIOError:
            return count
        count += frame[6:12].hex(":") == source


def test_a_path_is_what_it_is_called(lab_up: Any) -> None:
    """On the wire, a tenant's packets are in VXLAN or GRE with the network's key, and direct ones bare."""
    wanted = {
        "linuxbridge-vxlan": (
            "lb",
            "lb1/red/linuxbridge-vxlan",
            "192.168.1.2",
            "VXLAN, flags [I] (0x08), vni 110",
        ),
        "ovs-vxlan": ("ovs", "ovs1/red/ovs-vxlan", "192.168.1.2", "VXLAN, flags [I] (0x08), vni 210"),
        "ovs-gre": ("ovs", "ovs1/red/ovs-gre", "192.168.1.2", "GREv0, Flags [key present], key=0x136"),
        "direct": ("ovs", "ovs1", "10.99.2.2", "10.99.2.1 > 10.99.2.2: ICMP echo request"),
    }
    for path, (link, place, address, text) in wanted.items():
        wire = lab_up.layout.wire_netns(link)
        listening = [
            "tcpdump",
            "-l",
            "-n",
            "-v",
            "-i",
            pair("linux" if link == "lb" else "ovs")[0],
            "-Q",
            "in",
        ]
        dump = subprocess.Popen(
            ["ip", "netns", "exec", wire, *listening],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert dump.stdout and dump.stderr
        try:
            said = ""
            while "listening on" not in said:
                line = dump.stderr.readline()
                assert line, f"tcpdump ended: {said}"
                said += line
            lab_up.inside(place, "ping", "-c", "3", "-i", "0.2", "-w", "20", address)
            seen = ""
            while text not in seen:
                more = dump.stdout.readline()
                assert more, f"{path}: {text!r} is not in {seen}"
                seen += more
        finally:
            dump.kill()
            dump.communicate()


def wire(report: Any, towards: str) -> Any:
    return next(w for w in report["wires"] if w["to"] == towards)


STRAY = 50
"""Packets of neighbour discovery and of links that come up, which a count before and one after may not have alike."""


def came(lab: Any, source: str) -> int:
    """Return how many packets a node has put on its link, by the kernel's count at the link's other end."""
    where = lab.layout.wire_netns(next(n for n in ("lb", "ovs") if source.startswith(n)))
    words = ["ip", "-n", where, "-json", "-statistics", "link", "show", "dev", source]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    packets: int = found[0]["stats64"]["rx"]["packets"]
    return packets


@pytest.mark.parametrize(
    ("path", "source", "towards"), [("linuxbridge-vxlan", "lb1", "lb2"), ("ovs-vxlan", "ovs2", "ovs1")]
)
def test_a_flood_fills_the_wire_and_no_more(lab_up: Any, path: str, source: str, towards: str) -> None:
    """What arrives is bounded by the link's rate and queue; the rest is dropped there, and counted."""

    def counted() -> Any:
        return wire(lab_up.vigia("lab", "status", "--json").json, towards)

    for _ in range(5):  # a stalled machine may send few or none in its time
        begin, entered, before = time.monotonic(), came(lab_up, source), counted()
        words = ("--tenant", "red", "--path", path, "--from", source, "--rate", "400Mbit", "--seconds", "2")
        done = lab_up.vigia("flood", *words, "--json")
        assert done.status == 0, done.stderr
        flood = done.json
        if flood["packets"] > 1000:
            break
    after = eventually(lambda: (now := counted())["backlog_bytes"] == 0 and now, "the queue to be empty")
    passed = after["sent_bytes"] - before["sent_bytes"]
    dropped = after["dropped_packets"] - before["dropped_packets"]
    # Never more than the rate for the whole time, which does not end with the flood: ovs-vswitchd goes on
    # forwarding what its sockets hold. Besides, one burst.
    assert passed <= 25_000_000 * (time.monotonic() - begin) + 50_000
    assert flood["send_errors"] == 0
    assert flood["packets"] > 1000
    arrived = after["sent_packets"] - before["sent_packets"] + dropped
    assert arrived <= flood["packets"] + 2000, "nothing is multiplied"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", flood["first_packet"])
    assert flood["first_packet"] < flood["last_packet"]
    if path == "linuxbridge-vxlan":
        # What is sent beyond the link's rate is lost there; half of it may still wait.
        assert dropped >= flood["packets"] * (1 - 200e6 / flood["achieved_bits_per_second"]) / 2
        assert arrived >= flood["packets"], "on a kernel path nothing is lost on the way to the wire"
        return

    # Open vSwitch's thread may have no processor for more than the link carries: then its sockets drop. What it
    # forwarded has left the link or was dropped there.
    def missing() -> int:
        now = counted()
        gone = sum(now[k] - before[k] for k in ("sent_packets", "dropped_packets"))
        return abs(came(lab_up, source) - entered - gone)

    eventually(lambda: missing() <= STRAY, lambda: f"the link's end of {missing()} packets")


def test_a_flood_to_another_address_is_refused(lab_up: Any) -> None:
    before = wire(lab_up.vigia("lab", "status", "--json").json, "lb2")
    base = ("flood", "--tenant", "red", "--path", "linuxbridge-vxlan", "--rate", "1Mbit", "--seconds", "1")
    for address in ("8.8.8.8", "10.99.1.2", "127.0.0.1", "192.168.1.255"):
        done = lab_up.vigia(*base, "--to", address)
        assert done.status == 2
        assert done.stderr == (
            f'vigia: --to "{address}" is not an endpoint of red on linuxbridge-vxlan; '
            "a flood from lb1 may go to 192.168.1.2 only; see vigia --help\n"
        )
    after = wire(lab_up.vigia("lab", "status", "--json").json, "lb2")
    assert after["sent_packets"] - before["sent_packets"] < 100


def test_a_flood_reports_to_people(lab_up: Any) -> None:
    done = lab_up.vigia(
        *(
            "flood",
            "--tenant",
            "blue",
            "--path",
            "ovs-gre",
            "--rate",
            "1Mbit",
            "--seconds",
            "0.5",
            "--size",
            "500",
        )
    )
    assert done.status == 0, done.stderr
    assert re.search(r"^sent +\d+ packets of 500 bytes, \d+ bytes$", done.stdout, re.MULTILINE)
    assert "blue on ovs-gre from ovs1: 192.168.1.1 to 192.168.1.2" in done.stdout


def test_status_as_json(lab_up: Any) -> None:
    def whole() -> Any:
        """Every echo of a path has a second, which a busy machine may not keep to at once."""
        done = lab_up.vigia("lab", "status", "--json")
        return done.status == 0 and all(p["received"] == 3 for p in done.json["paths"]) and done.json

    report = eventually(whole, "a status in which every echo is answered")
    assert (report["lab"], report["ok"], report["problems"]) == ("t1", True, [])
    assert [n["node"] for n in report["nodes"]] == ["lb1", "lb2", "ovs1", "ovs2"]
    assert report["nodes"][0]["datapath"] is None
    assert report["nodes"][2]["datapath"] in ("kernel", "userspace")
    assert set(report["nodes"][2]["daemons"]) == {"ovs-vswitchd", "ovsdb-server"}
    assert len(report["ports"]) == 18 and all(p["up"] for p in report["ports"])
    assert len(report["paths"]) == 11 and all(p["ok"] for p in report["paths"])
    assert all(p["rtt_seconds"] > 0 for p in report["paths"])
    assert [(w["link"], w["to"]) for w in report["wires"]] == [
        ("lb", "lb1"),
        ("lb", "lb2"),
        ("ovs", "ovs1"),
        ("ovs", "ovs2"),
    ]
    assert {w["rate_bits_per_second"] for w in report["wires"]} == {200_000_000}


def test_status_as_tables(lab_up: Any) -> None:
    done = lab_up.well("lab", "status")
    tables = done.stdout.split("\n\n")
    assert [t.split()[0] for t in tables[:4]] == ["NODE", "PORT", "PATH", "LINK"]
    assert [len(t.splitlines()) - 1 for t in tables[:4]] == [4, 18, 11, 4]
    assert tables[4] == "lab t1 is healthy\n"
    assert "FAULTY" not in done.stdout
    assert re.search(
        r"^lb1-red-110 +red-110 +red +linuxbridge-vxlan +192\.168\.1\.1/24 .* up$", tables[1], re.M
    )


def test_ports_of_open_vswitch_know_their_tenant(lab_up: Any) -> None:
    for endpoint in (e for e in lab_up.lab.endpoints if e.node.startswith("ovs")):
        socket = f"unix:{lab_up.layout.ovs(endpoint.node)}/db.sock"
        argv = ["ovs-vsctl", f"--db={socket}", "--format=json", "--columns=external_ids,mac_in_use"]
        out = subprocess.run(
            [*argv, "list", "Interface", endpoint.device], capture_output=True, text=True, check=True
        ).stdout
        ids = dict(json.loads(out)["data"][0][0][1])
        assert ids == {
            "iface-id": endpoint.port,
            "attached-mac": endpoint.mac,
            "vigia-tenant": endpoint.tenant,
            "vigia-network": endpoint.path,
            "vigia-workload": endpoint.netns,
        }
        inside = json.loads(
            lab_up.inside(
                f"{endpoint.node}/{endpoint.tenant}/{endpoint.path}", "ip", "-json", "link", "show", "eth0"
            ).stdout
        )
        assert inside[0]["address"] == endpoint.mac


def test_files_of_the_agents(lab_up: Any) -> None:
    """Everything that they name is there."""
    for node in lab_up.lab.nodes:
        directory = lab_up.layout.node(node.name)
        assert {"probe.yaml", "exporter.yaml", "enforcer.yaml", "site.yaml"} <= {
            p.name for p in directory.iterdir()
        }
        assert lab_up.layout.pins(node.name).is_dir()
    token = lab_up.layout.token_file
    assert token.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(r"[\w-]{43}\n", token.read_text())
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    kinds = [m[m.index("-") + 1] for m in mounts if m[4] == str(lab_up.layout.bpffs)]
    assert kinds == ["bpf"]


def answers(lab: Any, asking: str, address: str) -> list[str]:
    """Who says to have an address: one request on the wire, all replies to it.

    It comes from an address that nobody has: the node's own kernel is answered for what it asks meanwhile.
    """
    own = bytes.fromhex(naming.mac(lab.netns(asking), "eth0").replace(":", ""))
    source = (lab.lab.node(asking).underlay.network.broadcast_address - 1).packed
    request = b"\xff" * 6 + own + bytes.fromhex("0806000108000604" + "0001") + own + source
    with netns.inside(
        lab.netns(asking), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
    ) as s:
        s.bind(("eth0", 0x0806))
        s.send(request + bytes(6) + socket.inet_aton(address))
        s.settimeout(DEADLINE)
        found: list[str] = []
        try:
            while True:
                reply = s.recv(64)
                asked = reply[28:32] == socket.inet_aton(address) and reply[38:42] == source
                if reply[20:22] == b"\0\2" and asked:
                    found.append(reply[22:28].hex(":"))
                    s.settimeout(1)  # what a second one would take longer
        except TimeoutError:
            return found


@pytest.mark.parametrize(
    ("asking", "owner", "address", "device"),
    [
        ("lb1", "lb2", "10.99.1.2", "eth0"),
        ("ovs1", "ovs2", "10.99.2.2", "eth0"),
        ("ovs1", "ovs2", "10.99.3.2", "phy0"),
        ("ovs2", "ovs1", "10.99.3.1", "phy0"),
    ],
)
def test_nothing_answers_for_another(lab_up: Any, asking: str, owner: str, address: str, device: str) -> None:
    """Who asks for an address of a node gets one answer, from the device that has it."""
    if device == "phy0" and state.running("t1").datapath == "kernel":
        device = "eth0"
    assert answers(lab_up, asking, address) == [naming.mac(lab_up.netns(owner), device)]


@pytest.mark.parametrize(
    ("place", "address", "towards"),
    [
        ("lb1/blue/linuxbridge-vxlan", "192.168.1.2", "lb2"),
        ("ovs2/blue/ovs-vxlan", "192.168.1.1", "ovs1"),
        ("lb2", "10.99.1.1", "lb1"),
    ],
)
def test_a_full_queue_drops_and_holds_nobody_back(
    lab_up: Any, wait_until: Callable[..., None], place: str, address: str, towards: str
) -> None:
    """As in a real switch. A sender whose own buffer were charged for the queue would be told to wait."""

    def arrived() -> int:
        now = wire(status.examine(state.running("t1")).as_json(), towards)
        return int(now["sent_packets"] + now["dropped_packets"])

    before = arrived()
    count = 2000
    with netns.inside(lab_up.netns(place), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as s:
        for _ in range(count):
            s.sendto(bytes(1400), socket.MSG_DONTWAIT, (address, 5997))
    wait_until(lambda: arrived() >= before + count, "each is either passed on or counted as dropped")


def test_a_copy_of_a_tunnel_packet_is_not_answered(lab_up: Any) -> None:
    """Beside ovs-vswitchd the kernel sees tunnel packets too, and must not call their port unreachable."""
    here, _ = places("ovs-vxlan", "red")
    lab_up.inside(here, "ping", "-c", "10", "-i", "0.01", "-w", "10", "192.168.1.2")
    for node in ("ovs1", "ovs2"):
        counters = lab_up.inside(node, "nstat", "-a", "-z", "-s", "IcmpOutDestUnreachs").stdout
        assert re.search(r"IcmpOutDestUnreachs +0 ", counters), node


def test_frames_on_the_wire_have_one_packet(lab_up: Any) -> None:
    """The queue counts frames of MTU size: segmentation happens before the wire."""
    for node in ("lb1", "ovs1"):
        features = lab_up.inside(node, "ethtool", "-k", "eth0").stdout
        for feature in (
            "tcp-segmentation-offload",
            "generic-segmentation-offload",
            "tx-udp_tnl-segmentation",
        ):
            assert re.search(rf"^\s*{feature}: off", features, re.MULTILINE), (node, feature)


@pytest.mark.parametrize(
    ("place", "namespace"),
    [
        ("lb1", "vigia-t1-lb1"),
        ("ovs2/blue/ovs-gre", "vigia-t1-ovs2-blue-ovs-gre"),
        ("lb2/_infra/linuxbridge-vxlan", "vigia-t1-lb2-infra-linuxbridge-vxlan"),
        ("lb2/_infra/direct", "vigia-t1-lb2"),
    ],
)
def test_exec(lab_up: Any, place: str, namespace: str) -> None:
    done = lab_up.vigia("lab", "exec", place, "--", "ip", "netns", "identify")
    assert (done.status, done.stdout) == (0, f"{namespace}\n")


def test_exec_passes_on_the_status_and_every_word(lab_up: Any) -> None:
    done = lab_up.vigia("lab", "exec", "lb1", "--", "sh", "-c", 'echo "$1"; exit 9', "sh", "a b")
    assert (done.status, done.stdout) == (9, "a b\n")
    assert lab_up.vigia("lab", "exec", "lb1", "echo", "--lab", "x").stdout == "--lab x\n"


@pytest.mark.parametrize(
    ("words", "message", "status"),
    [
        (["lb7", "true"], 'lab t1 has no node "lb7"; its nodes are lb1, lb2, ovs1, ovs2', 1),
        (
            ["lb1/red", "true"],
            '"lb1/red" is not a place; write NODE or NODE/TENANT/PATH, for example node1/red/linuxbridge-vxlan; '
            "see vigia --help",
            2,
        ),
        (
            ["lb1/red/ovs-gre", "true"],
            'node lb1 has no endpoint "red/ovs-gre"; its endpoints are '
            "_infra/linuxbridge-vxlan, red/linuxbridge-vxlan, blue/linuxbridge-vxlan",
            1,
        ),
        (
            ["lb1", "vigia-no-such-program"],
            "vigia-no-such-program: cannot be run: No such file or directory",
            1,
        ),
        (
            ["lb1", "--"],
            "there is no command; write for example: vigia lab exec node1 -- ip address; see vigia --help",
            2,
        ),
    ],
)
def test_exec_of_nothing(lab_up: Any, words: list[str], message: str, status: int) -> None:
    done = lab_up.vigia("lab", "exec", *words)
    assert (done.status, done.stderr) == (status, f"vigia: {message}\n")


def test_the_record_says_what_is_up(lab_up: Any) -> None:
    record = json.loads(lab_up.layout.state_file.read_text())
    assert record["phase"] == "up"
    assert record["topology"]["agents"] == "127.78.0.0/24"
    assert state.running("t1").lab == lab_up.lab


def test_up_again_says_so(lab_up: Any) -> None:
    before = lab_up.layout.state_file.read_text()
    done = lab_up.up_again()
    assert re.search(r"s  lab t1 is already up, as the topology says$", done.stdout, re.MULTILINE)
    assert lab_up.layout.state_file.read_text() == before


def test_up_with_another_topology_is_refused(lab_up: Any) -> None:
    other = lab_up.file.with_name("other.yaml")
    other.write_text(lab_up.file.read_text().replace("guarantee: 40Mbit", "guarantee: 41Mbit"))
    done = lab_up.vigia("lab", "up", "--topology", str(other))
    assert (done.status, done.stderr) == (
        1,
        "vigia: lab t1 is up with another topology; to replace it, run: vigia lab down --lab t1\n",
    )
    assert lab_up.well("lab", "status").status == 0, "and nothing has happened to it"


def test_another_lab_on_the_same_addresses_is_refused(lab_up: Any, machine: Callable[[str], Any]) -> None:
    other = lab_up.file.with_name("t2.yaml")
    other.write_text(lab_up.file.read_text().replace("name: t1\n", "name: t2\n"))
    before = machine("t2")
    done = lab_up.vigia("lab", "up", "--topology", str(other))
    assert (done.status, done.stderr) == (
        1,
        "vigia: 127.78.0.1 of node lb1 belongs to lb1 of lab t1; "
        "give this lab other agents, or run: vigia lab down --lab t1\n",
    )
    assert machine("t2") == before
