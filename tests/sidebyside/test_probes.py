"""What a tool says of its probes is held against the capture: errors, losses, losses that were none."""

from __future__ import annotations

import importlib.util
import math
import struct
import sys
from collections.abc import Sequence
from types import ModuleType

import pytest

from sidebyside.part import ROOT


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    for name in ("bench", "peers"):
        spec = importlib.util.spec_from_file_location(name, ROOT / f"probes/bench/{name}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules["peers"]


def ip(protocol: int, source: str, sink: str, payload: bytes) -> bytes:
    ends = bytes(int(b) for a in (source, sink) for b in a.split("."))
    head = bytes([0x45, 0]) + struct.pack(">HHHBBH", 20 + len(payload), 0, 0, 64, protocol, 0) + ends
    return bytes(12) + b"\x08\x00" + head + payload


def echo(source: str, sink: str, number: int, answer: bool) -> bytes:
    return ip(1, source, sink, struct.pack(">BBHHH", 0 if answer else 8, 0, 0, 7, number) + bytes(56))


def stamp(source: str, sink: str, number: int, answer: bool) -> bytes:
    ports = (862, 4000) if answer else (4000, 862)
    head = struct.pack(">HHHH", *ports, 72, 0)
    body = struct.pack(">I", 99 if answer else number) + bytes(20) + struct.pack(">I", number) + bytes(36)
    return ip(17, source, sink, head + body)


def pcap(frames: Sequence[tuple[int, bytes]]) -> bytes:
    out = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1)
    for at, frame in frames:
        out += struct.pack("<IIII", at // 10**9, at % 10**9, len(frame), len(frame)) + frame
    return out


HERE, THERE = "10.77.0.1", "10.77.1.1"


def test_round_trips_are_read_from_a_capture(peers: ModuleType) -> None:
    frames = [
        (10**9, echo(HERE, THERE, 1, False)),
        (10**9 + 5_000, stamp(HERE, THERE, 3, False)),
        (10**9 + 41_000, echo(THERE, HERE, 1, True)),
        (10**9 + 65_500, stamp(THERE, HERE, 3, True)),
        (2 * 10**9, echo(HERE, THERE, 2, False)),
        (3 * 10**9, echo(THERE, HERE, 9, True)),  # nobody asked
        (3 * 10**9, b"\x00" * 60),
    ]
    (first, second, third) = peers.requests(pcap(frames))[THERE]
    assert first == (1.0, 41.0)
    assert second == (pytest.approx(1.000005), 60.5)
    assert third[0] == 2.0 and math.isnan(third[1])
    with pytest.raises(ValueError, match="nanoseconds"):
        peers.requests(b"\xd4\xc3\xb2\xa1" + bytes(20))


def test_a_loss_whose_answer_came_is_phantom(peers: ModuleType) -> None:
    said = peers.Answers({THERE: [50.0, math.nan, math.nan]}, cpu=0.003)
    link = {THERE: [(1.0, 41.0), (2.0, 40.0), (3.0, math.nan)]}
    found = peers.judge("tool", True, said, link)
    assert (found.probes, found.lost, found.phantom) == (3, 2, 1)
    assert found.errors_p50 == 9.0 and found.p99 == 50.0
    assert found.cpu == pytest.approx(1000.0)


def test_a_tool_that_tells_when_it_sent_is_matched_by_that(peers: ModuleType) -> None:
    link = [(1.0, 41.0), (1.1, 42.0), (1.2, 43.0)]
    assert list(peers.pairs([5.0], [1.1000004], link)) == [(5.0, 42.0)]
    ((_, truth),) = peers.pairs([5.0], [1.5], link)
    assert math.isnan(truth)


def test_where_the_capture_has_more_or_fewer_nobody_is_blamed(peers: ModuleType) -> None:
    assert all(math.isnan(truth) for _, truth in peers.pairs([5.0, 6.0], None, [(1.0, 41.0)]))
    assert list(peers.pairs([5.0], None, [(1.0, 41.0)])) == [(5.0, 41.0)]


def test_a_peer_that_is_missing_is_a_line(peers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.shutil, "which", lambda program: None)
    taken = [peers.Taken("vigia-probe", False, 60, 1.0, 2.0, 60.0, 80.0, 0, 0)]
    lines = peers.figures(taken, 1)
    assert {line["peer"] for line in lines} == {"fping", "SmokePing's method", "blackbox_exporter"}
    notes = {line["peer"]: line["note"] for line in lines}
    assert notes["blackbox_exporter"] == "missing: apt-get install prometheus-blackbox-exporter"
    assert notes["fping"] == "missing: apt-get install fping"
    assert all(line["theirs"] == [] for line in lines)
    prices = [line["ours"] for line in lines if "processor time" in line["what"] and "free" in line["what"]]
    assert prices == [[80.0]] * 3
