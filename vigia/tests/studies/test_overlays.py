"""E1: what a repetition asks of hosts, what it costs, and what the report says of data whose answer is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vigia.campaign.model import Campaign, Factor, Settings
from vigia.errors import VigiaError
from vigia.report.data import Data
from vigia.report.document import Document, Table
from vigia.studies import catalogue
from vigia.studies.overlays import report
from vigia.studies.overlays.measurement import MEASUREMENT, bits

CELL: Mapping[str, Factor] = {
    "path": "ovs-vxlan",
    "placement": "cross-node",
    "machines": 4,
    "protocol": "tcp",
    "direction": "one-way",
    "rate": "unlimited",
}
SETTINGS = Settings.model_validate({"duration": "2s", "warm_up": "0s", "interval": "10ms", "threads": 3})


# --- measuring ---


def test_every_pair_has_traffic_and_timed_packets(answering: Callable[..., Any]) -> None:
    here = answering()
    series = MEASUREMENT.measure(CELL, SETTINGS, here)
    assert here.asked == [("ovs-vxlan", "cross-node", 4)]
    assert [(str(s.address), s.port, s.netns) for s in here.host.served] == [
        ("10.0.1.1", 5201, "b-1"),
        ("10.0.1.2", 5202, "b-2"),
    ]
    assert here.host.serving_now == [], "servers end with the repetition"
    clients = sorted(here.host.of("iperf3-client"), key=lambda j: j.port)
    assert [(j.netns, j.port, j.protocol, j.threads, j.rate) for j in clients] == [
        ("a-1", 5201, "tcp", 3, 0),
        ("a-2", 5202, "tcp", 3, 0),
    ]
    probes = sorted(here.host.of("probe"), key=lambda j: j.netns)
    assert [(j.netns, str(j.source), str(j.address), j.count) for j in probes] == [
        ("a-1", "10.0.0.1", "10.0.1.1", 200),
        ("a-2", "10.0.0.2", "10.0.1.2", 200),
    ]
    assert {(s.metric, s.connection) for s in series} == {
        (m, c)
        for m in ("throughput", "throughput_back", "retransmits", "rtt", "rtt_application")
        for c in (0, 1)
    }
    (delay,) = [s for s in series if (s.metric, s.connection) == ("rtt", 1)]
    assert (delay.unit, delay.values) == ("s", [0.001, 0.002])


def test_udp_has_a_rate_and_a_loss(answering: Callable[..., Any], testdata: Path) -> None:
    here = answering(iperf3_client=(testdata / "campaign" / "iperf3-udp.json").read_text())
    cell = {**CELL, "machines": 2, "protocol": "udp", "rate": "100Mbit"}
    series = {s.metric: s for s in MEASUREMENT.measure(cell, SETTINGS, here)}
    (client,) = here.host.of("iperf3-client")
    assert (client.protocol, client.rate, client.both_ways) == ("udp", 100_000_000, False)
    assert series["traffic_loss"].values == [pytest.approx(0.25, abs=0.01)]
    assert "retransmits" not in series


def test_both_ways_is_asked_of_iperf3(answering: Callable[..., Any]) -> None:
    here = answering()
    MEASUREMENT.measure({**CELL, "machines": 2, "direction": "both-ways"}, SETTINGS, here)
    (client,) = here.host.of("iperf3-client")
    assert client.both_ways


def test_what_fails_at_one_pair_fails_the_repetition(answering: Callable[..., Any], testdata: Path) -> None:
    here = answering(iperf3_client=(testdata / "campaign" / "iperf3-refused.json").read_text())
    with pytest.raises(VigiaError, match="Connection refused"):
        MEASUREMENT.measure(CELL, SETTINGS, here)
    assert here.host.serving_now == []
    silent = answering(probe=json.dumps({"probes": [], "reason": "no route"}))
    with pytest.raises(VigiaError, match="vigia-probe sent nothing: no route"):
        MEASUREMENT.measure(CELL, SETTINGS, silent)


@pytest.mark.parametrize(("text", "wanted"), [("unlimited", 0), ("100Mbit", 100_000_000), ("1Gbit", 10**9)])
def test_rates(text: str, wanted: int) -> None:
    assert bits({"rate": text}) == wanted


@pytest.mark.parametrize("text", ["fast", "-5Mbit", "100", ""])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(VigiaError, match=f'the rate "{text}" .*; or write unlimited'):
        bits({"rate": text})


def test_what_it_costs() -> None:
    """Two connections of 100 Mbit/s for two seconds, and the same both ways."""
    cell = {**CELL, "protocol": "udp", "rate": "100Mbit"}
    once = MEASUREMENT.estimate(cell, SETTINGS)
    assert once.bytes == pytest.approx(2 * 12.5e6 * 2)
    assert 2 < once.seconds < 4
    assert MEASUREMENT.estimate({**cell, "direction": "both-ways"}, SETTINGS).bytes == 2 * once.bytes
    # Without a rate all connections share what a host sends at most.
    four, eight = (MEASUREMENT.estimate({**CELL, "machines": n}, SETTINGS).bytes for n in (4, 8))
    assert four == pytest.approx(eight)


# --- reporting ---

PATHS = ("linuxbridge-vxlan", "ovs-vxlan", "ovs-gre")


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e1"]
    return found


def repetitions(
    delays: Mapping[str, float], rates: Mapping[str, float], times: int = 6
) -> Iterator[tuple[Mapping[str, Factor], Mapping[str, Any]]]:
    """Each path with its median delay (s) and throughput (bit/s), and a little noise."""
    rng = np.random.default_rng(3)
    for _ in range(times):
        for path in PATHS:
            cell = {**CELL, "path": path, "machines": 2}
            rtt = delays[path] * (1 + rng.uniform(-0.01, 0.01)) + rng.uniform(-1e-6, 1e-6, 20)
            yield (
                cell,
                {
                    "rtt": rtt,
                    "rtt_application": rtt,
                    "throughput": [rates[path] * (1 + rng.uniform(-0.01, 0.01))],
                },
            )


UNITS = {"rtt": "s", "rtt_application": "s", "throughput": "bit/s"}
APART = {"linuxbridge-vxlan": 70e-6, "ovs-vxlan": 900e-6, "ovs-gre": 1000e-6}
FAST = {"linuxbridge-vxlan": 1e9, "ovs-vxlan": 3e8, "ovs-gre": 4e8}


def table(document: Document, caption: str) -> Table:
    (found,) = [t for s in document.sections for t in s.tables if t.caption == caption]
    return found


def winners(document: Document) -> dict[str, str]:
    """Who wins each metric across nodes, with two machines."""
    rows = table(document, "Which technology wins").rows
    return {r[0]: r[2] for r in rows if r[1] == "across nodes"}


def test_who_is_better_wins_and_who_is_not_ties(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(APART, FAST)))
    found = winners(document)
    assert found["latency (median RTT)"] == "linuxbridge-vxlan"
    assert found["TCP throughput"] == "linuxbridge-vxlan"
    assert found["loss of timed packets"] == "tie", "nobody lost any"
    assert found["UDP throughput"] == "–", "not measured"
    assert "linuxbridge-vxlan wins 2" in document.answer
    assert document.answer.startswith("Of 4 comparisons (metric, placement, machines), ")


def test_alike_is_a_tie(data: Callable[..., Data]) -> None:
    same = dict.fromkeys(PATHS, 500e-6)
    rates = dict.fromkeys(PATHS, 1e9)
    document = report.build(campaign(), data(UNITS, *repetitions(same, rates)))
    assert set(winners(document).values()) == {"tie", "–"}
    assert document.answer == "None of 4 comparisons separates the technologies: a tie throughout."


def test_too_few_repetitions_name_nobody(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(APART, FAST, times=2)))
    assert set(winners(document).values()) == {"too few data", "–"}
    assert "too little data to name a winner" in document.answer


def test_delays_have_their_loss_and_what_it_could_have_shown(data: Callable[..., Data]) -> None:
    measured = list(repetitions(APART, FAST))
    for cell, samples in measured:
        if cell["path"] == "ovs-gre":
            samples["rtt_application"][:5] = np.nan  # type: ignore[index]
    document = report.build(campaign(), data(UNITS, *measured))
    rows = {r[1]: r for r in table(document, "Round trips of timed packets during the traffic").rows}
    assert rows["ovs-gre"][4] == "30 of 120, 25.0 %"
    assert rows["ovs-vxlan"][4].startswith("0 of 120 (≤ 2.")
    assert rows["linuxbridge-vxlan"][2].startswith("70.")
    assert winners(document)["loss of timed packets"] != "ovs-gre"


def test_published_winners_are_beside_ours(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(APART, FAST)))
    shown = table(document, "Which technology wins")
    assert list(shown.header) == ["metric", "placement", "2 machines", "published, 2"]
    assert any(r[3] != "–" for r in shown.rows)


def test_every_pair_is_in_the_tests(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(APART, FAST)))
    rows = table(document, "Every comparison behind the winners").rows
    latency = [r for r in rows if r[0] == "latency (median RTT), across nodes, 2"]
    assert [r[1] for r in latency] == [
        "linuxbridge-vxlan − ovs-vxlan",
        "linuxbridge-vxlan − ovs-gre",
        "ovs-vxlan − ovs-gre",
    ]
    assert [r[-1] for r in latency] == ["linuxbridge-vxlan wins", "linuxbridge-vxlan wins", "ovs-vxlan wins"]
