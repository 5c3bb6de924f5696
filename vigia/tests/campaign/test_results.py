"""What iperf3, ping and the probe print, read; the iperf3 reports are real ones."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from vigia.campaign import results
from vigia.errors import VigiaError


def report(testdata: Path, name: str) -> str:
    return (testdata / "campaign" / f"iperf3-{name}.json").read_text()


def test_tcp_both_ways(testdata: Path) -> None:
    text = report(testdata, "tcp-bidir")
    end = json.loads(text)["end"]
    found = results.traffic(text)
    assert found.received == end["sum_received"]["bits_per_second"] > 0
    assert found.received_back == end["sum_received_bidir_reverse"]["bits_per_second"] > 0
    assert found.retransmits == end["sum_sent"]["retransmits"]
    assert (found.lost, found.packets) == (None, None)


@pytest.mark.parametrize("name", ["udp", "udp-warm-up"])
def test_udp_counts_what_arrived(testdata: Path, name: str) -> None:
    """Of four datagrams one was dropped on the way; with a warm-up iperf3 itself says that it was twice as many."""
    text = report(testdata, name)
    end = json.loads(text)["end"]
    counted = end["sum"]["lost_packets"] / end["sum"]["packets"]
    assert counted == pytest.approx(0.5 if name == "udp-warm-up" else 0.25, abs=0.03)
    found = results.traffic(text)
    assert found.lost == pytest.approx(0.25, abs=0.01)
    assert found.received == pytest.approx(15e6, rel=0.02), "of 20 Mbit/s"
    assert found.packets == end["sum"]["packets"]
    assert found.retransmits is None


def test_more_may_arrive_than_was_sent_meanwhile(testdata: Path) -> None:
    document = json.loads(report(testdata, "udp"))
    document["end"]["sum_received"]["bytes"] = document["end"]["sum_sent"]["bytes"] + 1200
    assert results.traffic(json.dumps(document)).lost == 0.0
    document["end"]["sum_sent"]["bytes"] = 0
    assert results.traffic(json.dumps(document)).lost is None, "nothing was sent"


def test_a_connection_that_failed_says_why(testdata: Path) -> None:
    with pytest.raises(VigiaError, match=r"iperf3: .*Connection refused"):
        results.traffic(report(testdata, "refused"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "iperf3 did not report: it wrote nothing"),
        ("oops", "iperf3 did not report: oops"),
        ("[]", "did not report an object"),
        ('{"end": {}}', "iperf3's report lacks"),
    ],
)
def test_reports_that_are_none(text: str, message: str) -> None:
    with pytest.raises(VigiaError, match=message):
        results.traffic(text)


def test_echoes_in_order_with_gaps() -> None:
    text = """\
PING 10.0.0.1 (10.0.0.1) from 10.0.0.2 : 56(84) bytes of data.
64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.061 ms
64 bytes from 10.0.0.1: icmp_seq=3 ttl=64 time=12.5 ms
From 10.0.0.2 icmp_seq=4 Destination Host Unreachable
"""
    found = results.echoes(text, 4)
    assert found[0] == pytest.approx(61e-6)
    assert found[2] == pytest.approx(12.5e-3)
    assert math.isnan(found[1])
    assert math.isnan(found[3])


def test_probes_keep_lost_packets() -> None:
    probes = [
        {"outcome": "received", "rtt_seconds": 1e-5, "rtt_application_seconds": 2e-4},
        {"outcome": "received", "rtt_seconds": None, "rtt_application_seconds": 3e-4},
        {"outcome": "lost"},
    ]
    kernel, application = results.probes(json.dumps({"probes": probes}))
    assert kernel[0] == 1e-5
    assert [math.isnan(v) for v in kernel] == [False, True, True]
    assert [math.isnan(v) for v in application] == [False, False, True]
    with pytest.raises(VigiaError, match="sent nothing: no route"):
        results.probes(json.dumps({"probes": [], "reason": "no route"}))
