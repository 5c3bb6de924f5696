"""E3: what a repetition asks of hosts, and what the report says of data whose answer is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vigia.campaign.model import Campaign, Factor, Settings
from vigia.report.data import Data
from vigia.report.document import Document, Table
from vigia.studies import catalogue
from vigia.studies.isolation import report
from vigia.studies.isolation.measurement import LARGEST, MEASUREMENT, SMALL

SETTINGS = Settings.model_validate(
    {"probes": 3, "interval": "20ms", "duration": "2s", "warm_up": "1s", "buffer": 65536}
)
ECHOES = "".join(
    f"64 bytes from 10.0.1.1: icmp_seq={n} ttl=64 time={ms} ms\n" for n, ms in ((1, 9.0), (2, 0.5), (4, 0.7))
)


# --- measuring ---


def test_echoes_of_both_sizes_then_tcp_then_small_datagrams(
    answering: Callable[..., Any], testdata: Path
) -> None:
    here = answering(ping=ECHOES, iperf3_client=(testdata / "campaign" / "iperf3-udp.json").read_text())
    series = {s.metric: s for s in MEASUREMENT.measure({"path": "ipsec-macvlan"}, SETTINGS, here)}
    assert here.asked == [("ipsec-macvlan", "cross-node", 2)]
    assert [j.kind for j in here.host.jobs] == ["ping", "ping", "iperf3-client", "iperf3-client"]
    small, large = here.host.of("ping")
    assert (small.payload, large.payload, small.count, large.count) == (SMALL, LARGEST, 4, 4)
    assert small.interval == 0.02
    tcp, udp = here.host.of("iperf3-client")
    assert (tcp.protocol, tcp.message, tcp.buffer) == ("tcp", 0, 0)
    assert (udp.protocol, udp.message, udp.buffer) == ("udp", 64, 65536)
    assert udp.rate >= 10**9, "as fast as the host sends"
    # The first echo finds addresses and is left out; the third was lost.
    assert series["rtt_small"].values[::2] == [0.0005, 0.0007]
    assert np.isnan(series["rtt_small"].values[1])
    assert len(here.host.served) == 2, "a server takes one client"


def test_packets_that_arrived_are_counted(answering: Callable[..., Any], testdata: Path) -> None:
    here = answering(ping=ECHOES, iperf3_client=(testdata / "campaign" / "iperf3-udp.json").read_text())
    series = {s.metric: s.values[0] for s in MEASUREMENT.measure({"path": "direct"}, SETTINGS, here)}
    assert series["small_packets_lost"] == pytest.approx(0.25, abs=0.01)
    # 20 Mbit/s in datagrams of 1200 bytes, of which every fourth was dropped.
    assert series["small_packets"] == pytest.approx(0.75 * 20e6 / 8 / 1200, rel=0.05)


def test_what_it_costs() -> None:
    short, long = (
        MEASUREMENT.estimate({"path": "direct"}, SETTINGS.model_copy(update={"probes": n}))
        for n in (10, 1010)
    )
    assert long.seconds - short.seconds == pytest.approx(2 * 1000 * 0.02)
    assert short.seconds > 2 * 3, "TCP and UDP, with their warm-up"


# --- reporting ---


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e3"]
    return found


UNITS = {"rtt_small": "s", "rtt_saturated": "s", "bandwidth": "bit/s", "small_packets": "packets/s"}


def repetitions(
    paths: Mapping[str, tuple[float, float, float]], times: int = 8
) -> Iterator[tuple[Mapping[str, Factor], Mapping[str, Any]]]:
    """Each path with its round trips, small and largest (s), and its bandwidth (bit/s)."""
    rng = np.random.default_rng(11)
    for _ in range(times):
        for path, (small, large, bandwidth) in paths.items():
            yield (
                {"path": path},
                {
                    "rtt_small": small + rng.uniform(-1e-6, 1e-6, 21),
                    "rtt_saturated": large + rng.uniform(-1e-6, 1e-6, 21),
                    "bandwidth": [bandwidth * (1 + rng.uniform(-0.01, 0.01))],
                    "small_packets": [1e5],
                },
            )


PATHS = {
    "direct": (40e-6, 400e-6, 4e9),
    "ovs-vxlan": (240e-6, 2000e-6, 1e9),
    "ipsec-ovs-vxlan": (640e-6, 4000e-6, 2e8),
    "ipsec-macvlan": (400e-6, 3000e-6, 5e8),
}


def table(document: Document, caption: str) -> Table:
    (found,) = [t for s in document.sections for t in s.tables if t.caption.startswith(caption)]
    return found


def test_the_cost_of_an_element_is_half_of_what_it_adds(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(PATHS)))
    rows = {r[0]: r for r in table(document, "Half the difference of round trips").rows}
    assert set(rows) == {"open-vswitch", "ipsec on ovs-vxlan"}, "where both paths were measured"
    assert float(rows["open-vswitch"][2].split()[0]) == pytest.approx(100, rel=0.02)
    assert float(rows["open-vswitch"][3].split()[0]) == pytest.approx(10, rel=0.02), "packets per ms"
    assert float(rows["ipsec on ovs-vxlan"][2].split()[0]) == pytest.approx(200, rel=0.02)
    assert rows["ipsec on ovs-vxlan"][1] == "ipsec-ovs-vxlan − ovs-vxlan"


def test_what_costs_nothing_has_no_rate(data: Callable[..., Data]) -> None:
    same = {"direct": PATHS["direct"], "ovs-vxlan": PATHS["direct"]}
    document = report.build(campaign(), data(UNITS, *repetitions(same)))
    (row,) = table(document, "Half the difference of round trips").rows
    assert row[3] == row[5] == "not separable"


def test_the_answer_ranks_paths_and_says_what_bypassing_gains(data: Callable[..., Data]) -> None:
    answer = report.build(campaign(), data(UNITS, *repetitions(PATHS))).answer
    found = [answer.index(f" {p} ") for p in ("direct", "ovs-vxlan", "ipsec-macvlan", "ipsec-ovs-vxlan")]
    assert found == sorted(found), answer
    gain = re.search(
        r"Under IPsec, ipsec-macvlan carries ([\d.]+) times the bandwidth of ipsec-ovs-vxlan", answer
    )
    assert gain is not None
    assert float(gain[1]) == pytest.approx(2.5, rel=0.02)


def test_paths_have_quartiles_and_two_kinds_of_packet_rates(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(PATHS)))
    rows = {r[0]: r for r in table(document, "Median round trip (interquartile range)").rows}
    assert list(rows) == list(PATHS)
    direct = rows["direct"]
    assert direct[1].startswith("40.")
    assert direct[3].endswith("Gbit/s")
    # 4 Gbit/s in packets of 64, and of 65 536 bytes, within the noise of one percent.
    rates = [float(direct[n].replace(" ", "")) for n in (4, 5)]
    assert rates == [pytest.approx(4e9 / 512, rel=0.01), pytest.approx(4e9 / 524288, rel=0.01)]


def test_every_pair_of_paths_is_tested(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(PATHS)))
    rows = table(document, "Every pair of paths").rows
    assert len(rows) == 3 * 6
    verdicts = {(r[0], r[1]): r[-1] for r in rows}
    assert verdicts["TCP bandwidth", "direct − ovs-vxlan"] == "direct wins"
    assert verdicts["RTT, 64 bytes", "ipsec-ovs-vxlan − ipsec-macvlan"] == "ipsec-macvlan wins"


def test_echoes_that_were_all_lost_leave_gaps(data: Callable[..., Data]) -> None:
    rows = list(repetitions({"direct": PATHS["direct"]}))
    rows += [({"path": "ovs-vxlan"}, {"rtt_small": [np.nan] * 5, "rtt_saturated": [np.nan] * 5})] * 3
    document = report.build(campaign(), data(UNITS, *rows))
    shown = {r[0]: r for r in table(document, "Median round trip (interquartile range)").rows}
    assert shown["ovs-vxlan"][1:4] == ["–", "–", "–"]
    (cost,) = table(document, "Half the difference of round trips").rows
    assert cost[2:] == ["–"] * 4
