"""Evaluations for people and programs: tables and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vigia_compare.engine import Group
from vigia_compare.evaluation import Evaluation
from vigia_compare.exposition import verdict_text
from vigia_compare.interference import INSUFFICIENT, OWN, Interference
from vigia_statistics import Comparison

__all__ = ["as_json", "as_text", "quantity"]

_UNITS: Mapping[str, Callable[[float], str]] = {
    "seconds": lambda v: f"{v * 1e6:,.1f} us",
    "ratio": lambda v: f"{v:.3%}",
    "bytes_per_second": lambda v: f"{v * 8 / 1e6:,.1f} Mbit/s",
}


def quantity(value: float, unit: str) -> str:
    """Return a value with the unit that people read it in."""
    return _UNITS[unit](value)


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as data, in base units."""
    return {
        "version": 1,
        "at": evaluation.at,
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
        "interference": [
            {
                "node": i.node,
                "tenant": i.tenant,
                "measure": i.measure,
                "bad_windows": i.bad_windows,
                "verdict": i.verdict()[0],
                "offender": i.verdict()[1] or None,
                "own": {"share": i.own.share, "p_value": i.own.p_value} if i.own else None,
                "candidates": [
                    {"tenant": c.name, "share": c.share, "p_value": c.p_value} for c in i.offenders
                ],
            }
            for i in evaluation.interference
        ],
        "losses": [
            {
                "src": p.src,
                "dst": p.dst,
                "path": p.path,
                "tenant": p.tenant,
                "lost": p.lost,
                "lossy_windows": p.lossy_windows,
                "verdict": p.verdict,
                "counters": [vars(c) for c in p.counters[:5]],
            }
            for p in evaluation.losses
        ],
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


def as_text(evaluation: Evaluation) -> str:
    """Return an evaluation for people."""
    parts = [_group_text(g) for g in evaluation.groups]
    parts += _derived_text(evaluation)
    return "\n\n".join(parts) if parts else "nothing is measured: no series of this tenant in the period"


def _group_text(g: Group) -> str:
    unit = g.measure.unit
    best = g.winner or ("tie" if g.enough_data else _too_little(g))
    title = f"{g.measure.name} ({g.measure.better} is better), {g.placement}, {g.probe}: {best}"
    paths = [
        (p.path, quantity(p.median.estimate, unit), _span(p.median.lower, p.median.upper, unit), p.windows)
        for p in g.paths
    ]
    text = f"{title}\n{_table(('path', 'median', 'interval', 'windows'), paths)}"
    if not g.pairs:
        return text
    pairs = [
        (
            f"{c.a} - {c.b}",
            quantity(c.shift, unit),
            _span(c.lower, c.upper, unit),
            f"{c.adjusted_p_value:.2g}",
            f"{c.effect_size:+.2f}",
            f"{c.samples_a}+{c.samples_b}",
            verdict_text(c),
        )
        for c in g.pairs
    ]
    header = ("pair", "shift", "interval", "p (Holm)", "delta", "n", "better")
    return f"{text}\n{_table(header, pairs)}"


def _too_little(g: Group) -> str:
    if all(p.windows >= g.minimum for p in g.paths):
        return "not enough data"
    return f"not enough data, each path needs {g.minimum} windows"


def _derived_text(evaluation: Evaluation) -> Iterable[str]:
    if evaluation.costs:
        rows = [
            (
                c.element,
                f"{c.path} - {c.without}",
                c.probe,
                quantity(c.estimate, "seconds"),
                _span(c.lower, c.upper, "seconds"),
                f"{c.rate / 1e3:,.1f}" if c.rate else "-",
            )
            for c in evaluation.costs
        ]
        header = ("element", "from", "probe", "cost one way", "interval", "packets/ms")
        yield f"elements\n{_table(header, rows)}"
    if evaluation.speedups:
        ratios = [
            (s.path, s.baseline, s.probe, f"{s.ratio:.3f}", f"{s.lower:.3f} to {s.upper:.3f}")
            for s in evaluation.speedups
        ]
        yield f"OpenFlow speed-up\n{_table(('path', 'against', 'probe', 'ratio', 'interval'), ratios)}"
    for i in evaluation.interference:
        yield f"{i.tenant} on {i.node}: {i.bad_windows} bad windows ({i.measure}); {_who(i)}"
    for p in evaluation.losses:
        best = f": {p.counters[0].name} {p.counters[0].detail}" if p.counters else ""
        yield (
            f"{p.path} {p.src} to {p.dst} ({p.tenant}): {p.lost:.0f} probes lost in "
            f"{p.lossy_windows} windows; {p.verdict}{best}"
        )


def _who(i: Interference) -> str:
    verdict, _ = i.verdict()
    best = i.own if verdict == OWN else i.offender()
    if best is None:
        return f"{INSUFFICIENT} who"
    name = "its own traffic" if verdict == OWN else best.name
    return f"{name} explains {best.share:.0%} of it (p {best.p_value:.2g})"


def _span(lower: float, upper: float, unit: str) -> str:
    low, high = quantity(lower, unit), quantity(upper, unit)
    return f"{low.split(' ')[0]} to {high}" if " " in low else f"{low} to {high}"


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [list(map(str, header)), *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    )
