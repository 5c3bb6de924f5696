"""The ends of a flow on loopback: what is sent arrives, also when an end is late."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from portkit import free_port

from vigia.isolation.traffic import TrafficOrder, _connecting, _listening, receive, send

LATE = 0.5


def order(role: str, protocol: str = "tcp", **more: float) -> TrafficOrder:
    port = free_port()
    return TrafficOrder(role, "", protocol, "127.0.0.1", port, time.monotonic() + 0.1, 2.0, **more)  # type: ignore[arg-type]


def both(one: TrafficOrder, late: float) -> tuple[int, int]:
    """Let the receiver begin so much later; returns what was offered and what arrived."""
    offered: list[int] = []
    sender = threading.Thread(target=lambda: offered.append(send(one)))
    sender.start()
    time.sleep(late)
    arrived = sum(receive(one))
    sender.join(30)
    return offered[0], arrived


ON_THE_WAY = 16 << 20
"""Bytes that the buffers of a connection may hold when counting ends."""


def attempts(
    least: int,
    enough: Callable[[int, int], bool],
    protocol: str = "tcp",
    late: float = LATE,
    address: str = "127.0.0.1",
    **more: float,
) -> None:
    """Try up to five times: a machine that stalls for the two seconds of an order sends nothing in them."""
    tried = []
    for _ in range(5):
        offered, arrived = both(replace(order("send", protocol, **more), address=address), late)
        assert arrived <= offered
        tried.append((offered, arrived))
        if offered > least and enough(offered, arrived):
            return
    raise AssertionError(f"bytes offered and arrived: {tried}")


def test_a_receiver_may_begin_later_than_its_sender() -> None:
    attempts(ON_THE_WAY, lambda offered, arrived: offered - ON_THE_WAY <= arrived)


def test_every_connection_is_tried_again() -> None:
    attempts(0, lambda offered, arrived: offered - 3 * ON_THE_WAY <= arrived, connections=3)


def test_datagrams_to_a_receiver_that_is_late_are_offered_all_the_same() -> None:
    """What was sent before the receiver began is lost, and no more."""
    attempts(0, lambda offered, arrived: offered / 4 < arrived < offered, "udp", rate=1e6, size=1000)


def test_without_a_receiver_nothing_is_offered() -> None:
    assert send(order("send")) == 0


def test_a_paced_connection_keeps_to_its_rate() -> None:
    """Two seconds at 2 MB/s; what the sockets' buffers take is offered, and does not arrive."""
    attempts(0, lambda _, arrived: 2e6 < arrived < 6e6, rate=2e6, connections=2)


def test_connections_that_are_only_begun_are_counted_by_frames() -> None:
    """Each is a SYN of 74 bytes, 1 000 a second; another address of loopback is nobody else's."""

    def whole(offered: int, arrived: int) -> bool:
        assert offered % 74 == 0 and offered <= 2.1 * 74e3
        return arrived > 0

    attempts(0, whole, "syn", 0.0, "127.77.0.1", rate=74e3)


def test_segments_of_others_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw socket gets all of them until it is bound: those that came until then are left out."""
    one = replace(order("receive", "syn"), address="127.77.0.3")

    class Slow(socket.socket):
        def bind(self, address: tuple[str, int]) -> None:
            for _ in range(20):
                with socket.socket() as refused, suppress(ConnectionRefusedError):
                    refused.connect(("127.77.0.4", 9))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Slow)
    with _listening(one) as server, pytest.raises(BlockingIOError):
        server.recv(2048)


def test_connections_that_are_only_begun_come_from_one_port_after_the_other() -> None:
    """So that each is a flow of its own to a switch, and to what counts new flows."""
    one = replace(order("send", "syn", rate=74e3), address="127.77.0.2")
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.bind((one.address, 0))
        raw.settimeout(30)
        sender = threading.Thread(target=send, args=(one,))
        sender.start()
        ports: list[int] = []
        while len(ports) < 100:
            port, to = struct.unpack_from("!HH", raw.recv(2048), 20)
            if to == one.port:  # before it is bound, a raw socket gets those of others, too
                ports.append(port)
        sender.join(30)
    assert ports == [*range(ports[0], ports[0] + 100)]


AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


@pytest.mark.parametrize("congestion", AVAILABLE)
def test_a_sender_has_the_congestion_control_that_it_is_ordered(root: None, congestion: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        one = replace(order("send"), port=server.getsockname()[1], congestion=congestion)
        sock = _connecting(one, stack)
        used = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert used.rstrip(b"\0").decode() == congestion
