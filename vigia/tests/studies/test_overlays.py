"""E1: what a repetition asks of hosts, what it costs, and what the report says of data whose answer is known."""

from __future__ import annotations

import json
import re
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
    "datagram": "fits",
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
    assert client.message == 1400, "it fits the MTU of an overlay, 1450 bytes"
    assert series["traffic_loss"].values == [pytest.approx(0.25, abs=0.01)]
    assert "retransmits" not in series


def test_fragments_are_a_factor(answering: Callable[..., Any], testdata: Path) -> None:
    here = answering(iperf3_client=(testdata / "campaign" / "iperf3-udp.json").read_text())
    udp = {**CELL, "machines": 2, "protocol": "udp", "rate": "100Mbit"}
    MEASUREMENT.measure({**udp, "datagram": "fragments"}, SETTINGS, here)
    MEASUREMENT.measure({**udp, "protocol": "tcp"}, SETTINGS, here)
    assert [j.message for j in here.host.of("iperf3-client")] == [SETTINGS.message, SETTINGS.message]


def test_a_campaign_of_an_earlier_version_says_what_it_sent() -> None:
    """It sent UDP in messages of 56 KB, which are fragments, unless these were small."""
    old = {k: v for k, v in CELL.items() if k != "datagram"}
    udp = {**old, "protocol": "udp"}
    assert MEASUREMENT.completed(udp, SETTINGS)["datagram"] == "fragments"
    assert MEASUREMENT.completed(old, SETTINGS)["datagram"] == "fits"
    small = SETTINGS.model_copy(update={"message": 1000})
    assert MEASUREMENT.completed(udp, small)["datagram"] == "fits"
    assert MEASUREMENT.completed({**udp, "datagram": "fits"}, SETTINGS)["datagram"] == "fits"


def test_how_a_repetition_is_made_is_told_from_the_settings() -> None:
    text = MEASUREMENT.described(SETTINGS)
    assert "2 s of iperf3" in text
    assert "3 streams" in text
    assert "every 10 ms" in text


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
    delays: Mapping[str, float], rates: Mapping[str, float], times: int = 14
) -> Iterator[tuple[Mapping[str, Factor], Mapping[str, Any]]]:
    """Each path with its median delay (s) and throughput (bit/s), and a little noise."""
    rng = np.random.default_rng(3)
    for _ in range(times):
        for path in PATHS:
            cell = {**CELL, "path": path, "machines": 2}
            rtt = delays[path] * (1 + rng.uniform(-0.01, 0.01)) + rng.uniform(-1e-6, 1e-6, 20)
            throughput = rates[path] * (1 + rng.uniform(-0.01, 0.01))
            yield cell, {"rtt": rtt, "rtt_application": rtt, "throughput": [throughput]}


def udp(
    losses: Mapping[str, float], times: int = 14, **more: Factor
) -> Iterator[tuple[Mapping[str, Factor], Mapping[str, Any]]]:
    """UDP of 100 Mbit/s on each path, of which a part is lost."""
    rng = np.random.default_rng(4)
    for _ in range(times):
        for path, lost in losses.items():
            cell = {**CELL, "path": path, "machines": 2, "protocol": "udp", "rate": "100Mbit", **more}
            part = lost if lost < 0.01 or lost == 1 else lost + rng.uniform(-0.01, 0.01)
            yield (
                cell,
                {"throughput": [1e8 * (1 - part)], "traffic_loss": [part], "rtt_application": [1e-3] * 20},
            )


UNITS = {"rtt": "s", "rtt_application": "s", "throughput": "bit/s", "traffic_loss": "ratio"}
APART = {"linuxbridge-vxlan": 70e-6, "ovs-vxlan": 900e-6, "ovs-gre": 1200e-6}
FAST = {"linuxbridge-vxlan": 1e9, "ovs-vxlan": 3e8, "ovs-gre": 4e8}
LATENCY = "latency (median RTT under TCP)"


def table(document: Document, caption: str) -> Table:
    (found,) = [t for s in document.sections for t in s.tables if t.caption == caption]
    return found


def standing(document: Document) -> dict[str, str]:
    """How the technologies stand in each metric across nodes, with two machines."""
    return {r[0]: r[3] for r in table(document, "Who wins and who loses").rows if r[1] == "across nodes"}


def test_winners_and_losers_are_named(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(APART, FAST)))
    found = standing(document)
    assert found[LATENCY] == "linuxbridge-vxlan wins; ovs-gre loses"
    assert found["TCP throughput"] == "linuxbridge-vxlan wins; ovs-vxlan loses"
    assert "UDP throughput" not in found, "what was not measured is not ranked"
    assert document.answer.startswith("Of 3 rankings, linuxbridge-vxlan wins 2 and loses 0; ovs-vxlan wins 0")


def test_loss_is_that_of_the_traffic_and_not_of_the_probe(data: Callable[..., Data]) -> None:
    losses = {"linuxbridge-vxlan": 0.02, "ovs-vxlan": 0.6, "ovs-gre": 0.8}
    document = report.build(campaign(), data(UNITS, *udp(losses)))
    assert standing(document)["loss of UDP"] == "linuxbridge-vxlan wins; ovs-gre loses"
    rows = {r[1]: r for r in table(document, "Throughput per connection, across nodes").rows}
    assert float(rows["ovs-gre"][5].split()[0]) == pytest.approx(80, abs=0.5)
    timed = table(document, "Round trips of timed packets during the traffic").rows
    assert {r[4] for r in timed} == {"0 of 280 (≤ 1.06 %)"}, "of the probe nothing was lost"


def test_where_nothing_arrived_nobody_is_ranked(data: Callable[..., Data]) -> None:
    losses = {"linuxbridge-vxlan": 0.0, "ovs-vxlan": 1.0, "ovs-gre": 1.0}
    document = report.build(campaign(), data(UNITS, *udp(losses)))
    for metric in ("loss of UDP", "UDP throughput"):
        assert standing(document)[metric].startswith("not ranked: ovs-vxlan: "), metric
        assert "wins" not in standing(document)[metric]
    assert "not ranked in full because a measurement failed" in document.answer
    rows = {r[1]: r for r in table(document, "Throughput per connection, across nodes").rows}
    assert rows["ovs-vxlan"][6] == "14 of 14"
    assert rows["ovs-vxlan"][3] == "0 bit/s in all"


def test_a_thousandth_more_is_no_win(data: Callable[..., Data]) -> None:
    """144 kbit/s of 100 Mbit/s, in every repetition: significant, and equivalent."""
    document = report.build(campaign(), data(UNITS, *udp({"linuxbridge-vxlan": 0.0, "ovs-vxlan": 0.00144})))
    assert standing(document) == {"loss of UDP": "equivalent", "UDP throughput": "equivalent"}


def test_fragments_are_compared_with_what_fits(data: Callable[..., Data]) -> None:
    rows = [*udp({"ovs-vxlan": 0.0}), *udp({"ovs-vxlan": 0.7}, datagram="fragments")]
    document = report.build(campaign(), data(UNITS, *rows))
    (said,) = [line for line in document.summary.found if line.startswith("UDP in fragments")]
    words = (
        r"UDP in fragments loses (\S+) \[(\S+), (\S+)\] % of what is sent more than in datagrams that fit, "
        r"ovs-vxlan cross-node 100Mbit: decided\."
    )
    numbers = re.fullmatch(words, said)
    assert numbers is not None, said
    assert [float(n) for n in numbers.groups()] == pytest.approx([70, 70, 70], abs=1), "and not less"
    turned = report.build(campaign(), data(UNITS, *reversed(rows)))
    assert said in turned.summary.found, "whichever of the two comes first"


def test_alike_is_equivalent(data: Callable[..., Data]) -> None:
    same, rates = dict.fromkeys(PATHS, 500e-6), dict.fromkeys(PATHS, 1e9)
    document = report.build(campaign(), data(UNITS, *repetitions(same, rates)))
    assert standing(document)["TCP throughput"] == "equivalent"
    assert "wins 1" not in document.answer


def test_too_few_repetitions_name_nobody(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(APART, FAST, times=4)))
    assert set(standing(document).values()) == {"too few repetitions"}
    assert document.answer.endswith("nobody wins or loses; 3 are of too few repetitions to decide.")


def test_no_interval_leaves_the_possible_range(data: Callable[..., Data]) -> None:
    """Rates that scatter over three decades: Student's interval would reach below zero."""
    rows = [
        ({**CELL, "machines": 2}, {"throughput": [rate], "rtt": [1e-3] * 3, "rtt_application": [1e-3] * 3})
        for rate in (1e6, 1e7, 1e9)
    ]
    document = report.build(campaign(), data(UNITS, *rows))
    (row,) = table(document, "Throughput per connection, across nodes").rows
    assert "-" not in row[3]
    assert float(row[3].split()[0]) > 0


def test_conditions_that_decide_stand_in_the_headline(data: Callable[..., Data]) -> None:
    made = data(UNITS, *repetitions(APART, FAST))
    made.each_condition = ["Open vSwitch with its userspace datapath", "senders sharing 2 processors"]
    document = report.build(campaign(), made)
    assert document.answer.startswith(f"{made.conditions}: of 3 rankings, ")
    assert any("the bridge forwards in the kernel here" in line for line in document.summary.silent)
    assert "not about the switches as such" in document.summary.confidence


def test_delays_have_their_loss_and_what_it_could_have_shown(data: Callable[..., Data]) -> None:
    measured = list(repetitions(APART, FAST))
    for cell, samples in measured:
        if cell["path"] == "ovs-gre":
            samples["rtt_application"][:5] = np.nan  # type: ignore[index]
    document = report.build(campaign(), data(UNITS, *measured))
    rows = {r[1]: r for r in table(document, "Round trips of timed packets during the traffic").rows}
    assert rows["ovs-gre"][4] == "70 of 280, 25.0 %"
    assert rows["ovs-vxlan"][4].startswith("0 of 280 (≤ 1.")
    assert float(rows["linuxbridge-vxlan"][2].split()[0]) == pytest.approx(70, abs=1)


def test_published_winners_are_beside_ours_and_counted(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(APART, FAST)))
    rows = {r[0]: r for r in table(document, "Who wins and who loses").rows}
    assert rows[LATENCY][4] == "linuxbridge-vxlan"
    assert rows["TCP throughput"][4] == "ovs-gre"
    said = "of 3 published winners, ours names the same for 1 and another for 1; for 1 it names none."
    assert said in document.summary.agreement


def test_every_repetition_is_a_dot_on_a_log_axis(data: Callable[..., Data]) -> None:
    rows = [*repetitions(APART, FAST), *udp(dict.fromkeys(PATHS, 0.1))]
    document = report.build(campaign(), data(UNITS, *rows))
    captions = [f.caption for s in document.sections for f in s.figures]
    assert captions[:2] == [
        "Throughput per connection, across nodes",
        "Loss of UDP by its receiver, across nodes",
    ]
