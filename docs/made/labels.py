"""The page docs/reference/labels.md: every label of every metric, and what it can be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from vigia_catalog import Metric, load, open_labels

__all__ = ["markdown"]

_INTRODUCTION = """\
# Labels

Made by `make generate` from `internal/catalog/metrics`. The values of an *open* label come from outside: from the configuration, the
cloud, the kernel. Those of a *closed* one are all known, and differ between metrics: [the list of metrics](metrics.md) has them after
each label. A program refuses to export another value, and tests refuse a rule, a panel or a document that asks for one.

To join two metrics, use the labels that both have: a port is known by `node`, `port` and `tenant`, a path by `path`, `src` and `dst`.

| label | what it is, or its values | metrics with it |
| --- | --- | --- |
"""

_MOST = 12
"""Values of a closed label that are shown."""


def markdown(metrics: Mapping[str, Metric] | None = None) -> str:
    """Return the page."""
    carriers: dict[str, list[Metric]] = defaultdict(list)
    for metric in (load() if metrics is None else metrics).values():
        for label in metric.labels:
            carriers[label].append(metric)
    return _INTRODUCTION + "".join(_row(label, carriers[label]) for label in sorted(carriers))


def _row(label: str, metrics: list[Metric]) -> str:
    values = sorted({value for m in metrics for value in m.values.get(label, ())})
    said = [meaning] if (meaning := open_labels().get(label)) else []
    if values:
        shown = ", ".join(f"`{v}`" for v in values[:_MOST] if v)
        said.append(shown + (f" and {len(values) - _MOST} more" if len(values) > _MOST else ""))
    return f"| `{label}` | {'; '.join(said)} | {_families(metrics)} |\n"


def _families(metrics: list[Metric]) -> str:
    """Return the names of a few metrics; of many the parts that have them, and how many."""
    if len(metrics) <= 3:
        return ", ".join(f"`{m.name}`" for m in sorted(metrics, key=lambda m: m.name))
    parts = sorted({m.part for m in metrics})
    return f"{len(metrics)}: {', '.join(parts)}"
