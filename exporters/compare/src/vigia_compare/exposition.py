"""Evaluations as metrics; every name and label is the catalogue's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from vigia_catalog import MAIN_PAGE, VERDICT_PAGE, part_metrics
from vigia_compare.attribution_report import Sample, interference_samples, loss_samples
from vigia_compare.derived import Cost, Speedup
from vigia_compare.evaluation import Evaluation, PathSummary
from vigia_compare.findings import NO_COMMON_HOSTS, OPEN, Finding, noted
from vigia_compare.levels import Level
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_compare.standings import Standing
from vigia_service.metrics import SelfMetrics
from vigia_statistics.sequential import Scale

__all__ = ["Findings", "Metrics"]

PART = "compare"


class Findings(Collector):
    """The newest evaluation's series of one page; none once it is withdrawn."""

    def __init__(self, page: str, samples: Callable[[Evaluation], Iterable[Sample]]) -> None:
        """``page`` is one of the catalogue's, ``samples`` makes what is on it."""
        self._declared = {m.name: m for m in part_metrics(PART) if page in m.pages}
        self._made = samples
        self._samples: tuple[Sample, ...] = ()

    def show(self, evaluation: Evaluation | None) -> None:
        """Replace what is exposed; None exposes nothing.

        Raises CatalogueError for an unlisted value, KeyError for a metric of another page.
        """
        samples = tuple(self._made(evaluation)) if evaluation is not None else ()
        for name, labels, _ in samples:
            self._declared[name].check(labels)
        self._samples = samples

    def describe(self) -> Iterable[Metric]:
        """Keep the registry from collecting at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the newest evaluation."""
        families: dict[str, GaugeMetricFamily] = {}
        for name, labels, value in self._samples:
            if name not in families:
                declared = self._declared[name]
                families[name] = GaugeMetricFamily(name, declared.help, labels=declared.labels)
            families[name].add_metric(labels, value)
        yield from families.values()


def _verdicts(evaluation: Evaluation) -> Iterator[Sample]:
    for standing in evaluation.standings:
        yield from _standing(standing)
    for summary in evaluation.paths:
        yield from _path(summary)
    for finding in evaluation.findings:
        # A pair is a series once: what is told as a ratio as well is the speed-up below.
        if finding.kind is Kind.CONTEST or finding.scale is Scale.DIFFERENCE or not _told_twice(finding):
            yield from _pair(finding)
    for (cell, path), floor in evaluation.loss_floors.items():
        labels = (cell.placement, cell.machines, cell.probe, path)
        yield "vigia_compare_minimum_detectable_loss_ratio", labels, floor
    for level in evaluation.levels:
        yield from _level(level)
    yield from _figures(evaluation)


def _harm(evaluation: Evaluation) -> Iterator[Sample]:
    for found in evaluation.interference:
        yield from interference_samples(found)
    for lossy in evaluation.losses:
        yield from loss_samples(lossy)


def _figures(evaluation: Evaluation) -> Iterator[Sample]:
    for cost in evaluation.costs:
        yield from _cost(cost)
    for speedup in evaluation.speedups:
        yield from _speedup(speedup)


def _key(cell: Cell) -> tuple[str, ...]:
    return (cell.metric, cell.placement, cell.machines, cell.probe)


def _standing(standing: Standing) -> Iterator[Sample]:
    key = _key(standing.cell)
    yield "vigia_compare_decided", key, float(standing.decided)
    yield "vigia_compare_progress_ratio", key, standing.progress
    for path, rank in zip(standing.paths, standing.ranks, strict=True):
        yield "vigia_compare_rank", (*key, path), float(rank)
    if standing.winner:
        yield "vigia_compare_winner", (*key, standing.winner, "false", standing.note), 1.0
    for path in standing.level:
        yield "vigia_compare_winner", (*key, path, "true", standing.note), 1.0


def _path(summary: PathSummary) -> Iterator[Sample]:
    labels, unit = (*_key(summary.cell), summary.path), MEASURES[summary.cell.metric].unit
    yield f"vigia_compare_median_{unit}", labels, summary.median.estimate
    yield f"vigia_compare_median_ci_lower_{unit}", labels, summary.median.lower
    yield f"vigia_compare_median_ci_upper_{unit}", labels, summary.median.upper
    yield "vigia_compare_windows", labels, float(summary.windows)


def _told_twice(f: Finding) -> bool:
    return f.kind is Kind.ELEMENT and f.measure.unit == "seconds"


def _pair(f: Finding) -> Iterator[Sample]:
    labels = (*_key(f.cell), f.a, f.b)
    note = "" if f.verdict == NO_COMMON_HOSTS else noted(f.notes)
    yield "vigia_compare_verdict", (*labels, f.kind.value, f.verdict, note), 1.0
    if f.verdict == NO_COMMON_HOSTS:
        return
    yield "vigia_compare_e_value", labels, f.e_value
    yield "vigia_compare_equivalence_e_value", labels, f.e_equivalent
    yield "vigia_compare_p_value", labels, min(1.0, 1.0 / f.e_value) if f.e_value > 0.0 else 1.0
    yield "vigia_compare_samples", labels, float(f.windows)
    yield "vigia_compare_hosts", labels, float(f.hosts)
    yield "vigia_compare_evidence_since_timestamp_seconds", labels, f.began
    if f.verdict != OPEN:
        yield "vigia_compare_verdict_since_timestamp_seconds", labels, f.since
    ends = ("ci_lower_", "", "ci_upper_")
    for part, value in zip(ends, f.ratio or (), strict=False):
        if math.isfinite(value):
            yield f"vigia_compare_effect_{part}ratio", labels, value
    for part, value in zip(("ci_lower", "shift", "ci_upper"), f.shift, strict=True):
        if math.isfinite(value):
            yield f"vigia_compare_{part}_{f.measure.unit}", labels, value


def _level(level: Level) -> Iterator[Sample]:
    direction = "worse" if level.change.worse else "better"
    labels = (*_key(level.cell), level.path, *level.hosts, direction)
    yield "vigia_compare_level_change_timestamp_seconds", labels, level.change.since
    yield "vigia_compare_level_change_ratio", labels, level.change.estimate


def _cost(cost: Cost) -> Iterator[Sample]:
    labels = (cost.element, cost.path, cost.without, cost.cell.placement, cost.cell.probe)
    values = {"": cost.estimate, "ci_lower_": cost.lower, "ci_upper_": cost.upper}
    for part, value in values.items():
        if math.isfinite(value):
            yield f"vigia_compare_element_cost_{part}seconds", labels, value
    if cost.rate is not None:
        yield "vigia_compare_element_rate_packets_per_second", labels, cost.rate


def _speedup(s: Speedup) -> Iterator[Sample]:
    labels = (s.path, s.baseline, s.cell.placement, s.cell.probe)
    for part, value in {"": s.ratio, "ci_lower_": s.lower, "ci_upper_": s.upper}.items():
        if math.isfinite(value):
            yield f"vigia_compare_speedup_{part}ratio", labels, value


class Metrics:
    """Every metric of the program, in a registry for each of its two pages.

    Who hurts whom, and the program's own, are news within seconds; verdicts and their evidence, most of the
    series by far, take minutes to become others.
    """

    def __init__(self) -> None:
        own = SelfMetrics(PART, "vigia-compare", "vigia_compare")
        self.registry, self.reloaded, make = own.registry, own.reloaded, own.make
        self.prometheus_up = make.gauge("vigia_compare_prometheus_up")
        self.evaluations = make.counter("vigia_compare_evaluations_total")
        self.duration = make.gauge("vigia_compare_evaluation_duration_seconds")
        self.last = make.gauge("vigia_compare_last_evaluation_timestamp_seconds")
        self.unsaved = make.gauge("vigia_compare_state_unsaved_seconds")
        self.window = make.gauge("vigia_compare_window_seconds")
        self.needed = make.gauge("vigia_compare_e_value_needed")
        self.leader = make.gauge("vigia_compare_leader")
        for result in ("ok", "error"):
            self.evaluations.labels(result)
        self.verdicts = CollectorRegistry()
        self._harm = Findings(MAIN_PAGE, _harm)
        self._verdicts = Findings(VERDICT_PAGE, _verdicts)
        self.registry.register(self._harm)
        self.verdicts.register(self._verdicts)

    def show(self, evaluation: Evaluation | None) -> None:
        """Replace what is exposed of an evaluation; None exposes nothing. Raises CatalogueError."""
        self._verdicts.show(evaluation)
        self._harm.show(evaluation)
