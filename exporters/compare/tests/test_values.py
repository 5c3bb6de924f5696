"""The values of closed labels are those of the catalogue: what the code can emit, and nothing else."""

from __future__ import annotations

import pytest
from prometheus_client.metrics_core import Metric
from valueskit import Code, differences

import vigia_compare
from vigia_catalog import CatalogueError, part_metrics
from vigia_compare.evaluation import Evaluation
from vigia_compare.exposition import Metrics
from vigia_compare.findings import ELSEWHERE, UNLIKE, noted
from vigia_compare.interference import ATTRIBUTED, INSUFFICIENT, LIKELY, OWN
from vigia_compare.losses import COUNTERS, SOCKETS, VERDICTS, Pinned
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Kind

CODE = Code(vigia_compare)
NOTES = {noted(said) for said in ((), (UNLIKE,), (ELSEWHERE,), (ELSEWHERE, UNLIKE))}


def test_closed_labels() -> None:
    metrics = {m.name: m for m in part_metrics("compare")}
    emitted: dict[str, object] = {
        "vigia_compare_winner.tie": ("true", "false"),
        "vigia_compare_winner.note": NOTES,
        "vigia_compare_verdict.kind": list(Kind),
        "vigia_compare_verdict.note": NOTES,
        "vigia_compare_interference_verdict.verdict": (ATTRIBUTED, LIKELY, OWN, INSUFFICIENT),
        "vigia_compare_interference_evidence.evidence": CODE.arguments("Clue", 0),
        "vigia_compare_loss_verdict.verdict": VERDICTS,
        "vigia_compare_evaluations_total.result": CODE.arguments("evaluations.labels", 0),
    }
    for name, metric in metrics.items():
        if "counter" in metric.labels:
            emitted[f"{name}.counter"] = [*COUNTERS, SOCKETS]
        if "metric" in metric.labels:
            # What is in the metric's own unit; all else is a share, a time or a count of any metric.
            own = name.startswith(("vigia_compare_median_", "vigia_compare_ci_", "vigia_compare_shift_"))
            units = {m.unit for m in MEASURES.values() if own and name.endswith(f"_{m.unit}")}
            emitted[f"{name}.metric"] = [m.name for m in MEASURES.values() if not units or m.unit in units]
        if name.startswith("vigia_compare_level_change_"):
            emitted[f"{name}.verdict"] = ("better", "worse")
    found = differences("compare", emitted)
    assert found == [], "\n".join(found)


def test_a_verdict_that_is_not_listed_is_refused_when_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the evaluation, not at every scrape; what was shown before stays."""
    metrics = Metrics()
    monkeypatch.setattr(Pinned, "verdict", "no counter")
    lossy = Pinned("a", "b", "p", "red", lost=9.0, lossy_windows=3, counters=())
    metrics.show(Evaluation(0.0, losses=[lossy]))
    (before,) = _losses(metrics)
    assert [s.labels["verdict"] for s in before.samples] == ["no counter"]
    monkeypatch.setattr(Pinned, "verdict", "perhaps")
    with pytest.raises(CatalogueError, match="label verdict cannot be 'perhaps'"):
        metrics.show(Evaluation(0.0, losses=[lossy]))
    assert _losses(metrics) == [before]


def _losses(metrics: Metrics) -> list[Metric]:
    return [f for f in metrics.registry.collect() if f.name == "vigia_compare_loss_verdict"]
