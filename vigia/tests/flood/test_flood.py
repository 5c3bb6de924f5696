"""The flood: its bounds, its packets, its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from vigia.errors import VigiaError
from vigia.flood import order, run
from vigia.flood import sender as sender_module
from vigia.flood.bounds import MAX_PORTS
from vigia.flood.order import FloodOrder
from vigia.flood.packets import PacketTrain, unhindered
from vigia.flood.sender import FloodOutcome
from vigia.host import processes
from vigia.lab.model import Lab
from vigia_testing import DEADLINE

Children = list[subprocess.Popen[str]]

GOOD: dict[str, Any] = {
    "tenant": "red",
    "path": "linuxbridge-vxlan",
    "node": "lb1",
    "to": None,
    "rate": "400Mbit",
    "seconds": 15.0,
    "size": 1400,
}


def test_an_order(pairs: Lab) -> None:
    assert order.make(pairs, **GOOD) == FloodOrder(
        netns="vigia-demo-lb1-red-linuxbridge-vxlan",
        node="lb1",
        tenant="red",
        path="linuxbridge-vxlan",
        source="192.168.1.1",
        destination="192.168.1.2",
        rate=50_000_000,
        seconds=15.0,
        size=1400,
    )


def test_the_other_way_round(pairs: Lab) -> None:
    got = order.make(pairs, **{**GOOD, "node": "lb2", "to": "192.168.1.1"})
    assert (got.source, got.destination) == ("192.168.1.2", "192.168.1.1")


def test_without_a_node_the_first_on_the_path(pairs: Lab) -> None:
    assert order.make(pairs, **{**GOOD, "node": None}).node == "lb1"
    assert order.make(pairs, **{**GOOD, "node": None, "path": "ovs-gre"}).node == "ovs1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"to": "8.8.8.8"},
            '--to "8.8.8.8" is not an endpoint of red on linuxbridge-vxlan; '
            "a flood from lb1 may go to 192.168.1.2 only",
        ),
        (
            {"to": "10.99.1.2"},
            '--to "10.99.1.2" is not an endpoint of red on linuxbridge-vxlan; '
            "a flood from lb1 may go to 192.168.1.2 only",
        ),
        (
            {"to": "192.168.1.1"},
            '--to "192.168.1.1" is the flood\'s own address; a flood from lb1 may go to 192.168.1.2 only',
        ),
        ({"to": "host"}, '--to "host" is not an IPv4 address; leave it out for the tenant\'s peer'),
        ({"to": "::1"}, '--to "::1" is not an IPv4 address; leave it out for the tenant\'s peer'),
        ({"rate": "fast"}, '--rate "fast" is not a rate; write for example 200Mbit, 1Gbit or 64kbit'),
        ({"rate": "400MB"}, '--rate "400MB" is not a rate; write for example 200Mbit, 1Gbit or 64kbit'),
        ({"rate": "-1Mbit"}, '--rate "-1Mbit" is not a rate; write for example 200Mbit, 1Gbit or 64kbit'),
        ({"rate": "1001Mbit"}, '--rate "1001Mbit" is out of range; write one packet per second to 1Gbit'),
        ({"rate": "0Mbit"}, '--rate "0Mbit" is out of range; write one packet per second to 1Gbit'),
        ({"rate": "8kbit"}, '--rate "8kbit" is out of range; write one packet per second to 1Gbit'),
        ({"seconds": 0.0}, "--seconds 0 is out of range; write above 0, at most 120"),
        ({"seconds": -1.0}, "--seconds -1 is out of range; write above 0, at most 120"),
        ({"seconds": 120.1}, "--seconds 120.1 is out of range; write above 0, at most 120"),
        ({"seconds": float("nan")}, "--seconds nan is out of range; write above 0, at most 120"),
        ({"size": 17}, "--size 17 is out of range; write 18 to 1472 bytes"),
        ({"size": 1473}, "--size 1473 is out of range; write 18 to 1472 bytes"),
        ({"ports": 0}, "--ports 0 is out of range; write 1 to 16384"),
        ({"ports": 16385}, "--ports 16385 is out of range; write 1 to 16384"),
        (
            {"path": "ovs-gre"},
            'node lb1 has no endpoint "red/ovs-gre"; its endpoints are '
            "_infra/linuxbridge-vxlan, red/linuxbridge-vxlan, blue/linuxbridge-vxlan",
        ),
        ({"node": "lb7"}, 'lab demo has no node "lb7"; its nodes are lb1, lb2, ovs1, ovs2'),
        (
            {"node": None, "tenant": "green"},
            'tenant "green" has no endpoint on path "linuxbridge-vxlan"; it has none in this lab; '
            "its tenants are _infra, blue, red",
        ),
        (
            {"node": None, "path": "direct"},
            'tenant "red" has no endpoint on path "direct"; it has them on linuxbridge-vxlan, ovs-gre, ovs-vxlan',
        ),
    ],
)
def test_bounds(pairs: Lab, change: dict[str, Any], message: str) -> None:
    with pytest.raises(VigiaError) as e:
        order.make(pairs, **{**GOOD, **change})
    assert str(e.value) == message


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"rate": "1Gbit"}, "rate", 125_000_000),
        ({"rate": "12kbit"}, "rate", 1500),
        ({"rate": "800bit", "size": 18}, "rate", 100),
        ({"rate": "1.5Mbit"}, "rate", 187_500),
        ({"seconds": 120.0}, "seconds", 120.0),
        ({"size": 1472}, "size", 1472),
        ({"size": 18}, "size", 18),
        ({"ports": 1}, "ports", 1),
        ({"ports": 16384}, "ports", 16384),
    ],
)
def test_just_inside_the_bounds(pairs: Lab, change: dict[str, Any], field: str, value: float) -> None:
    assert getattr(order.make(pairs, **{**GOOD, **change}), field) == value


@pytest.fixture
def namespace(root: None) -> Iterator[str]:
    """A namespace with nothing in it but its own loopback."""
    name = f"vigia-test-flood-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture
def small(namespace: str) -> FloodOrder:
    """A flood over the loopback of a namespace: 1000 packets per second for one second."""
    return FloodOrder(namespace, "n", "red", "p", "127.0.0.1", "127.0.0.2", 100_000, 1.0, 100)


@pytest.fixture
def sniffer(namespace: str) -> Iterator[socket.socket]:
    """Sees every packet on the loopback of the namespace."""
    from vigia.host import netns  # noqa: PLC0415 - beside its one use

    def listen() -> socket.socket:
        s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        s.bind(("lo", 0x0800))
        s.settimeout(0.5)
        return s

    with netns.inside(namespace, listen) as s:
        yield s


def seen(sniffer: socket.socket) -> list[tuple[str, int, bytes]]:
    """Destination, port and payload of the UDP packets that have been seen, each once."""
    found = []
    try:
        while True:
            packet, (_, _, kind, _, _) = sniffer.recvfrom(2048)
            if kind == socket.PACKET_OUTGOING or packet[9] != socket.IPPROTO_UDP:
                continue
            found.append((socket.inet_ntoa(packet[16:20]), int.from_bytes(packet[22:24], "big"), packet[28:]))
    except TimeoutError:
        return found


@pytest.mark.netns
def test_packets_go_to_one_address_and_random_ports(small: FloodOrder, sniffer: socket.socket) -> None:
    for _ in range(5):  # a stalled machine may send few or none in its time
        report = run.run(small)
        packets = seen(sniffer)
        assert len(packets) == report.outcome.packets, "what is said to be sent was sent"
        if len(packets) > 100:
            break
    assert {address for address, _, _ in packets} == {"127.0.0.2"}
    ports = [port for _, port, _ in packets]
    assert len(set(ports)) == len(ports), "no port comes twice while there are others"
    assert max(ports) > 49152 and min(ports) < 16384, "from the whole range"
    assert ports != sorted(ports)
    assert {payload for _, _, payload in packets} == {(b"vigia flood " * 9)[:100]}


@pytest.mark.netns
def test_the_rate_and_the_time_are_bounds(small: FloodOrder) -> None:
    """A machine may be slow, then less is sent; more is never sent.

    It may also stand still between the last look at the clock and the packet: of five floods that is rare.
    """
    reports = [run.run(small) for _ in range(5)]
    assert all(r.outcome.packets <= 1001 and r.outcome.errors == 0 for r in reports)
    assert sum(r.outcome.packets for r in reports) > 0
    assert sorted(r.seconds for r in reports)[2] <= 1.1


class Clock:
    """A clock in place of the time module, which sending and sleeping move on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return round(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("stall", "packets"), [(0.0, 1000), (0.3, 800)])
def test_nothing_is_begun_after_its_time(monkeypatch: pytest.MonkeyPatch, stall: float, packets: int) -> None:
    """Nor is what a stall took made up for, beyond a tenth of a second."""
    clock, begun = Clock(), []

    class Train:
        def send(self, count: int) -> tuple[int, int]:
            begun.append(clock.now - 1000.0)
            clock.now += stall if len(begun) == 10 else 1e-5
            return count, 0

    monkeypatch.setattr(sender_module, "time", clock)
    flood = FloodOrder("", "n", "red", "p", "127.0.0.1", "127.0.0.2", 100_000, 1.0, 100)
    outcome = sender_module.send(flood, Train(), SimpleNamespace(wanted=False))  # type: ignore[arg-type]
    assert abs(outcome.packets - packets) <= 2
    assert max(begun) < 1.0
    assert outcome.last_ns - outcome.first_ns <= 1_001_000_000


@pytest.mark.netns
def test_two_floods_use_different_ports(small: FloodOrder, sniffer: socket.socket) -> None:
    first, second = (ports_of(small, sniffer)[:20] for _ in range(2))
    assert first != second


def ports_of(flood: FloodOrder, sniffer: socket.socket) -> list[int]:
    """The ports of a flood's packets, of which a stalled machine may send few or none in its time."""
    for _ in range(5):
        run.run(flood)
        ports = [port for _, port, _ in seen(sniffer)]
        if len(ports) >= 100:
            return ports
    raise AssertionError(f"the last of five floods came to {len(ports)} packets")


@pytest.mark.netns
@pytest.mark.parametrize("ports", [1, 3])
def test_as_few_ports_as_are_wanted(small: FloodOrder, sniffer: socket.socket, ports: int) -> None:
    assert len(set(ports_of(replace(small, ports=ports), sniffer))) == ports


@pytest.mark.netns
def test_what_the_kernel_refuses_is_counted(namespace: str) -> None:
    """There is no route to that address in the namespace: nothing leaves, nothing is counted as sent."""
    nowhere = FloodOrder(namespace, "n", "red", "p", "127.0.0.1", "192.0.2.1", 100_000, 2.0, 100)
    report = run.run(nowhere)
    assert report.outcome.packets == 0
    assert report.outcome.errors > 0
    assert (report.seconds, report.rate) == (0.0, 0.0)
    assert report.as_json()["last_packet"] is None


@pytest.mark.netns
def test_a_refused_packet_is_skipped(small: FloodOrder, sniffer: socket.socket) -> None:
    """A firewall in the tenant's machine that forbids half of the ports does not stop the other half."""
    rules = "add table inet f; add chain inet f o { type filter hook output priority 0; }; "
    rules += "add rule inet f o udp dport < 32768 drop"
    subprocess.run(["ip", "netns", "exec", small.netns, "nft", rules], check=True)
    report = run.run(replace(small, seconds=5.0))
    ports = [port for _, port, _ in seen(sniffer)]
    assert len(ports) == report.outcome.packets > 20
    assert report.outcome.errors > 20
    assert min(ports) >= 32768


def test_a_train_wraps_around(root: None, namespace: str) -> None:
    from vigia.host import netns  # noqa: PLC0415 - beside its one use

    def travel() -> tuple[int, int]:
        train = PacketTrain("127.0.0.1", "127.0.0.2", 18)
        total = 0
        calls = 0
        while total <= MAX_PORTS:
            sent, failed = train.send(1000)
            assert failed == 0
            assert 0 < sent <= 1000
            total += sent
            calls += 1
        train.close()
        return total, calls

    total, _ = netns.inside(namespace, travel)
    assert total > MAX_PORTS


def test_a_namespace_that_is_not_there(root: None, small: FloodOrder) -> None:
    with pytest.raises(VigiaError) as e:
        run.run(replace(small, netns="vigia-test-absent"))
    assert str(e.value) == (
        "the flood was not sent: cannot send from 127.0.0.1 in vigia-test-absent: network namespace "
        "vigia-test-absent does not exist; bring the lab up: vigia lab up"
    )


def test_a_source_that_is_not_there(root: None, small: FloodOrder) -> None:
    with pytest.raises(VigiaError) as e:
        run.run(replace(small, source="192.0.2.7"))
    assert str(e.value).startswith("the flood was not sent: cannot send from 192.0.2.7 in ")
    assert "Cannot assign requested address" in str(e.value)


def sender(children: Children, given: FloodOrder, parent: int | None = None) -> subprocess.Popen[str]:
    """The sending process alone."""
    child = subprocess.Popen(
        [sys.executable, "-m", "vigia.flood.sender"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children.append(child)
    assert child.stdin
    child.stdin.write(
        json.dumps({"order": asdict(given), "parent": os.getpid() if parent is None else parent})
    )
    child.stdin.close()
    child.stdin = None
    return child


@pytest.mark.netns
def test_a_flood_that_is_stopped_still_reports(
    small: FloodOrder, sniffer: socket.socket, children: Children
) -> None:
    child = sender(children, replace(small, seconds=60.0))
    sniffer.settimeout(DEADLINE)
    sniffer.recv(100)  # it has begun
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=DEADLINE)
    assert (child.returncode, err) == (0, "")
    outcome = FloodOutcome(**json.loads(out))
    assert 0 < outcome.packets < 60_000
    assert 0 < outcome.first_ns <= outcome.last_ns


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "vigia.flood.sender"], stdin=subprocess.PIPE, text=True)
child.stdin.write(sys.stdin.read().replace("PARENT", str(__import__("os").getpid())))
child.stdin.close()
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.netns
def test_a_flood_ends_with_its_parent(
    small: FloodOrder, sniffer: socket.socket, children: Children, wait_until: Callable[..., None]
) -> None:
    """Even when the parent is killed and cannot end it."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    children.append(parent)
    assert parent.stdin and parent.stdout
    given = {"order": asdict(replace(small, seconds=60.0)), "parent": "PARENT"}
    parent.stdin.write(json.dumps(given).replace('"PARENT"', "PARENT"))
    parent.stdin.close()
    parent.stdin = None
    pid = int(parent.stdout.readline())
    sniffer.settimeout(DEADLINE)
    sniffer.recv(100)  # it has begun
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not processes.alive(pid), "the sender ends with its parent")


@pytest.mark.netns
def test_a_flood_whose_parent_ended_before_it_began(small: FloodOrder, children: Children) -> None:
    child = sender(children, replace(small, seconds=60.0), parent=1 << 22)
    assert child.wait(timeout=DEADLINE) == -signal.SIGKILL


@pytest.mark.netns
def test_a_flood_that_hangs_is_ended(small: FloodOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent waits for as long as the flood may last, and a little."""
    real = subprocess.Popen.communicate
    monkeypatch.setattr(run, "_GRACE", -59.0)

    def stop_first(self: Any, *arguments: Any, **options: Any) -> Any:
        os.kill(self.pid, signal.SIGSTOP)
        return real(self, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", stop_first)
    with pytest.raises(VigiaError, match=r"^the flood did not end after 60 s and was killed$"):
        run.run(replace(small, seconds=60.0))


def test_instants_are_utc_with_microseconds() -> None:
    assert run.instant(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123456Z"
    assert run.instant(1_700_000_000_000_000_000) == "2023-11-14T22:13:20.000000Z"
    assert run.instant(0) is None


def test_a_report(pairs: Lab) -> None:
    wanted = order.make(pairs, **GOOD)
    report = run.FloodReport(
        wanted, FloodOutcome(1000, 2, 1_700_000_000_000_000_000, 1_700_000_000_500_000_000)
    )
    assert report.as_json() == {
        "tenant": "red",
        "path": "linuxbridge-vxlan",
        "node": "lb1",
        "from": "192.168.1.1",
        "to": "192.168.1.2",
        "first_packet": "2023-11-14T22:13:20.000000Z",
        "last_packet": "2023-11-14T22:13:20.500000Z",
        "seconds": 0.5,
        "packets": 1000,
        "bytes": 1_400_000,
        "packet_bytes": 1400,
        "wanted_bits_per_second": 400_000_000,
        "achieved_bits_per_second": 22_400_000,
        "send_errors": 2,
    }
    assert report.as_text() == (
        "flood         red on linuxbridge-vxlan from lb1: 192.168.1.1 to 192.168.1.2\n"
        "first packet  2023-11-14T22:13:20.000000Z\n"
        "last packet   2023-11-14T22:13:20.500000Z  (0.500 s)\n"
        "sent          1000 packets of 1400 bytes, 1400000 bytes\n"
        "rate          22.4 Mbit/s of 400 Mbit/s wanted\n"
        "send errors   2"
    )


def test_the_command_needs_a_lab_that_is_up(vigia: Callable[..., Any]) -> None:
    done = vigia(
        "flood", "--lab", "never", "--tenant", "red", "--path", "ovs-gre", "--rate", "1Mbit", "--seconds", "1"
    )
    assert (done.status, done.stdout) == (1, "")
    assert re.fullmatch(r"vigia: lab never is not up; bring it up: vigia lab up\n", done.stderr)


def test_a_queue_does_not_slow_who_floods(root: None) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as opened:
        unhindered(opened)
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 16 << 20
