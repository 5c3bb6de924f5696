"""E4: mean, standard deviation, relative gain and verdict of every benchmark at two sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vigia.campaign.model import Campaign
from vigia.report import compare, figures
from vigia.report.answers import Answer, Said, capital, evaluate, sureness
from vigia.report.data import Data, Floats, mean, published
from vigia.report.document import Document, Figure, Section, Summary, Table
from vigia_statistics import welch
from vigia_text.numbers import percent, probability, quantity

__all__ = ["build"]

_PUBLISHED = {
    "network": ("iperf", "throughput_mbit_s", 1e6),
    "linpack": ("LINPACK", "cpu_mflops", 1.0),
    **{f"stream_{k}": ("STREAM", f"{k}_mb_s", 1.0) for k in ("add", "copy", "scale", "triad")},
    **{f"stream_c_{k}": ("STREAM", f"{k}_mb_s", 1.0) for k in ("add", "copy", "scale", "triad")},
    **{f"disk_{k}": ("IOzone", f"{k}_mb_s", 1.0) for k in ("write", "rewrite", "read", "reread")},
    **{f"direct_{k}": ("IOzone", f"{k}_mb_s", 1.0) for k in ("write", "rewrite", "read", "reread")},
}
"""Our metric: the published benchmark and measure, and what it is multiplied by."""

_BY_NUMPY = frozenset(f"stream_{k}" for k in ("add", "copy", "scale", "triad"))


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    sites = [str(s) for s in data.levels("site")]
    found = [
        f for family in evaluate(campaign.hypotheses, data, campaign.confidence).values() for f in family
    ]
    table = Table(
        "Every benchmark at both sites",
        [
            "measure",
            "sites",
            "n",
            "mean ± sd",
            "mean ± sd",
            "gain of the first",
            "p (Holm)",
            "p (Welch)",
            "verdict",
        ],
        [_row(data, f, campaign.confidence) for f in found],
        "Gain: ratio of the first site to the second less 1, compared within blocks, with an interval that holds for all "
        f"rows together ({percent(campaign.confidence)}). p: Wilcoxon signed-rank, adjusted over the table; Welch's t-test "
        "beside it.",
    )
    measures = [f.hypothesis.metric for f in found]
    drawn = [_plot(campaign, data, measures, sites), _beside_published(campaign, data, measures, sites)]
    sections = [Section("Gains", tables=[table, _reference()], figures=drawn if found else [])]
    return Document(
        campaign.title, campaign.question, _answer(data, found, sites), sections, _summary(data, found, sites)
    )


def _namespaces(data: Data) -> bool:
    return "sharing" in data.conditions


def _gain(f: Answer) -> tuple[float, float, float]:
    estimate, low, high = f.effect
    return estimate - 1, low - 1, high - 1


def _answer(data: Data, found: Sequence[Answer], sites: Sequence[str]) -> str:
    differing = [f for f in found if f.winner]
    equal = [f for f in found if f.outcome is Said.EQUAL]
    rest = len(found) - len(differing) - len(equal)
    named = ", ".join(f"{f.hypothesis.metric} ({_gain(f)[0]:+.1%})" for f in differing)
    said = (
        f"of {len(found)} measures of {' and '.join(sites)}, {len(differing)} "
        f"{'differs' if len(differing) == 1 else 'differ'} beyond the margin{f': {named}' if named else ''}; "
        f"{len(equal)} {'is' if len(equal) == 1 else 'are'} equivalent, {rest} {'is' if rest == 1 else 'are'} open"
    )
    under = [f"{data.conditions}, both sites namespaces of one kernel"] if _namespaces(data) else []
    return capital(f"{': '.join([*under, said])}.")


def _summary(data: Data, found: Sequence[Answer], sites: Sequence[str]) -> Summary:
    lines = [
        f"{f.hypothesis.metric}: {f.question.first} beside {f.question.second} {f.shown}: {f.verdict}."
        for f in found
    ]
    silent = []
    if _namespaces(data):
        silent.append(
            "What a virtual machine costs: a tenant's machine is a namespace of the same kernel, so memory, processor and "
            "disk are the same ones; that they are equal checks the method, and says nothing of a cloud."
        )
    if any(f.hypothesis.metric.startswith("disk_") for f in found):
        silent.append(
            "How fast the disk is: disk_* go to the page cache; see direct_* and fsync_* where they were measured."
        )
    if any(f.hypothesis.metric in _BY_NUMPY for f in found):
        silent.append(
            "How fast memory is: stream_* are numpy's kernels on arrays that a cache may hold; see stream_c_* where they "
            "were measured."
        )
    silent.append("What OpenStack or OpenNebula cost: neither manages these sites.")
    beside = (
        "; hpcc_* are kernels of the same sort, by Debian's HPC Challenge"
        if any(f.hypothesis.metric.startswith("hpcc_") for f in found)
        else ""
    )
    silent.append(
        "What the NAS benchmarks (EP, CG, MG, IS) give is missing: no registry that Vigia installs from has their "
        f"sources{beside}."
    )
    paper = (
        "both clouds differ significantly from each other in every measure; OpenStack loses most in network (-28 % of native) "
        "and in writing, little in memory and processor"
    )
    network = next((f for f in found if f.hypothesis.metric == "network"), None)
    return Summary(lines, [], silent, paper, _agreement(network, data), _confidence(found, data))


def _agreement(network: Answer | None, data: Data) -> str:
    if network is None or network.outcome in (Said.OPEN, Said.TOO_FEW, Said.FAILED):
        return "open: the network, the only measure that can differ here, is not decided"
    reason = "; no manager and no virtual machine is between the sites here" if _namespaces(data) else ""
    if network.winner:
        return f"partly agrees: the tenant's network differs ({_gain(network)[0]:+.1%}), by less than the study's{reason}"
    return f"disagrees: the tenant's network is equivalent to the host's{reason}"


def _confidence(found: Sequence[Answer], data: Data) -> str:
    decided = sum(f.outcome in (Said.ABOVE, Said.BELOW, Said.EQUAL) for f in found)
    limit = "low for clouds, of which none was measured" if _namespaces(data) else ""
    return sureness(decided, len(found), "measures", limit)


def _row(data: Data, f: Answer, confidence: float) -> list[str]:
    m, q = f.hypothesis.metric, f.question
    unit = data.units.get(m, f.hypothesis.unit)
    x, y = (data.each(m, mean, site=s) for s in (q.first, q.second))
    gain = _gain(f)
    verdict = f"{f.winner} gets more, {f.loser} less" if f.winner else f.verdict
    interval = f" [{gain[1]:+.1%}, {gain[2]:+.1%}]" if f.outcome is not Said.TOO_FEW else ""
    return [
        m,
        f"{q.first}, {q.second}",
        str(f.values.size),
        _mean_sd(x, unit),
        _mean_sd(y, unit),
        f"{gain[0]:+.1%}{interval}" if f.values.size > 1 else "–",
        probability(f.adjusted),
        probability(welch(x, y, confidence).p_value) if min(x.size, y.size) > 1 else "–",
        verdict,
    ]


def _mean_sd(values: Floats, unit: str) -> str:
    if values.size < 2:
        return "–"
    return f"{quantity(float(values.mean()), unit)} ± {quantity(float(values.std(ddof=1)), unit)}"


def _plot(campaign: Campaign, data: Data, measures: Sequence[str], sites: Sequence[str]) -> Figure:
    series: dict[str, list[Floats]] = {}
    for s in sites:
        series[s] = [data.each(m, mean, site=s) / mean(data.each(m, mean, site=sites[-1])) for m in measures]
    return figures.dots(
        f"Relative to the mean of {sites[-1]}, a dot for each repetition",
        measures,
        series,
        {s: [compare.bar(v, "", campaign.confidence) for v in values] for s, values in series.items()},
        "ratio",
        log=False,
        line=1.0,
    )


def _beside_published(
    campaign: Campaign, data: Data, measures: Sequence[str], sites: Sequence[str]
) -> Figure:
    rows = {(r["benchmark"], r["measure"]): r for r in published("managers", "microbenchmarks")}
    known = [m for m in dict.fromkeys(measures) if m in _PUBLISHED]
    series: dict[str, list[Floats]] = {}
    for s in sites:
        series[s] = [data.each(m, mean, site=s) / _PUBLISHED[m][2] for m in known]
    theirs: Mapping[str, list[float | None]] = {
        f"published, {name}": [float(rows[_PUBLISHED[m][:2]][f"{name}_mean"]) for m in known]
        for name in ("native", "openstack", "opennebula")
    }
    return figures.dots(
        "Ours per repetition, published means beside them (other hardware): Mbit/s, MFLOPS, MB/s",
        known,
        series,
        {s: [compare.bar(v, "", campaign.confidence) for v in values] for s, values in series.items()},
        "Mbit/s, MFLOPS, MB/s",
        published=theirs,
    )


def _reference() -> Table:
    rows = [
        [
            f"{r['benchmark']} {r['measure']}",
            f"{r['native_mean']} ± {r['native_sd']}",
            f"{r['openstack_mean']} ± {r['openstack_sd']}",
            f"{r['opennebula_mean']} ± {r['opennebula_sd']}",
            r["p"],
        ]
        for r in published("managers", "microbenchmarks")
    ]
    return Table(
        "Published: mean and standard deviation of 40 runs",
        ["measure", "native", "OpenStack", "OpenNebula", "p of the two clouds"],
        rows,
    )
