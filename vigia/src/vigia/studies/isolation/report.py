"""E3: medians with quartiles, cost of each element, processing rates."""

from __future__ import annotations

import numpy as np

from vigia.campaign.model import Campaign
from vigia.report import compare, figures
from vigia.report.data import Data, Floats, mean, median, published
from vigia.report.document import Document, Section, Table
from vigia_statistics import Direction, rank_sum
from vigia_text.numbers import bits_per_second, interval, seconds

__all__ = ["build"]

_SIZES = {"rtt_small": "64 bytes", "rtt_saturated": "65 515 bytes"}
_SMALL_BITS, _LARGE_BITS = 64 * 8, 65536 * 8
_ELEMENTS = (
    ("open-vswitch", "ovs-vxlan", "direct"),
    ("macvlan", "macvlan", "direct"),
    ("sriov", "sriov", "direct"),
    ("ipsec on ovs-vxlan", "ipsec-ovs-vxlan", "ovs-vxlan"),
    ("ipsec on macvlan", "ipsec-macvlan", "macvlan"),
    ("ipsec on sriov", "ipsec-sriov", "sriov"),
    ("ipsec", "ipsec", "direct"),
)
"""Name, the path with the element, the path without it."""


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    paths = [str(p) for p in data.levels("path")]
    sections = [
        Section(
            "Round trips and bandwidth",
            tables=[_round_trips(campaign, data, paths), _reference()],
            figures=[
                figures.spread(
                    f"ICMP echoes of {size}: median, quartiles, 5th to 95th percentile",
                    {p: data.pooled(metric, path=p) * 1e3 for p in paths},
                    "RTT in ms",
                    log=True,
                )
                for metric, size in _SIZES.items()
            ],
        ),
        Section("Cost of one element", tables=[_costs(campaign, data, paths), _reference_rates()]),
        Section("Tests", tables=[_tests(campaign, data, paths)]),
    ]
    return Document(campaign.title, campaign.question, _answer(data, paths), sections)


def _answer(data: Data, paths: list[str]) -> str:
    medians = {p: median(data.pooled("rtt_small", path=p)) for p in paths}
    parts = [f"{p} {seconds(v)}" for p, v in sorted(medians.items(), key=lambda item: item[1])]
    text = f"Median round trip of a 64-byte echo: {', '.join(parts)}."
    gains = []
    for with_ipsec, bypass in (("ipsec-ovs-vxlan", "ipsec-macvlan"), ("ipsec-ovs-vxlan", "ipsec-sriov")):
        if with_ipsec in paths and bypass in paths:
            a, b = (mean(data.pooled("bandwidth", path=p)) for p in (with_ipsec, bypass))
            gains.append(f"Under IPsec, {bypass} carries {b / a:.2f} times the bandwidth of {with_ipsec}")
    return f"{text} {'. '.join(gains)}." if gains else text


def _round_trips(campaign: Campaign, data: Data, paths: list[str]) -> Table:
    rows = []
    for p in paths:
        bandwidth = data.each("bandwidth", mean, path=p)
        usual = mean(bandwidth)
        rows.append(
            [
                p,
                *(_quartiles(data.pooled(metric, path=p)) for metric in _SIZES),
                compare.mean_text(bandwidth, "bit/s", campaign.confidence),
                f"{usual / _SMALL_BITS:,.0f}".replace(",", " "),
                f"{usual / _LARGE_BITS:,.0f}".replace(",", " "),
                compare.mean_text(data.each("small_packets", mean, path=p), "packets/s", campaign.confidence),
            ]
        )
    return Table(
        "Median round trip (interquartile range), bandwidth, packet rates",
        [
            "path",
            "RTT, 64 bytes",
            "RTT, 65 515 bytes",
            "TCP bandwidth",
            "small packets/s",
            "largest packets/s",
            "64-byte UDP received",
        ],
        rows,
        "Small and largest packets per second are the TCP bandwidth divided by 64 and 65 536 bytes, as in the study; "
        "the last column was counted: 64-byte datagrams per second that arrived.",
    )


def _quartiles(values: Floats) -> str:
    if not values.size:
        return "–"
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{seconds(float(middle))} ({seconds(float(high - low))})"


def _costs(campaign: Campaign, data: Data, paths: list[str]) -> Table:
    rows = []
    for name, with_it, without in _ELEMENTS:
        if with_it not in paths or without not in paths:
            continue
        row = [name, f"{with_it} − {without}"]
        for metric in _SIZES:
            a, b = (data.each(metric, median, path=p) for p in (with_it, without))
            if not a.size or not b.size:
                row += ["–", "–"]
                continue
            shift = rank_sum(a, b, campaign.confidence).shift
            row.append(interval(shift.estimate / 2, shift.lower / 2, shift.upper / 2, "s"))
            row.append(_per_ms(shift.estimate / 2, shift.lower / 2, shift.upper / 2))
        rows.append(row)
    return Table(
        "Half the difference of round trips with and without the element, and the processing rate, its inverse",
        ["element", "paths", "delay, small", "packets/ms, small", "delay, largest", "packets/ms, largest"],
        rows,
        "Hodges-Lehmann shift of the repetitions' medians with Moses' interval. No rate where the interval of "
        "the delay reaches zero.",
    )


def _per_ms(estimate: float, lower: float, upper: float) -> str:
    if lower <= 0:
        return "not separable"
    return interval(1e-3 / estimate, 1e-3 / upper, 1e-3 / lower, "").strip()


def _reference() -> Table:
    rows = [
        [
            r["scenario"],
            r["rtt_small_ms"],
            r["iqr_small_ms"] or "–",
            r["rtt_saturated_ms"],
            r["iqr_saturated_ms"] or "–",
            bits_per_second(float(r["bandwidth_mbit_s"]) * 1e6) if r["bandwidth_mbit_s"] else "–",
            r["small_packets_s"] or "–",
            r["saturated_packets_s"] or "–",
        ]
        for r in published("isolation", "ipsec_sriov")
    ]
    header = [
        "scenario",
        "RTT ms, small",
        "IQR",
        "RTT ms, largest",
        "IQR",
        "bandwidth",
        "small packets/s",
        "largest packets/s",
    ]
    return Table("Published: other hardware, as a reference", header, rows)


def _reference_rates() -> Table:
    rows = [
        [
            r["element"],
            r["delay_small_ms"],
            r["rate_small_per_ms"],
            r["delay_saturated_ms"],
            r["rate_saturated_per_ms"],
        ]
        for r in published("isolation", "processing_rates")
    ]
    return Table(
        "Published",
        ["element", "delay ms, small", "packets/ms, small", "delay ms, largest", "packets/ms, largest"],
        rows,
    )


def _tests(campaign: Campaign, data: Data, paths: list[str]) -> Table:
    rows = []
    for metric, name, better in (
        ("rtt_small", "RTT, 64 bytes", Direction.LOWER),
        ("rtt_saturated", "RTT, 65 515 bytes", Direction.LOWER),
        ("bandwidth", "TCP bandwidth", Direction.HIGHER),
    ):
        values = {p: data.each(metric, median, path=p) for p in paths}
        family = compare.judged(values, better, campaign.confidence).family
        rows += [[name, *compare.pair_row(c, data.units.get(metric, "s"))] for c in family]
    return Table("Every pair of paths", ["metric", *compare.PAIR_HEADER], rows, "Holm within each metric.")
