"""Evaluations for people and programs: tables and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from vigia_compare.attribution_report import interference_json, interference_text, loss_json, loss_text
from vigia_compare.evaluation import Evaluation, PathSummary
from vigia_compare.findings import EQUIVALENT, NO_COMMON_HOSTS, OPEN, Finding, spelled
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_compare.standings import Standing
from vigia_text import numbers
from vigia_text.tables import table
from vigia_text.terminal import clean, hang

__all__ = ["as_json", "as_text", "pair_row"]


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as data, in base units; null stands for what is not known or has no bound."""
    return {
        "version": 2,
        "at": evaluation.at,
        "end": evaluation.end,
        "comparisons": [_cell_json(cell, evaluation) for cell in _cells(evaluation)],
        "changes_of_level": [
            {
                **_where(c.cell),
                "path": c.path,
                "src": c.hosts[0],
                "dst": c.hosts[1],
                "since": c.change.since,
                "found": c.change.at,
                "worse": c.change.worse,
                "change": c.change.estimate,
            }
            for c in evaluation.levels
        ],
        "minimum_detectable_loss": [
            {
                "placement": cell.placement,
                "machines": cell.machines or None,
                "probe": cell.probe,
                "path": path,
                "ratio": ratio,
            }
            for (cell, path), ratio in evaluation.loss_floors.items()
        ],
        "elements": [
            {
                "element": c.element,
                "path": c.path,
                "without": c.without,
                "placement": c.cell.placement,
                "probe": c.cell.probe,
                "cost_seconds": _finite((c.lower, c.estimate, c.upper)),
                "packets_per_second": c.rate,
            }
            for c in evaluation.costs
        ],
        "speedups": [
            {
                "path": s.path,
                "baseline": s.baseline,
                "placement": s.cell.placement,
                "probe": s.cell.probe,
                "ratio": _finite((s.lower, s.ratio, s.upper)),
            }
            for s in evaluation.speedups
        ],
        "interference": [interference_json(i) for i in evaluation.interference],
        "losses": [loss_json(p) for p in evaluation.losses],
    }


def _cells(evaluation: Evaluation) -> list[Cell]:
    """Return all cells, in the order of the metrics."""
    found = {f.cell for f in evaluation.findings} | {p.cell for p in evaluation.paths}
    order = list(MEASURES)
    return sorted(found, key=lambda c: (order.index(c.metric), c))


def _where(cell: Cell) -> dict[str, Any]:
    return {
        "metric": cell.metric,
        "placement": cell.placement,
        "machines": cell.machines or None,
        "probe": cell.probe,
    }


def _cell_json(cell: Cell, evaluation: Evaluation) -> dict[str, Any]:
    measure = MEASURES[cell.metric]
    standing = next((s for s in evaluation.standings if s.cell == cell), None)
    return {
        **_where(cell),
        "unit": measure.unit,
        "better": measure.better,
        "winner": standing.winner or None if standing else None,
        "equivalent": list(standing.level) if standing else [],
        "decided": standing.decided if standing else False,
        "said": standing.said if standing else "nothing competes",
        "runner_up": standing.runner_up or None if standing else None,
        "ahead_by": _finite(standing.ahead_by) if standing and standing.runner_up else None,
        "by": standing.by or None if standing else None,
        "since": standing.since or None if standing else None,
        "progress": standing.progress if standing else None,
        "note": standing.note or None if standing else None,
        "ranking": [
            {"path": p, "rank": r} for p, r in zip(standing.paths, standing.ranks, strict=True)
        ] if standing else [],
        "paths": [
            {
                "path": p.path,
                "windows": p.windows,
                "median": p.median.estimate,
                "interval": [p.median.lower, p.median.upper],
                "confidence": p.median.confidence,
            }
            for p in evaluation.paths
            if p.cell == cell
        ],
        "pairs": [_pair_json(f) for f in evaluation.findings if f.cell == cell],
    }  # fmt: skip


def _pair_json(f: Finding) -> dict[str, Any]:
    return {
        "a": f.a,
        "b": f.b,
        "kind": f.kind.value,
        "verdict": f.verdict,
        "since": f.since or None,
        "evidence_since": f.began or None,
        "e_value": f.e_value,
        "equivalence_e_value": f.e_equivalent,
        "needed": f.needed,
        "ratio": _finite(f.ratio) if f.ratio else None,
        "shift": _finite(f.shift),
        "windows": f.windows,
        "hosts": f.hosts,
        "ahead": f.ahead or None,
        "said": f.said,
        "words": f.words or None,
    }


def _finite(values: Iterable[float]) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values]


def as_text(evaluation: Evaluation, width: int | None = None) -> str:
    """Return an evaluation for people, in tables and sentences that fit so many columns."""
    parts = [_winners(evaluation.standings, width)] if evaluation.standings else []
    parts += [_cell_text(cell, evaluation, width) for cell in _cells(evaluation)]
    parts += [*_levels_text(evaluation), *_derived_text(evaluation, width)]
    parts += [interference_text(i) for i in evaluation.interference]
    parts += [loss_text(p) for p in evaluation.losses]
    text = "\n\n".join(parts) if parts else "nothing is measured: no series of this tenant in the period"
    return hang(text, width)


def _winners(standings: Sequence[Standing], width: int | None) -> str:
    order = list(MEASURES)
    rows = [
        (s.cell.metric, s.cell.placement, s.cell.machines or numbers.MISSING, s.cell.probe, _best(s))
        for s in sorted(standings, key=lambda s: (order.index(s.cell.metric), s.cell))
    ]
    return (
        f"winners\n{table(('metric', 'placement', 'machines', 'probe', 'best'), rows, indent=2, width=width)}"
    )


def _best(s: Standing) -> str:
    """Return who is best, by how much and since when, or how far the evidence is."""
    said = f"{s.said} ({s.note})" if s.decided and s.note else s.said
    return ", ".join(p for p in (f"{said}{' ' if s.by else ''}{s.by}", _holds(s)) if p)


def _holds(s: Standing) -> str:
    return f"holds since {_time(s.since)}" if s.since else ""


def _cell_text(cell: Cell, evaluation: Evaluation, width: int | None) -> str:
    measure = MEASURES[cell.metric]
    machines = f", {cell.machines} machines" if cell.machines else ""
    standing = next((_best(s) for s in evaluation.standings if s.cell == cell), "nothing competes")
    parts = [
        clean(
            f"{measure.name} ({measure.better} is better), {cell.placement}{machines}, {cell.probe}: "
            f"{standing}"
        )
    ]
    paths = [_path_row(p, measure.unit) for p in evaluation.paths if p.cell == cell]
    if paths:
        parts.append(table(("path", "median", "interval", "windows"), paths, indent=2, width=width))
    for kind, header in _HEADERS.items():
        found = [
            f
            for f in evaluation.findings
            if f.cell == cell and f.kind is kind and f.verdict != NO_COMMON_HOSTS
        ]
        if found:
            rows = [pair_row(f, measure.unit) for f in found]
            parts.append(
                table((header, "by", "interval", "e", "n", "verdict", "since"), rows, indent=2, width=width)
            )
    mine = [f for f in evaluation.findings if f.cell == cell]
    parts += [f"  {clean(words)}" for words in dict.fromkeys(f.words for f in mine if f.words)]
    return "\n".join(parts)


_HEADERS = {
    Kind.CONTEST: "competing",
    Kind.REFERENCE: "above the underlay",
    Kind.ELEMENT: "cost of an element",
}


def _path_row(p: PathSummary, unit: str) -> tuple[object, ...]:
    m = p.median
    return p.path, numbers.quantity(m.estimate, unit), numbers.span(m.lower, m.upper, unit), p.windows


def pair_row(f: Finding, unit: str) -> tuple[object, ...]:
    """Return what is said of two paths: who, by how much, interval, evidence, n, verdict, since."""
    if f.ratio is not None:
        lower, estimate, upper = (100.0 * (r - 1.0) for r in f.ratio)
        by = f"{estimate:+.3g} %" if math.isfinite(estimate) else numbers.MISSING
        known = math.isfinite(lower) or math.isfinite(upper)
        span = f"{_end(lower)} to {_end(upper)} %" if known else numbers.MISSING
    else:
        lower, estimate, upper = f.shift
        by = numbers.difference(estimate, unit)
        span = numbers.span(lower, upper, unit)
    e_value = max(f.e_value, f.e_equivalent) if f.verdict == EQUIVALENT else f.e_value
    return (
        f"{f.a} - {f.b}",
        by,
        span,
        f"{spelled(e_value)} of {f.needed:g}",
        _counted(f),
        _verdict(f),
        _time(f.since),
    )


def _counted(f: Finding) -> str:
    """Return the minutes, or pairs of runs; evidence is there before the first minute is over."""
    return str(f.windows) if f.windows or not f.began or f.measure.runs else "<1"


def _verdict(f: Finding) -> str:
    if f.verdict == OPEN and f.ahead:
        return f"{OPEN}, {f.ahead} is ahead"
    return f.verdict


def _end(percent: float) -> str:
    return f"{percent:+.3g}" if math.isfinite(percent) else numbers.MISSING


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%MZ") if at else numbers.MISSING


def _levels_text(evaluation: Evaluation) -> Iterator[str]:
    for c in evaluation.levels:
        measure = MEASURES[c.cell.metric]
        by = (
            numbers.difference(c.change.estimate, measure.unit)
            if measure.rare
            else f"{100.0 * (c.change.estimate - 1.0):+.3g} %"
        )
        yield clean(
            f"{c.cell.metric} of {c.path} {c.hosts[0]} to {c.hosts[1]} ({c.cell.probe}) is "
            f"{'worse' if c.change.worse else 'better'} than usual since {_time(c.change.since)}: {by}"
        )


def _derived_text(evaluation: Evaluation, width: int | None) -> Iterator[str]:
    if evaluation.costs:
        rows = [
            (
                c.element,
                f"{c.path} - {c.without}",
                f"{c.cell.placement} {c.cell.probe}",
                numbers.quantity(c.estimate, "seconds"),
                numbers.span(c.lower, c.upper, "seconds"),
                numbers.count(c.rate) if c.rate else numbers.MISSING,
            )
            for c in evaluation.costs
        ]
        header = ("element", "from", "where", "cost one way", "interval", "packets/s")
        yield f"elements\n{table(header, rows, indent=2, width=width)}"
    if evaluation.speedups:
        ratios = [
            (
                s.path,
                s.baseline,
                f"{s.cell.placement} {s.cell.probe}",
                f"{s.ratio:.3f}",
                f"{s.lower:.3f} to {s.upper:.3f}",
            )
            for s in evaluation.speedups
        ]
        names = ("path", "against", "where", "ratio", "interval")
        yield f"OpenFlow speed-up\n{table(names, ratios, indent=2, width=width)}"
