"""E5: what each tenant got of its guarantee, by traffic and by how they were kept apart."""

from __future__ import annotations

from collections.abc import Mapping

from vigia.campaign.model import Campaign, Factor
from vigia.report import figures
from vigia.report.data import Data, Floats, mean
from vigia.report.document import Document, Figure, Section, Table
from vigia.report.figures import Bar
from vigia_statistics import mean_interval
from vigia_text.numbers import interval, percent

__all__ = ["build"]

_FLOOD = "udp-1"
_KEPT = 0.95
_PAYLOAD = {"tcp": 1448 / 1514, "udp": 1400 / 1442}  # of full frames; guarantees count frames


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    rows = []
    bars: dict[tuple[str, str], dict[tuple[str, str], Bar]] = {}
    worst: dict[str, float] = {}
    for direction in data.levels("direction"):
        for a in data.levels("a"):
            for b in data.levels("b"):
                for control in data.levels("control"):
                    cell = {"direction": direction, "a": a, "b": b, "control": control}
                    used = data.each("used", mean, **cell)
                    if not used.size:
                        continue
                    shares = [
                        data.each(f"share_{t}", mean, **cell) / _payload(level)
                        for t, level in (("a", a), ("b", b))
                    ]
                    rows.append(
                        [
                            *(str(cell[k]) for k in ("direction", "a", "b", "control")),
                            str(used.size),
                            *(_share(x, campaign.confidence) for x in (*shares, used)),
                        ]
                    )
                    group = (str(direction), f"A {a}, B {b}")
                    for tenant, x in zip("AB", shares, strict=True):
                        if x.size:
                            bars.setdefault((tenant, str(control)), {})[group] = _bar(x, campaign.confidence)
                    if b == _FLOOD and shares[0].size:
                        got = float(shares[0].mean())
                        worst[str(control)] = min(got, worst.get(str(control), got))
    table = Table(
        "What tenants got of their guarantees, and of what the link gives out",
        ["direction", "A", "B", "control", "n", "A of its guarantee", "B of its guarantee", "link used"],
        rows,
        f"Payload, against the payload in a guarantee of full frames; link used: payload against frames. Intervals: "
        f"{percent(campaign.confidence)}, Student's. A has 75% and B 25% of what the link gives out.",
    )
    return Document(
        campaign.title,
        campaign.question,
        _answer(worst),
        [Section("Shares", tables=[table], figures=_figures(bars))],
    )


def _figures(bars: Mapping[tuple[str, str], Mapping[tuple[str, str], Bar]]) -> list[Figure]:
    """Return, for each tenant and direction, a bar for each traffic and control, and a line at the guarantee."""
    found = []
    for tenant in sorted({t for t, _ in bars}):
        here = {control: groups for (t, control), groups in bars.items() if t == tenant}
        for direction in dict.fromkeys(d for groups in here.values() for d, _ in groups):
            names = list(dict.fromkeys(g for groups in here.values() for d, g in groups if d == direction))
            series = {c: [g.get((direction, n)) for n in names] for c, g in here.items()}
            caption = f"What tenant {tenant} got of its guarantee (the line), host 1 {direction}s"
            found.append(figures.bars(caption, names, series, "% of the guarantee", line=100.0))
    return found


def _bar(values: Floats, confidence: float) -> Bar:
    """Return a mean with its interval in percent."""
    if values.size < 2:
        only = 100 * float(values.mean())
        return only, only, only
    m = mean_interval(values, confidence)
    return 100 * m.estimate, 100 * max(0.0, m.lower), 100 * m.upper


def _payload(level: Factor) -> float:
    return _PAYLOAD.get(str(level).partition("-")[0], 1.0)


def _answer(worst: dict[str, float]) -> str:
    if not worst:
        return "No flood was measured."
    kept = [c for c, share in worst.items() if share >= _KEPT]
    lost = [f"{c} ({percent(share)})" for c, share in worst.items() if share < _KEPT]
    sentences = []
    if kept:
        sentences.append(
            f"Under a UDP flood of the other tenant, A keeps its guarantee with {', '.join(kept)}."
        )
    if lost:
        sentences.append(f"It does not with {', '.join(lost)}.")
    return " ".join(sentences)


def _share(values: Floats, confidence: float) -> str:
    if not values.size:
        return "-"
    if values.size < 2:
        return f"{float(values.mean()):.2f}"
    found = mean_interval(values, confidence)
    return interval(found.estimate, found.lower, found.upper, "ratio")
