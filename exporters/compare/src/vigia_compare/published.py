"""What the service said at a moment, from its own series: the command line says the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from vigia_compare import derived, interference, losses
from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation, PathSummary
from vigia_compare.findings import (
    ELSEWHERE,
    NO_COMMON_HOSTS,
    NOTES,
    OPEN,
    Finding,
    apart,
    by_twins,
    joined,
    leading,
)
from vigia_compare.levels import Level
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Kind, Known, attributes
from vigia_compare.readings import Cell, Hosts
from vigia_compare.source import Source
from vigia_compare.standings import standings
from vigia_compare.windows import Grid
from vigia_statistics import Interval
from vigia_statistics.sequential import QUESTIONS, Change, Scale

__all__ = ["published"]

_CELL = ("metric", "placement", "machines", "probe")
_PAIR = (*_CELL, "a", "b")
_HOSTS = 'group by (src, dst, path) (path:vigia_probe_sent:rate1m{tenant="TENANT"})'

Values = Mapping[tuple[str, ...], float]


def published(source: Source, config: Config, at: float) -> Evaluation | None:
    """Return what was said at a moment, Unix time; None if nothing was. Raises PrometheusError.

    Who hurt whom, and where losses went, keeps nothing over time: that is computed again.
    """
    verdicts = source.instant("vigia_compare_verdict", at)
    if not verdicts:
        return None
    asked = set(config.metrics)
    known = attributes(source, Grid(at, config.window, 1))
    series = {name: _by(source, name, at, _PAIR) for name in _NAMES}
    by_unit = {u: {p: _by(source, f"vigia_compare_{p}_{u}", at, _PAIR) for p in _SHIFTS} for u in _UNITS}
    needed = max((s.value for s in source.instant("vigia_compare_e_value_needed", at)), default=math.nan)
    hosts = _hosts(source, config.tenant, at)
    found = []
    for s in verdicts:
        key = tuple(s.labels.get(n, "") for n in _PAIR)
        if key[0] not in asked:
            continue
        cell, a, b = Cell(*key[:4]), key[4], key[5]
        kind, verdict = Kind(s.labels.get("kind", "contest")), s.labels.get("verdict", OPEN)
        notes = tuple(n for n in NOTES if n in s.labels.get("note", ""))
        one = Finding(cell, a, b, kind, verdict, words=_words(known, s.labels, hosts), notes=notes)
        if verdict != NO_COMMON_HOSTS:
            shifts = by_unit[MEASURES[cell.metric].unit]
            one = _filled(
                replace(one, needed=needed), key, series, {p: v[key] for p, v in shifts.items() if key in v}
            )
        found.append(one)
    found.sort(key=lambda f: (f.cell, f.kind, f.a, f.b))
    short = Grid.before(source.last_recorded(at), config.attribution_window, config.attribution_period)
    return Evaluation(
        at=at,
        findings=found,
        standings=standings(found),
        paths=[p for u in _UNITS for p in _paths(source, u, at, config.confidence) if p.cell.metric in asked],
        levels=[x for x in _levels(source, at) if x.cell.metric in asked],
        costs=derived.costs(found, known),
        speedups=_speedups(source, at),
        interference=interference.find(source, short, at),
        losses=losses.find(source, short, known),
        end=at,
    )


_NAMES = (
    "vigia_compare_e_value",
    "vigia_compare_equivalence_e_value",
    "vigia_compare_samples",
    "vigia_compare_hosts",
    "vigia_compare_evidence_since_timestamp_seconds",
    "vigia_compare_verdict_since_timestamp_seconds",
    "vigia_compare_effect_ratio",
    "vigia_compare_effect_ci_lower_ratio",
    "vigia_compare_effect_ci_upper_ratio",
)
_SHIFTS = ("ci_lower", "shift", "ci_upper")
_UNITS = ("seconds", "ratio", "bytes_per_second")


def _by(source: Source, name: str, at: float, labels: tuple[str, ...]) -> Values:
    return {tuple(s.labels.get(n, "") for n in labels): s.value for s in source.instant(name, at)}


def _filled(
    one: Finding, key: tuple[str, ...], series: Mapping[str, Values], shift: Mapping[str, float]
) -> Finding:
    def of(name: str, missing: float = 0.0) -> float:
        return series[f"vigia_compare_{name}"].get(key, missing)

    ratio = (of("effect_ci_lower_ratio"), of("effect_ratio", math.nan), of("effect_ci_upper_ratio", math.inf))
    scale = QUESTIONS[one.cell.metric].scale if math.isfinite(ratio[1]) else Scale.DIFFERENCE
    beyond = {"ci_lower": -math.inf, "shift": math.nan, "ci_upper": math.inf}
    low, middle, high = (shift.get(p, beyond[p]) for p in _SHIFTS)
    effect = (low, middle, high)
    return replace(
        one,
        scale=scale,
        since=of("verdict_since_timestamp_seconds"),
        began=of("evidence_since_timestamp_seconds"),
        e_value=of("e_value"),
        e_equivalent=of("equivalence_e_value"),
        ratio=ratio if scale is Scale.RATIO else None,
        shift=effect,
        windows=int(of("samples")),
        hosts=int(of("hosts")),
        ahead=leading(one.a, one.b, one.cell.metric, middle),
    )


def _words(known: Known, labels: Mapping[str, str], hosts: Mapping[str, list[Hosts]]) -> str:
    a, b = labels.get("a", ""), labels.get("b", "")
    on_a, on_b = (hosts.get(p, [("?", "?")]) for p in (a, b))
    if labels.get("verdict") == NO_COMMON_HOSTS:
        return apart(a, on_a, b, on_b)
    planes = known.words(a, b, (src for src, _ in (*on_a, *on_b)))
    return joined(planes, by_twins(a, on_a, b, on_b) if ELSEWHERE in labels.get("note", "") else "")


def _hosts(source: Source, tenant: str, at: float) -> dict[str, list[Hosts]]:
    found: dict[str, list[Hosts]] = {}
    for s in source.instant(_HOSTS.replace("TENANT", tenant), at):
        found.setdefault(s.labels.get("path", ""), []).append(
            (s.labels.get("src", ""), s.labels.get("dst", ""))
        )
    return {path: sorted(pairs) for path, pairs in found.items()}


def _paths(source: Source, unit: str, at: float, confidence: float) -> list[PathSummary]:
    labels = (*_CELL, "path")
    median, lower, upper = (
        _by(source, f"vigia_compare_median_{part}{unit}", at, labels)
        for part in ("", "ci_lower_", "ci_upper_")
    )
    windows = _by(source, "vigia_compare_windows", at, labels)
    return [
        PathSummary(
            Cell(*key[:4]),
            key[4],
            int(windows.get(key, 0.0)),
            Interval(value, lower.get(key, -math.inf), upper.get(key, math.inf), confidence),
        )
        for key, value in sorted(median.items())
        if key[0] in MEASURES
    ]


def _levels(source: Source, at: float) -> list[Level]:
    labels = (*_CELL, "path", "src", "dst", "verdict")
    since = _by(source, "vigia_compare_level_change_timestamp_seconds", at, labels)
    by = _by(source, "vigia_compare_level_change_ratio", at, labels)
    return [
        Level(Cell(*k[:4]), k[4], (k[5], k[6]), Change(at, begun, k[7] == "worse", by.get(k, math.nan)))
        for k, begun in sorted(since.items())
        if k[0] in MEASURES
    ]


def _speedups(source: Source, at: float) -> list[derived.Speedup]:
    labels = ("path", "baseline", "placement", "probe")
    ratio, lower, upper = (
        _by(source, f"vigia_compare_speedup_{part}ratio", at, labels)
        for part in ("", "ci_lower_", "ci_upper_")
    )
    return [
        derived.Speedup(k[0], k[1], Cell("rtt", k[2], "", k[3]), v, lower.get(k, 0.0), upper.get(k, math.inf))
        for k, v in sorted(ratio.items())
    ]
