"""Comparing paths: what Prometheus has, turned into verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vigia_compare.measures import SENT, Measure
from vigia_compare.source import Source
from vigia_compare.units import block_size, independent, merged, runs
from vigia_compare.windows import Grid, Windowed
from vigia_statistics import (
    Comparison,
    Direction,
    Interval,
    Verdict,
    compare,
    judge,
    median_interval,
    minimum_detectable_loss,
    winner,
    with_differences,
)
from vigia_statistics.samples import Floats

__all__ = [
    "Group",
    "PathAttributes",
    "PathSummary",
    "attributes",
    "compare_group",
    "compare_measure",
    "loss_floors",
]

Twin = tuple[str, str, str]
"""Probe class, path, and the underlay that its twin probes take."""

_NO_TWINS: Mapping[Twin, Floats] = {}

INFO = "group by (path, placement, dataplane, encap, mode, security, layer) (vigia_path_info)"

MAX_PATHS = 32
"""Paths of one group: 496 pairs."""


@dataclass(frozen=True)
class PathAttributes:
    """What vigia_path_info says of a path."""

    placement: str = "unknown"
    dataplane: str = ""
    encap: str = ""
    mode: str = ""
    security: str = ""
    layer: str = ""


@dataclass(frozen=True)
class PathSummary:
    """One path's metric over the period."""

    path: str
    windows: int
    median: Interval
    values: Floats
    """One per window that has a value, oldest first."""


@dataclass(frozen=True)
class Group:
    """Paths of one placement and probe class, compared on one metric."""

    measure: Measure
    placement: str
    probe: str
    paths: Sequence[PathSummary]
    pairs: Sequence[Comparison]
    minimum: int = 0
    """Windows that each path must have."""

    @property
    def enough_data(self) -> bool:
        """Whether every pair could have separated."""
        return bool(self.pairs) and all(c.verdict is not Verdict.NOT_ENOUGH_DATA for c in self.pairs)

    @property
    def winner(self) -> str | None:
        """The path that beats every other one; None for a tie."""
        return winner([p.path for p in self.paths], self.pairs)


def attributes(source: Source, grid: Grid) -> dict[str, PathAttributes]:
    """Return the attributes of every path, those that it had last. Raises PrometheusError."""
    names = PathAttributes.__dataclass_fields__
    newest: dict[str, int] = {}
    found = {}
    for s in source.windows(INFO, grid):
        path, known = s.labels.get("path", ""), np.flatnonzero(np.isfinite(s.values))
        if path and known.size and known[-1] >= newest.get(path, 0):
            newest[path] = int(known[-1])
            found[path] = PathAttributes(**{n: s.labels.get(n) or "unknown" for n in names})
    return found


def compare_measure(  # noqa: PLR0913
    source: Source,
    measure: Measure,
    tenant: str,
    grid: Grid,
    known: Mapping[str, PathAttributes],
    minimum: int,
    confidence: float,
) -> list[Group]:
    """Compare every two paths of every placement and probe class. Raises PrometheusError.

    Holm's family are all pairs of the metric.
    """
    series = read(source, measure.expression, tenant, grid)
    groups: dict[tuple[str, str], dict[str, Floats]] = {}
    for s in series:
        path, probe = s.labels.get("path", ""), s.labels.get("probe", "")
        values = s.values[np.isfinite(s.values)]
        if path and values.size:
            placement = known.get(path, PathAttributes()).placement
            groups.setdefault((placement, probe), {})[path] = runs(values) if measure.runs else values
    twins = _twins(source, measure.twins, tenant, grid, known) if measure.twins else {}
    return compare_groups(measure, groups, minimum, confidence, twins)


def compare_groups(
    measure: Measure,
    groups: Mapping[tuple[str, str], Mapping[str, Floats]],
    minimum: int,
    confidence: float,
    twins: Mapping[Twin, Floats] = _NO_TWINS,
) -> list[Group]:
    """Compare the values of paths by (placement, probe class); see compare_measure."""
    open_pairs = {
        key: [_paired(c, key[1], twins, confidence) for c in compare_group(measure, samples, confidence)]
        for key, samples in groups.items()
    }
    family = [c for pairs in open_pairs.values() for c in pairs]
    judged = iter(judge(family, Direction(measure.better), alpha=1.0 - confidence, minimum_samples=minimum))
    out = []
    for (placement, probe), samples in groups.items():
        pairs = [next(judged) for _ in open_pairs[(placement, probe)]]
        summaries = [
            PathSummary(path, values.size, median_interval(values, confidence), values)
            for path, values in sorted(samples.items())
        ]
        out.append(Group(measure, placement, probe, summaries, pairs, minimum))
    return sorted(out, key=lambda g: (g.placement, g.probe))


def compare_group(measure: Measure, samples: Mapping[str, Floats], confidence: float) -> list[Comparison]:
    """Return every pair of paths with two values each or more, verdicts still open."""
    pairs = []
    for a, b in combinations(sorted(samples)[:MAX_PATHS], 2):
        x, y = independent(samples[a], samples[b], measure.rare)
        if min(x.size, y.size) >= 2:
            pairs.append(compare(a, b, x, y, confidence=confidence))
    return pairs


def _twins(
    source: Source,
    expression: str,
    tenant: str,
    grid: Grid,
    known: Mapping[str, PathAttributes],
) -> dict[Twin, Floats]:
    """Return the differences of probes and their twins where it is plain what the twins' path is.

    It is the underlay of the same placement; with two of them nobody knows which.
    """
    underlays: dict[str, list[str]] = {}
    for path, a in known.items():
        if a.layer == "underlay":
            underlays.setdefault(a.placement, []).append(path)
    found = {}
    for s in read(source, expression, tenant, grid):
        path, probe = s.labels.get("path", ""), s.labels.get("probe", "")
        under = underlays.get(known.get(path, PathAttributes()).placement, [])
        values = s.values[np.isfinite(s.values)]
        if len(under) == 1 and path != under[0] and values.size >= 2:
            found[(probe, path, under[0])] = values
    return found


def _paired(c: Comparison, probe: str, twins: Mapping[Twin, Floats], confidence: float) -> Comparison:
    """Let twin probes decide where a pair has them: what both meet at one moment cancels out."""
    for sign, twin in ((1.0, (probe, c.a, c.b)), (-1.0, (probe, c.b, c.a))):
        if twin in twins:
            differences = sign * twins[twin]
            size = max(1, min(block_size(differences), differences.size // 2))
            return with_differences(c, merged(differences, size), confidence)
    return c


def read(source: Source, expression: str, tenant: str, grid: Grid) -> list[Windowed]:
    """Return a metric's series of a tenant. Raises PrometheusError."""
    return source.windows(expression.replace("TENANT", tenant), grid)


def loss_floors(
    source: Source, tenant: str, grid: Grid, known: Mapping[str, PathAttributes]
) -> dict[tuple[str, str, str], float]:
    """Return the minimum detectable loss by (placement, probe, path). Raises PrometheusError."""
    out = {}
    for s in read(source, SENT, tenant, grid):
        path, probe = s.labels.get("path", ""), s.labels.get("probe", "")
        sent = float(np.nansum(s.values)) * grid.window
        if path and sent > 0:
            placement = known.get(path, PathAttributes()).placement
            out[(placement, probe, path)] = minimum_detectable_loss(sent)
    return out
