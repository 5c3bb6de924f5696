"""Evaluations for people and programs: tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vigia_compare.attribution_report import interference_json, interference_text, loss_json, loss_text
from vigia_compare.engine import Group
from vigia_compare.evaluation import Evaluation
from vigia_compare.exposition import verdict_text
from vigia_statistics import Comparison
from vigia_text import numbers
from vigia_text.tables import table

__all__ = ["as_json", "as_text"]


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as data, in base units."""
    return {
        "version": 1,
        "at": evaluation.at,
        "end": evaluation.end,
        "comparisons": [_group_json(g) for g in evaluation.groups],
        "minimum_detectable_loss": [
            {"placement": placement, "probe": probe, "path": path, "ratio": ratio}
            for (placement, probe, path), ratio in (evaluation.loss_floors or {}).items()
        ],
        "elements": [
            {
                "element": c.element,
                "path": c.path,
                "without": c.without,
                "placement": c.placement,
                "probe": c.probe,
                "cost_seconds": [c.lower, c.estimate, c.upper],
                "packets_per_second": c.rate,
            }
            for c in evaluation.costs
        ],
        "speedups": [
            {"path": s.path, "baseline": s.baseline, "probe": s.probe, "ratio": [s.lower, s.ratio, s.upper]}
            for s in evaluation.speedups
        ],
        "interference": [interference_json(i) for i in evaluation.interference],
        "losses": [loss_json(p) for p in evaluation.losses],
    }


def _group_json(g: Group) -> dict[str, Any]:
    return {
        "metric": g.measure.name,
        "unit": g.measure.unit,
        "better": g.measure.better,
        "placement": g.placement,
        "probe": g.probe,
        "winner": g.winner,
        "tie": g.winner is None and g.enough_data,
        "enough_data": g.enough_data,
        "paths": [
            {
                "path": p.path,
                "windows": p.windows,
                "median": p.median.estimate,
                "interval": [p.median.lower, p.median.upper],
                "confidence": p.median.confidence,
            }
            for p in g.paths
        ],
        "pairs": [_pair_json(c) for c in g.pairs],
    }


def _pair_json(c: Comparison) -> dict[str, Any]:
    return {
        "a": c.a,
        "b": c.b,
        "samples": [c.samples_a, c.samples_b],
        "shift": c.shift,
        "interval": [c.lower, c.upper],
        "confidence": c.confidence,
        "p_value": c.p_value,
        "adjusted_p_value": c.adjusted_p_value,
        "welch_p_value": c.welch_p_value,
        "effect_size": c.effect_size,
        "minimum_detectable_shift": c.minimum_detectable_shift,
        "test": c.test,
        "verdict": verdict_text(c),
    }


def as_text(evaluation: Evaluation, width: int | None = None) -> str:
    """Return an evaluation for people, in tables that fit so many columns."""
    parts = [_group_text(g, width) for g in evaluation.groups]
    parts += _derived_text(evaluation, width)
    return "\n\n".join(parts) if parts else "nothing is measured: no series of this tenant in the period"


def _group_text(g: Group, width: int | None) -> str:
    unit = g.measure.unit
    best = g.winner or ("tie" if g.enough_data else _too_little(g))
    title = f"{g.measure.name} ({g.measure.better} is better), {g.placement}, {g.probe}: {best}"
    paths = [
        (
            p.path,
            numbers.quantity(p.median.estimate, unit),
            numbers.span(p.median.lower, p.median.upper, unit),
            p.windows,
        )
        for p in g.paths
    ]
    header: tuple[str, ...] = ("path", "median", "interval", "windows")
    text = f"{title}\n{table(header, paths, indent=2, width=width)}"
    if not g.pairs:
        return text
    header = ("pair", "shift", "interval", "p (Holm)", "delta", "n", "better")
    return f"{text}\n{table(header, [_pair_row(c, unit) for c in g.pairs], indent=2, width=width)}"


def _pair_row(c: Comparison, unit: str) -> tuple[object, ...]:
    return (
        f"{c.a} - {c.b}",
        numbers.quantity(c.shift, unit),
        numbers.span(c.lower, c.upper, unit),
        numbers.probability(c.adjusted_p_value),
        f"{c.effect_size:+.2f}",
        f"{c.samples_a}+{c.samples_b}",
        verdict_text(c),
    )


def _too_little(g: Group) -> str:
    if all(p.windows >= g.minimum for p in g.paths):
        return "not enough data"
    return f"not enough data, each path needs {g.minimum} windows"


def _derived_text(evaluation: Evaluation, width: int | None) -> Iterable[str]:
    if evaluation.costs:
        rows = [
            (
                c.element,
                f"{c.path} - {c.without}",
                c.probe,
                numbers.quantity(c.estimate, "seconds"),
                numbers.span(c.lower, c.upper, "seconds"),
                numbers.count(c.rate) if c.rate else numbers.MISSING,
            )
            for c in evaluation.costs
        ]
        header = ("element", "from", "probe", "cost one way", "interval", "packets/s")
        yield f"elements\n{table(header, rows, indent=2, width=width)}"
    if evaluation.speedups:
        ratios = [
            (s.path, s.baseline, s.probe, f"{s.ratio:.3f}", f"{s.lower:.3f} to {s.upper:.3f}")
            for s in evaluation.speedups
        ]
        names = ("path", "against", "probe", "ratio", "interval")
        yield f"OpenFlow speed-up\n{table(names, ratios, indent=2, width=width)}"
    yield from map(interference_text, evaluation.interference)
    yield from map(loss_text, evaluation.losses)
