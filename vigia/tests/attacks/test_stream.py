"""Streams: when what is due, and what two real ends count."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from labkit import need_root

from vigia.attacks import stream
from vigia.attacks.corpus import CORPUS, Stream
from vigia.attacks.frames import StreamEnds
from vigia.attacks.stream import Order
from vigia.errors import VigiaError
from vigia.host import commands

MAC, ADDRESS = "02:00:00:3d:00:0{}", "10.61.0.{}"
ENDS = StreamEnds(
    MAC.format(3), ADDRESS.format(3), MAC.format(1), ADDRESS.format(1), MAC.format(2),
    MAC.format(4), ADDRESS.format(4), 100, ADDRESS.format(5), ADDRESS.format(6),
)  # fmt: skip


def maker(*_: object) -> list[bytes]:
    return [bytes(100)]


def test_what_is_due() -> None:
    steady = Stream(maker)
    assert stream.due(steady, 3.0) == 3.0
    pulses = replace(steady, on=0.1, period=0.4)
    assert stream.due(pulses, 0.05) == pytest.approx(0.05)
    assert stream.due(pulses, 0.3) == pytest.approx(0.1)
    assert stream.due(pulses, 0.85) == pytest.approx(0.25)
    ramp = replace(steady, ramp=4.0)
    assert stream.due(ramp, 2.0) == pytest.approx(0.5), "half the rate, half of the time, halved"
    assert stream.due(ramp, 4.0) == pytest.approx(2.0)
    assert stream.due(ramp, 5.0) == pytest.approx(3.0)


def test_marks_tell_streams_apart() -> None:
    assert len({stream.mark(i) for i in range(100)}) == 100
    assert {len(stream.mark(i)) for i in range(100)} == {8}


def test_what_an_overlay_adds_is_not_the_tenants() -> None:
    order = Order("send", "small-packets", 0, "", ENDS, 1.0, 0.0, 0.1, 50, os.getppid())
    assert stream.beneath(order) == pytest.approx(60.0 / 110.0), "60 bytes with the header of Ethernet"
    assert stream.beneath(replace(order, overhead=0)) == 1.0
    assert 0.95 < stream.beneath(replace(order, entry="one-port")) < 1.0


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    """Two namespaces with a wire between them."""
    need_root()
    names = (f"vigia-s{os.getpid()}a", f"vigia-s{os.getpid()}b")
    commands.ip_batch([f"netns add {n}" for n in names])
    try:
        commands.ip_batch([f"link add eth0 netns {names[0]} type veth peer name eth0 netns {names[1]}"])
        for name in names:
            commands.ip_batch(["link set eth0 up"], netns=name)
        yield names
    finally:
        commands.ip_batch([f"netns del {n}" for n in names], force=True)


def test_both_ends_count_the_same(pair: tuple[str, str]) -> None:
    """Every frame of the one-port attack arrives over a wire that is wide enough, if both ends begin in time."""
    tried = []
    for lead in (4.0, 8.0, 16.0, 32.0, 64.0):
        sent, received, order = both_ends(pair, lead)
        assert sent <= CORPUS["one-port"].streams[0].rate * order.link * 2.01, "never above its rate"
        tried.append((sent, received))
        if sent == received > 0:
            return
    raise AssertionError(f"bytes sent and received: {tried}")


def both_ends(pair: tuple[str, str], lead: float) -> tuple[int, int, Order]:
    """Run both ends once, with so many seconds to start; returns the bytes that were sent and received."""
    order = Order(
        role="receive",
        entry="one-port",
        index=0,
        namespace=pair[1],
        ends=ENDS,
        link=1_250_000.0,
        start=time.monotonic() + lead,
        seconds=2.0,
        overhead=50,
        parent=os.getpid(),
    )
    children = []
    try:
        for role, namespace, longer in (("receive", pair[1], 3.0), ("send", pair[0], 0.0)):
            it = replace(order, role=role, namespace=namespace, seconds=order.seconds + longer)
            children.append(commands.spawn(stream.command(), stream.encode(it)))
        (received, wrong), (sent, said) = (c.communicate(timeout=120) for c in children)
        assert (wrong, said) == ("", "")
    finally:
        for child in children:
            child.kill()
            child.communicate()
    return sum(json.loads(sent)), sum(json.loads(received)), order


def test_a_namespace_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    order = Order("send", "one-port", 0, "vigia-none", ENDS, 1.0, time.monotonic(), 0.1, 0, os.getppid())
    monkeypatch.setattr("sys.stdin", io.StringIO(stream.encode(order)))
    monkeypatch.setattr(stream, "alarm", lambda _: None)
    monkeypatch.setattr("vigia.host.syscalls.die_with_parent", lambda _: None)
    with pytest.raises(VigiaError, match="vigia-none"):
        stream.main()
