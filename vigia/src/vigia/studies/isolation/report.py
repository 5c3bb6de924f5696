"""E3: medians with quartiles, cost of each element, processing rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vigia.campaign.model import Campaign
from vigia.report import compare, figures
from vigia.report.answers import Answer, Said, capital, evaluate, sureness
from vigia.report.data import Data, Floats, mean, median, published
from vigia.report.document import Document, Figure, Section, Summary, Table
from vigia_statistics import rank_sum
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


_PUBLISHED = {
    "direct": "direct",
    "ovs-vxlan": "reference-ovs",
    "ipsec-ovs-vxlan": "ipsec",
    "macvlan": "sriov",
    "sriov": "sriov",
    "ipsec-macvlan": "ipsec+sriov",
    "ipsec-sriov": "ipsec+sriov",
}
"""Our path: the published scenario that it stands beside. macvlan bypasses the switch as a virtual function does."""
_COLUMNS = {"rtt_small": "rtt_small_ms", "rtt_saturated": "rtt_saturated_ms", "bandwidth": "bandwidth_mbit_s"}


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    paths = [str(p) for p in data.levels("path")]
    found = evaluate(campaign.hypotheses, data, campaign.confidence)
    sections = [
        _masking(found),
        Section(
            "Round trips and bandwidth",
            tables=[_round_trips(campaign, data, paths), _reference()],
            figures=[
                *(
                    _beside_published(
                        campaign, data, paths, m, f"Round trips of {size} echoes", 1e-3, "RTT in ms"
                    )
                    for m, size in _SIZES.items()
                ),
                _beside_published(campaign, data, paths, "bandwidth", "TCP bandwidth", 1e6, "Mbit/s"),
                *(
                    figures.cdf(
                        f"ICMP echoes of {size}",
                        {p: data.pooled(m, path=p) * 1e3 for p in paths},
                        "RTT in ms",
                    )
                    for m, size in _SIZES.items()
                ),
            ],
        ),
        Section("Cost of one element", tables=[_costs(campaign, data, paths), _reference_rates()]),
    ]
    return Document(
        campaign.title, campaign.question, _answer(data, paths, found), sections, _summary(data, paths, found)
    )


_Found = Mapping[str, Sequence[Answer]]


def _one(found: _Found, name: str) -> Answer | None:
    return next(iter(found.get(name, [])), None)


def _answer(data: Data, paths: list[str], found: _Found) -> str:
    medians = {p: median(data.pooled("rtt_small", path=p)) for p in paths}
    parts = [f"{p} {seconds(v)}" for p, v in sorted(medians.items(), key=lambda item: item[1])]
    text = f"Median round trip of a 64-byte echo: {', '.join(parts)}."
    if data.conditions:
        text = f"{capital(data.conditions)}: {text[:1].lower()}{text[1:]}"
    return " ".join([text, *_conclusion(found)])


def _conclusion(found: _Found) -> list[str]:
    """Say whether bypassing the switch masks what IPsec costs, small and saturated."""
    lines = []
    for name, when in (("masked_small", "unsaturated"), ("masked_saturated", "saturated")):
        f = _one(found, name)
        if f:
            lines.append(
                f"{capital(when)}, bypassing the switch {_masks(f)} IPsec's cost: IPsec beside the switch takes {f.shown} "
                "of the switch without IPsec."
            )
    return lines


def _masks(f: Answer) -> str:
    words = {Said.ABOVE: "does not mask", Said.BELOW: "more than masks", Said.EQUAL: "masks"}
    return words.get(f.outcome, "is not shown to mask or not to mask")


def _summary(data: Data, paths: list[str], found: _Found) -> Summary:
    lines = _conclusion(found)
    interaction = _one(found, "bypass_ipsec_saturation")
    if interaction:
        lines.append(
            f"Interaction of bypassing, IPsec and saturation: {interaction.shown}, "
            f"{_interaction_words(interaction)} (1 is none)."
        )
    for name, what in (
        ("small_delay", "64-byte echoes"),
        ("saturated_delay", "largest echoes"),
        ("bandwidth", "bandwidth"),
    ):
        if found.get(name):
            lines.append(f"Pairs of paths by {what}: {_pairs(found[name])}.")
    silent = [
        "Anything about SR-IOV itself: macvlan bypasses the virtual switch as a virtual function does, but is software."
    ]
    if "ESP in user space" in data.conditions:
        silent.append("What ESP in the kernel or in a network card costs: here it is done in user space.")
    silent.append("What happens on a link that is a bottleneck: all paths share processors, not a wire.")
    paper = "SR-IOV masks what IPsec costs while nothing is saturated, and does not when it is"
    return Summary(lines, [], silent, paper, _agreement(found, data), _confidence(found))


def _interaction_words(f: Answer) -> str:
    words = {
        Said.ABOVE: "bypassing saves less of IPsec's cost when saturated",
        Said.BELOW: "bypassing saves more of IPsec's cost when saturated",
        Said.EQUAL: "bypassing saves as much of IPsec's cost either way",
    }
    return words.get(f.outcome, f.verdict)


def _pairs(found: Sequence[Answer]) -> str:
    decided = sum(f.winner is not None for f in found)
    equal = sum(f.outcome is Said.EQUAL for f in found)
    return (
        f"{decided} of {len(found)} differ, {equal} are equivalent, {len(found) - decided - equal} are open"
    )


def _agreement(found: _Found, data: Data) -> str:
    small, large = _one(found, "masked_small"), _one(found, "masked_saturated")
    if small is None or large is None or Said.OPEN in (small.outcome, large.outcome):
        return "open: whether IPsec's cost is masked is not decided for both loads"
    if Said.TOO_FEW in (small.outcome, large.outcome) or Said.FAILED in (small.outcome, large.outcome):
        return "open: there are too few repetitions"
    masked, unmasked = small.outcome is not Said.ABOVE, large.outcome is Said.ABOVE
    if masked and unmasked:
        return "agrees: masked while unsaturated, and not when saturated"
    reason = (
        "; likely reason: ESP in user space costs every packet a pass through a process, more than the switch does, where the "
        "study's was in the kernel"
        if "ESP in user space" in data.conditions
        else ""
    )
    return (
        f"{'partly agrees' if masked or unmasked else 'disagrees'}: {'masked' if masked else 'not masked'} while unsaturated, "
        f"{'not masked' if unmasked else 'masked'} when saturated{reason}"
    )


def _confidence(found: _Found) -> str:
    asked = [f for family in found.values() for f in family]
    decided = sum(f.outcome in (Said.ABOVE, Said.BELOW, Said.EQUAL) for f in asked)
    return sureness(decided, len(asked), "comparisons")


def _masking(found: _Found) -> Section:
    rows = [
        [name, f.hypothesis.claim, str(f.values.size), f.shown, words(f)]
        for name, words in (
            ("masked_small", _masks),
            ("masked_saturated", _masks),
            ("bypass_ipsec_saturation", _interaction_words),
        )
        if (f := _one(found, name))
    ]
    table = Table(
        "Does bypassing the switch mask what IPsec costs?",
        ["test", "claim", "blocks", "effect", "answer"],
        rows,
        "Masked: with IPsec and without the switch no slower than with the switch and without IPsec. The interaction is a "
        "ratio of ratios, computed within each block: how much more IPsec costs beside the switch than through it, "
        "saturated over unsaturated.",
    )
    return Section("The study's conclusion, tested", tables=[table] if rows else [])


def _beside_published(  # noqa: PLR0913
    campaign: Campaign, data: Data, paths: list[str], metric: str, caption: str, scale: float, unit: str
) -> Figure:
    ours = [data.each(metric, median, path=p) / scale for p in paths]
    rows = {r["scenario"]: r[_COLUMNS[metric]] for r in published("isolation", "ipsec_sriov")}
    theirs = [float(v) if (v := rows.get(_PUBLISHED.get(p, ""), "")) else None for p in paths]
    return figures.dots(
        f"{caption}: ours per repetition, the published value beside it (other hardware)",
        paths,
        {"ours": ours},
        {"ours": [compare.bar(v, unit, campaign.confidence) for v in ours]},
        unit,
        published={"published": theirs},
    )


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
