"""The catalogue of Vigia's metrics.

The YAML files in ``metrics/`` are the only place where a metric's name, type,
unit, labels, their values and help are written. The Go package
``internal/catalog`` embeds the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Self, cast

import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = [
    "FAST_PAGE",
    "MAIN_PAGE",
    "VERDICT_PAGE",
    "CatalogueError",
    "Factory",
    "Metric",
    "load",
    "open_labels",
    "part_metrics",
]

MetricType = Literal["counter", "gauge", "histogram"]

LABELS_FILE = "labels.yaml"
OPEN = "open"
"""In place of a list: the label is open for this metric alone."""


MAIN_PAGE = "/metrics"
"""Scraped every 15 s."""
FAST_PAGE = "/metrics/fast"
"""Scraped every second: what isolation needs as soon as that."""
VERDICT_PAGE = "/metrics/verdicts"
"""Scraped once a minute: what takes minutes to become another."""


class CatalogueError(ValueError):
    """The catalogue contradicts itself, or a label value is not in it."""


@dataclass(frozen=True)
class Metric:
    """One metric family as the catalogue declares it."""

    name: str
    type: MetricType
    unit: str
    labels: tuple[str, ...]
    help: str
    part: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """All values that each closed label can have; the other labels are open."""
    pages: tuple[str, ...] = (MAIN_PAGE,)
    """Where the program exports it."""

    @property
    def on_fast_page(self) -> bool:
        """Whether it is on the page that is scraped every second."""
        return FAST_PAGE in self.pages

    def check(self, values: Sequence[str]) -> None:
        """Raise CatalogueError for label values, in the order of the labels, that are not listed."""
        for label, value in zip(self.labels, values, strict=True):
            listed = self.values.get(label)
            if listed is not None and value not in listed:
                raise CatalogueError(
                    f"metric {self.name}: label {label} cannot be {value!r}: "
                    f"the catalogue lists {', '.join(listed)}"
                )


def _documents() -> dict[str, dict[str, Any]]:
    folder = files(__name__).joinpath("metrics")
    texts = {e.name: e.read_text(encoding="utf-8") for e in folder.iterdir() if e.name.endswith(".yaml")}
    return {name: cast(dict[str, Any], yaml.safe_load(texts[name])) for name in sorted(texts)}


def load(documents: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Metric]:
    """Return every metric by name; self metrics keep PART in their names. Raises CatalogueError.

    ``documents`` are parsed files by name; without them the catalogue's own are read.
    """
    if documents is None:
        return dict(_own())
    shared = documents[LABELS_FILE]
    out: dict[str, Metric] = {}
    for name, document in documents.items():
        if name == LABELS_FILE:
            continue
        for raw in document["metrics"]:
            fields = {**raw, "labels": tuple(raw["labels"]), "part": document["part"]}
            own = fields.pop("values", {})
            if "pages" in fields:
                fields["pages"] = tuple(fields["pages"])
            metric = Metric(**fields)
            given = {**document.get("values", {}), **own}
            out[metric.name] = replace(metric, values=_values(metric, own, given, shared))
    return out


@cache
def _own() -> Mapping[str, Metric]:
    return load(_documents())


def _values(
    metric: Metric, own: Mapping[str, Any], given: Mapping[str, Any], shared: Mapping[str, Any]
) -> Mapping[str, tuple[str, ...]]:
    """Return the values of a metric's closed labels: its own, else those of its file."""
    strange = sorted(own.keys() - set(metric.labels))
    if strange:
        raise CatalogueError(f"metric {metric.name}: values for {strange[0]}, which is none of its labels")
    out: dict[str, tuple[str, ...]] = {}
    for label in metric.labels:
        ref = given.get(label)
        if ref is None and label not in shared.get("open", {}):
            raise CatalogueError(
                f"metric {metric.name}: label {label} has no values; "
                f"list them, or declare it open in {LABELS_FILE}"
            )
        if ref is None or ref == OPEN:
            continue
        try:
            out[label] = _list(ref, shared.get("sets", {}))
        except CatalogueError as e:
            raise CatalogueError(f"metric {metric.name}: values of label {label}: {e}") from e
    return out


def _list(ref: object, sets: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what stands for a list: the name of a set, or values among which {set: NAME} is one."""
    out: list[object] = []
    for item in ref if isinstance(ref, list) else [{"set": ref}]:
        if not isinstance(item, dict):
            out.append(item)
            continue
        name = str(item.get("set"))
        if name not in sets:
            raise CatalogueError(f"no set {name} in {LABELS_FILE}")
        out += sets[name]
    wrong = [v for i, v in enumerate(out) if not isinstance(v, str) or set(v) & set('"\\\n') or v in out[:i]]
    if wrong:
        raise CatalogueError(f"bad or repeated value {wrong[0]!r}; values are strings, quote it")
    if not out:
        raise CatalogueError("the list of values is empty")
    return tuple(str(v) for v in out)


def open_labels() -> Mapping[str, str]:
    """Return what each open label is, by its name."""
    return cast(Mapping[str, str], _documents()[LABELS_FILE]["open"])


COMMANDS = {"campaign"}
"""Parts that are no services: they have no self metrics."""


def part_metrics(part: str) -> list[Metric]:
    """Return one part's metrics, self metrics under the part's own name, sorted by name."""
    chosen = [
        replace(m, name=m.name.replace("PART", part), part=part) if m.part == "self" else m
        for m in load().values()
        if m.part == part or (m.part == "self" and part not in COMMANDS)
    ]
    return sorted(chosen, key=lambda m: m.name)


class _Checked:
    """Makes a series only with label values that the catalogue lists; mixed into the library's metrics."""

    catalogued: Metric | None = None

    def labels(self, *values: object, **named: object) -> Self:
        """Return the series with these values. Raises CatalogueError for one that is not listed."""
        if self.catalogued is not None:
            given = values or tuple(named[label] for label in self.catalogued.labels if label in named)
            if len(given) == len(self.catalogued.labels):  # else the library says what is wrong
                self.catalogued.check([str(v) for v in given])
        return cast(Self, super().labels(*values, **named))  # type: ignore[misc]


class _Counter(_Checked, Counter):
    pass


class _Gauge(_Checked, Gauge):
    pass


class _Histogram(_Checked, Histogram):
    pass


class Factory:
    """Builds a part's metrics from the catalogue and registers them.

    Asking for a metric that the catalogue does not declare for the part, or
    with another type, raises LookupError; making a series with a label value
    that it does not list raises CatalogueError.
    """

    def __init__(self, part: str, registry: CollectorRegistry) -> None:
        self._metrics = {m.name: m for m in part_metrics(part)}
        self._registry = registry

    def _declared(self, name: str, kind: MetricType) -> Metric:
        metric = self._metrics.get(name)
        if metric is None or metric.type != kind:
            raise LookupError(f"the catalogue declares no {kind} {name} for this part")
        return metric

    def counter(self, name: str) -> Counter:
        """Register and return a catalogued counter."""
        m = self._declared(name, "counter")
        made = _Counter(m.name, m.help, m.labels, registry=self._registry)
        made.catalogued = m
        return made

    def gauge(self, name: str) -> Gauge:
        """Register and return a catalogued gauge."""
        m = self._declared(name, "gauge")
        made = _Gauge(m.name, m.help, m.labels, registry=self._registry)
        made.catalogued = m
        return made

    def histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        """Register and return a catalogued histogram with classic buckets."""
        m = self._declared(name, "histogram")
        made = _Histogram(m.name, m.help, m.labels, registry=self._registry, buckets=buckets)
        made.catalogued = m
        return made
