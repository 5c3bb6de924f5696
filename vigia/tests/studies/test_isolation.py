"""E3: what a repetition asks of hosts, and what the report says of data whose answer is known."""

from __future__ import annotations

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
    paths: Mapping[str, tuple[float, float, float]], times: int = 12
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
    "macvlan": (50e-6, 420e-6, 3.9e9),
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
    assert set(rows) == {"open-vswitch", "macvlan", "ipsec on ovs-vxlan", "ipsec on macvlan"}, (
        "where both paths were measured"
    )
    assert float(rows["open-vswitch"][2].split()[0]) == pytest.approx(100, rel=0.02)
    assert float(rows["open-vswitch"][3].split()[0]) == pytest.approx(10, rel=0.02), "packets per ms"
    assert float(rows["ipsec on ovs-vxlan"][2].split()[0]) == pytest.approx(200, rel=0.02)
    assert rows["ipsec on ovs-vxlan"][1] == "ipsec-ovs-vxlan − ovs-vxlan"


def test_what_costs_nothing_has_no_rate(data: Callable[..., Data]) -> None:
    same = {"direct": PATHS["direct"], "ovs-vxlan": PATHS["direct"]}
    document = report.build(campaign(), data(UNITS, *repetitions(same)))
    (row,) = table(document, "Half the difference of round trips").rows
    assert row[3] == row[5] == "not separable"


MASKED = {**PATHS, "ipsec-macvlan": (200e-6, 3000e-6, 5e8)}
"""As in the study: quicker than the switch without IPsec while small, slower when saturated."""


def test_the_answer_ranks_paths_by_delay(data: Callable[..., Data]) -> None:
    answer = report.build(campaign(), data(UNITS, *repetitions(PATHS))).answer
    order = ("direct", "macvlan", "ovs-vxlan", "ipsec-macvlan", "ipsec-ovs-vxlan")
    found = [answer.index(f" {p} ") for p in order]
    assert found == sorted(found), answer


def test_the_studys_conclusion_is_tested_and_agreed_with(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(MASKED)))
    assert "Unsaturated, bypassing the switch more than masks IPsec's cost" in document.answer
    assert "Saturated, bypassing the switch does not mask IPsec's cost" in document.answer
    assert document.summary.agreement == "agrees: masked while unsaturated, and not when saturated"
    rows = {r[0]: r for r in table(document, "Does bypassing the switch mask").rows}
    assert set(rows) == {"masked_small", "masked_saturated", "bypass_ipsec_saturation"}
    # Small: 200/50 beside 640/240; saturated: 3000/420 beside 4000/2000.
    wanted = (3000 / 420) / (4000 / 2000) / ((200 / 50) / (640 / 240))
    assert float(rows["bypass_ipsec_saturation"][3].split()[1]) == pytest.approx(wanted, rel=0.02)
    assert rows["bypass_ipsec_saturation"][4] == "bypassing saves less of IPsec's cost when saturated"


def test_what_is_not_masked_disagrees_with_a_reason(data: Callable[..., Data]) -> None:
    made = data(UNITS, *repetitions(PATHS))
    made.each_condition = ["ESP in user space (libipsec)", "all sharing 2 processors"]
    document = report.build(campaign(), made)
    assert document.answer.startswith(
        "ESP in user space (libipsec), all sharing 2 processors: median round trip"
    )
    assert document.summary.agreement.startswith(
        "partly agrees: not masked while unsaturated, not masked when"
    )
    assert "ESP in user space costs every packet a pass through a process" in document.summary.agreement
    assert any("What ESP in the kernel" in line for line in document.summary.silent)


def test_too_few_repetitions_leave_the_conclusion_open(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(MASKED, times=4)))
    assert document.summary.agreement == "open: there are too few repetitions"
    assert "is not shown to mask or not to mask" in document.answer
    assert document.summary.confidence == "none: nothing is decided"


def test_without_all_paths_there_is_no_interaction(data: Callable[..., Data]) -> None:
    only = {p: PATHS[p] for p in ("direct", "ovs-vxlan")}
    document = report.build(campaign(), data(UNITS, *repetitions(only)))
    assert document.sections[0].tables == []
    assert document.summary.agreement.startswith("open: whether IPsec's cost is masked")


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


def test_every_pair_of_paths_is_counted(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(PATHS)))
    assert (
        "Pairs of paths by 64-byte echoes: 10 of 10 differ, 0 are equivalent, 0 are open."
        in document.summary.found
    )
    assert document.summary.confidence.startswith("high: ")


def test_published_values_are_on_the_same_axes(data: Callable[..., Data]) -> None:
    document = report.build(campaign(), data(UNITS, *repetitions(PATHS)))
    drawn = [f for s in document.sections for f in s.figures]
    assert [f.caption.split(":")[0] for f in drawn[:3]] == [
        "Round trips of 64 bytes echoes", "Round trips of 65 515 bytes echoes", "TCP bandwidth",
    ]  # fmt: skip
    assert all(">published<" in f.svg for f in drawn[:3])


def test_echoes_that_were_all_lost_leave_gaps(data: Callable[..., Data]) -> None:
    rows = list(repetitions({"direct": PATHS["direct"]}))
    rows += [({"path": "ovs-vxlan"}, {"rtt_small": [np.nan] * 5, "rtt_saturated": [np.nan] * 5})] * 3
    document = report.build(campaign(), data(UNITS, *rows))
    shown = {r[0]: r for r in table(document, "Median round trip (interquartile range)").rows}
    assert shown["ovs-vxlan"][1:4] == ["–", "–", "–"]
    (cost,) = table(document, "Half the difference of round trips").rows
    assert cost[2:] == ["–"] * 4
