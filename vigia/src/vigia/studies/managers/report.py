"""E4: mean, standard deviation, relative gain and significance of every benchmark at two sites."""

from __future__ import annotations

from itertools import combinations

from vigia.campaign.model import Campaign
from vigia.report import compare, figures
from vigia.report.data import Data, Floats, mean, published
from vigia.report.document import Document, Figure, Section, Table
from vigia_statistics import Comparison, Direction, Verdict, judge, welch
from vigia_statistics import compare as compare_samples
from vigia_text.numbers import interval, percent, probability, quantity

__all__ = ["build"]


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    sites = [str(s) for s in data.levels("site")]
    measures = [m for m in data.units if any(data.each(m, mean, site=s).size for s in sites)]
    rows, significant = [], []
    for a, b in combinations(sites, 2):
        judged = _family(campaign, data, measures, a, b)
        for m, c in judged:
            rows.append(_row(data, m, c, campaign.confidence))
            if c.verdict in (Verdict.A, Verdict.B):
                significant.append(f"{m} ({c.shift / c.median_b:+.1%})")
    verb = "differs" if len(significant) == 1 else "differ"
    answer = f"Of {len(rows)} measures of {' and '.join(sites)}, {len(significant)} {verb} significantly"
    answer += f": {', '.join(significant)}." if significant else "."
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
        rows,
        f"Gain: Hodges-Lehmann shift relative to the second site's median, with its {percent(campaign.confidence)} interval. "
        "p: Mann-Whitney, adjusted over the table; Welch's t-test beside it. Significant below "
        f"{1 - campaign.confidence:.2f}.",
    )
    sections = [
        Section("Gains", tables=[table, _reference()], figures=[_plot(campaign, data, measures, sites)])
    ]
    return Document(campaign.title, campaign.question, answer, sections)


def _family(
    campaign: Campaign, data: Data, measures: list[str], a: str, b: str
) -> list[tuple[str, Comparison]]:
    usable, found = [], []
    for m in measures:
        x, y = (data.each(m, mean, site=s) for s in (a, b))
        if min(x.size, y.size) >= 2:
            usable.append(m)
            found.append(compare_samples(a, b, x, y, confidence=campaign.confidence))
    return list(zip(usable, judge(found, Direction.HIGHER, alpha=1 - campaign.confidence), strict=True))


def _row(data: Data, m: str, c: Comparison, confidence: float) -> list[str]:
    unit = data.units[m]
    x, y = (data.each(m, mean, site=s) for s in (c.a, c.b))
    verdict = {Verdict.A: f"{c.a} gets more", Verdict.B: f"{c.b} gets more"}.get(c.verdict, str(c.verdict))
    base = c.median_b or float("nan")
    return [
        m,
        f"{c.a}, {c.b}",
        f"{c.samples_a}, {c.samples_b}",
        _mean_sd(x, unit),
        _mean_sd(y, unit),
        interval(c.shift / base, c.lower / base, c.upper / base, "ratio"),
        probability(c.adjusted_p_value),
        probability(welch(x, y, confidence).p_value),
        verdict,
    ]


def _mean_sd(values: Floats, unit: str) -> str:
    return f"{quantity(float(values.mean()), unit)} ± {quantity(float(values.std(ddof=1)), unit)}"


def _plot(campaign: Campaign, data: Data, measures: list[str], sites: list[str]) -> Figure:
    series: dict[str, list[figures.Bar | None]] = {}
    for s in sites:
        bars: list[figures.Bar | None] = []
        for m in measures:
            base = mean(data.each(m, mean, site=sites[-1]))
            bars.append(compare.bar(data.each(m, mean, site=s), campaign.confidence, base))
        series[s] = bars
    return figures.bars(f"Relative to the mean of {sites[-1]}", measures, series, "ratio")


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
