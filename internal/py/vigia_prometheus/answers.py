"""The data in answers, as https://prometheus.io/docs/prometheus/latest/querying/api/ defines them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = [
    "Alert",
    "Bucket",
    "Histogram",
    "Labels",
    "Sample",
    "Series",
    "alerts",
    "label_sets",
    "matrix",
    "strings",
    "vector",
]

Labels = Mapping[str, str]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|Inf|NaN)")


@dataclass(frozen=True)
class Bucket:
    """A bucket of a native histogram: how many observations lie between two bounds."""

    lower: float
    upper: float
    count: float
    lower_closed: bool
    upper_closed: bool


@dataclass(frozen=True)
class Histogram:
    """A native histogram, buckets by ascending bounds."""

    count: float
    sum: float
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True)
class Sample:
    """One series of an instant query."""

    labels: Labels
    at: float
    """Unix time in seconds."""
    value: float
    """NaN if the sample is a native histogram."""
    histogram: Histogram | None = None


@dataclass(frozen=True)
class Series:
    """One series of a range query: Unix times in seconds, ascending, and values."""

    labels: Labels
    points: Sequence[tuple[float, float]]
    histograms: Sequence[tuple[float, Histogram]] = ()


@dataclass(frozen=True)
class Alert:
    """An alert that is pending or fires, as rules of the server have it now."""

    labels: Labels
    annotations: Labels
    firing: bool
    since: float
    """Unix time since which its expression holds."""


def vector(data: Any) -> list[Sample]:
    """Return the samples of an instant query; a scalar is one without labels. Raises ValueError."""
    kind, result = _result(data)
    if kind == "scalar":
        at, value = _point(result)
        return [Sample({}, at, value)]
    if kind != "vector":
        raise ValueError(f"resultType is {_shown(kind)}, not vector")
    return [_sample(r) for r in _sequence(result, "result")]


def matrix(data: Any) -> list[Series]:
    """Return the series of a range query. Raises ValueError."""
    kind, result = _result(data)
    if kind != "matrix":
        raise ValueError(f"resultType is {_shown(kind)}, not matrix")
    return [_series(r) for r in _sequence(result, "result")]


def alerts(data: Any) -> list[Alert]:
    """Return the alerts that are active. Raises ValueError."""
    found = _mapping(data, "data")
    return [_alert(entry) for entry in _sequence(found.get("alerts"), "alerts")]


def _alert(raw: Any) -> Alert:
    entry = _mapping(raw, "alerts")
    state = _text(entry.get("state"), "state")
    since = re.sub(r"\.([0-9]{6})[0-9]*", r".\1", _text(entry.get("activeAt"), "activeAt"))
    at = datetime.fromisoformat(since)
    if at.tzinfo is None:
        raise ValueError("activeAt has no zone")
    annotations = _labels(entry.get("annotations", {}))
    return Alert(_labels(entry.get("labels")), annotations, state == "firing", at.timestamp())


def label_sets(data: Any) -> list[Labels]:
    """Return the label sets of a series query. Raises ValueError."""
    return [_labels(entry) for entry in _sequence(data, "data")]


def strings(data: Any) -> list[str]:
    """Return a list of strings, such as the values of a label. Raises ValueError."""
    return [_text(entry, "data") for entry in _sequence(data, "data")]


def _result(data: Any) -> tuple[str, Any]:
    found = _mapping(data, "data")
    return _text(found.get("resultType"), "resultType"), found.get("result")


def _sample(raw: Any) -> Sample:
    entry = _mapping(raw, "result")
    labels = _labels(entry.get("metric"))
    if "histogram" in entry:
        at, histogram = _histogram_point(entry["histogram"])
        return Sample(labels, at, math.nan, histogram)
    at, value = _point(entry.get("value"))
    return Sample(labels, at, value)


def _series(raw: Any) -> Series:
    entry = _mapping(raw, "result")
    labels = _labels(entry.get("metric"))
    if "values" not in entry and "histograms" not in entry:
        raise ValueError("a series has neither values nor histograms")
    points = [_point(p) for p in _sequence(entry.get("values", []), "values")]
    histograms = tuple(_histogram_point(p) for p in _sequence(entry.get("histograms", []), "histograms"))
    return Series(labels, points, histograms)


def _pair(raw: Any) -> tuple[float, Any]:
    pair = _sequence(raw, "value")
    if len(pair) != 2:
        raise ValueError("a value is no pair of time and number")
    return _time(pair[0]), pair[1]


def _point(raw: Any) -> tuple[float, float]:
    at, value = _pair(raw)
    return at, _number(value)


def _histogram_point(raw: Any) -> tuple[float, Histogram]:
    at, found = _pair(raw)
    entry = _mapping(found, "histogram")
    buckets = tuple(_bucket(b) for b in _sequence(entry.get("buckets", []), "buckets"))
    return at, Histogram(_number(entry.get("count")), _number(entry.get("sum")), buckets)


def _bucket(raw: Any) -> Bucket:
    bucket = _sequence(raw, "buckets")
    if len(bucket) != 4 or bucket[0] not in (0, 1, 2, 3) or isinstance(bucket[0], bool | float):
        raise ValueError("a bucket is not rule, bound, bound, count")
    rule, lower, upper, count = bucket
    # 0: open left, closed right; 1: closed left, open right; 2: open both; 3: closed both.
    return Bucket(_number(lower), _number(upper), _number(count), rule in (1, 3), rule in (0, 3))


def _labels(raw: Any) -> Labels:
    found = _mapping(raw, "metric")
    for key, value in found.items():
        if not isinstance(value, str):
            raise ValueError(f"label {_shown(key)} is {_shown(value)}, not a string")
    return found


def _time(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise ValueError(f"{_shown(raw)} is no time")
    return float(raw)


def _number(raw: Any) -> float:
    if not isinstance(raw, str) or not raw.isascii() or not _NUMBER.fullmatch(raw):
        raise ValueError(f"{_shown(raw)} is no number in a string")
    return float(raw)


def _text(raw: Any, what: str) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{what} is {_shown(raw)}, not a string")
    return raw


def _mapping(raw: Any, what: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is {_shown(raw)}, not an object")
    return raw


def _sequence(raw: Any, what: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ValueError(f"{what} is {_shown(raw)}, not an array")
    return raw


def _shown(raw: Any) -> str:
    return repr(raw)[:60] if isinstance(raw, str | int | float | None) else f"a {type(raw).__name__}"
