"""Evaluations as metrics; every name and label is the catalogue's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vigia_catalog import part_metrics
from vigia_compare.attribution_report import Sample, interference_samples, loss_samples
from vigia_compare.derived import Cost, Speedup
from vigia_compare.engine import Group, PathSummary
from vigia_compare.evaluation import Evaluation
from vigia_service.metrics import SelfMetrics
from vigia_statistics import Comparison, Verdict

__all__ = ["Findings", "Metrics", "verdict_text"]

PART = "compare"


def verdict_text(c: Comparison) -> str:
    """Return the better path's name, tie or not enough data."""
    return {Verdict.A: c.a, Verdict.B: c.b}.get(c.verdict, c.verdict.value)


class Findings(Collector):
    """The newest evaluation's series; none once it is withdrawn."""

    def __init__(self) -> None:
        self._declared = {m.name: m for m in part_metrics(PART)}
        self._samples: tuple[Sample, ...] = ()

    def show(self, evaluation: Evaluation | None) -> None:
        """Replace what is exposed; None exposes nothing. Raises CatalogueError for an unlisted value."""
        samples = tuple(_samples(evaluation))
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


def _samples(evaluation: Evaluation | None) -> Iterator[Sample]:
    if evaluation is None:
        return
    for group in evaluation.groups:
        yield from _group(group)
    for (placement, probe, path), floor in (evaluation.loss_floors or {}).items():
        yield "vigia_compare_minimum_detectable_loss_ratio", (placement, probe, path), floor
    for cost in evaluation.costs:
        yield from _cost(cost)
    for speedup in evaluation.speedups:
        yield from _speedup(speedup)
    for found in evaluation.interference:
        yield from interference_samples(found)
    for lossy in evaluation.losses:
        yield from loss_samples(lossy)


def _group(group: Group) -> Iterator[Sample]:
    key = (group.measure.name, group.placement, group.probe)
    for summary in group.paths:
        yield from _path(key, summary, group.measure.unit)
    for c in group.pairs:
        yield from _pair((*key, c.a, c.b), c, group.measure.unit)
    if not group.pairs:
        return
    yield "vigia_compare_enough_data", key, float(group.enough_data)
    best = group.winner
    if best is not None:
        yield "vigia_compare_winner", (*key, best, "false"), 1.0
    elif group.enough_data:
        yield "vigia_compare_winner", (*key, "", "true"), 1.0


def _path(key: tuple[str, ...], summary: PathSummary, unit: str) -> Iterator[Sample]:
    labels = (*key, summary.path)
    yield f"vigia_compare_median_{unit}", labels, summary.median.estimate
    yield f"vigia_compare_median_ci_lower_{unit}", labels, summary.median.lower
    yield f"vigia_compare_median_ci_upper_{unit}", labels, summary.median.upper


def _pair(labels: tuple[str, ...], c: Comparison, unit: str) -> Iterator[Sample]:
    yield f"vigia_compare_shift_{unit}", labels, c.shift
    yield f"vigia_compare_ci_lower_{unit}", labels, c.lower
    yield f"vigia_compare_ci_upper_{unit}", labels, c.upper
    yield f"vigia_compare_minimum_detectable_shift_{unit}", labels, c.minimum_detectable_shift
    yield "vigia_compare_p_value", labels, c.adjusted_p_value
    yield "vigia_compare_unadjusted_p_value", labels, c.p_value
    yield "vigia_compare_welch_p_value", labels, c.welch_p_value
    yield "vigia_compare_effect_size", labels, c.effect_size
    yield "vigia_compare_samples", labels, float(min(c.samples_a, c.samples_b))
    yield "vigia_compare_verdict", (*labels, verdict_text(c)), 1.0


def _cost(cost: Cost) -> Iterator[Sample]:
    labels = (cost.element, cost.path, cost.without, cost.placement, cost.probe)
    yield "vigia_compare_element_cost_seconds", labels, cost.estimate
    yield "vigia_compare_element_cost_ci_lower_seconds", labels, cost.lower
    yield "vigia_compare_element_cost_ci_upper_seconds", labels, cost.upper
    if cost.rate is not None:
        yield "vigia_compare_element_rate_packets_per_second", labels, cost.rate


def _speedup(s: Speedup) -> Iterator[Sample]:
    labels = (s.path, s.baseline, s.placement, s.probe)
    yield "vigia_compare_speedup_ratio", labels, s.ratio
    yield "vigia_compare_speedup_ci_lower_ratio", labels, s.lower
    yield "vigia_compare_speedup_ci_upper_ratio", labels, s.upper


class Metrics:
    """Every metric of the program, in its own registry."""

    def __init__(self) -> None:
        own = SelfMetrics(PART, "vigia-compare", "vigia_compare")
        self.registry, self.reloaded, make = own.registry, own.reloaded, own.make
        self.prometheus_up = make.gauge("vigia_compare_prometheus_up")
        self.evaluations = make.counter("vigia_compare_evaluations_total")
        self.duration = make.gauge("vigia_compare_evaluation_duration_seconds")
        self.last = make.gauge("vigia_compare_last_evaluation_timestamp_seconds")
        self.window = make.gauge("vigia_compare_window_seconds")
        self.leader = make.gauge("vigia_compare_leader")
        for result in ("ok", "error"):
            self.evaluations.labels(result)
        self.findings = Findings()
        self.registry.register(self.findings)
