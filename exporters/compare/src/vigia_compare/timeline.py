"""What happened in an hour: alerts, floods, limits, and who hurt whom, each with a beginning and an end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vigia_compare.site import FLOOD_SCORE
from vigia_prometheus import Series
from vigia_text import numbers

__all__ = ["LENGTH", "MOST_EVENTS", "STEP", "Event", "Ranges", "Timeline", "timeline"]

LENGTH = 3600.0
"""Seconds that are shown."""

STEP = 15.0
"""Seconds between two looks: what is shorter and between two of them, is seen by its largest value."""

MOST_EVENTS = 200
"""Events that are shown, the newest."""

_TOGETHER = 3
"""Steps that two parts of one event may be apart."""

_OVER = f"[{STEP:g}s]"
_ALERTS = 'count by (alertname, severity, tenant, node, path) (ALERTS{alertstate="firing"})'
_FLOODS = f"max by (node, port, tenant) (max_over_time(vigia_port_flood_score{_OVER})) >= {FLOOD_SCORE:g}"
_LIMITS = f"min by (node, port, tenant) (min_over_time(vigia_isolation_limit_bytes_per_second{_OVER}))"
_KNOWN = "vigia_compare_interference_begin_timestamp_seconds"
_HARMS = f"max by (node, tenant, offender) ({_KNOWN})"
_ENDS = f"max by (node, tenant, offender) ({_KNOWN.replace('begin', 'end')})"

QUESTIONS: Mapping[str, str] = {
    "alert": _ALERTS,
    "flood": _FLOODS,
    "limit": _LIMITS,
    "begin": _HARMS,
    "end": _ENDS,
}


class Ranges(Protocol):
    """A server that is asked from a moment to another."""

    def __call__(self, expression: str, start: float, end: float, step: float, /) -> list[Series]:
        """Evaluate an expression at each step. Raises PrometheusError."""


@dataclass(frozen=True)
class Event:
    """Something that lasted for a while. Times are Unix times, to a step."""

    kind: str
    """alert, flood, limit or harm."""
    begin: float
    end: float
    lasts: bool
    """Whether it had not ended at the end of the timeline."""
    what: str
    """In words."""
    tenant: str
    node: str
    severity: str = ""

    @property
    def lane(self) -> tuple[str, str]:
        """What is drawn in one row: a kind of events of a tenant, or an alert."""
        return self.kind, self.what.split(":")[0] if self.kind == "alert" else self.tenant


@dataclass(frozen=True)
class Timeline:
    """The events of a period, the newest first."""

    start: float
    at: float
    events: Sequence[Event]
    more: int = 0
    """Events that are left out, older ones."""


def timeline(ask: Ranges, at: float) -> Timeline:
    """Return what happened in the hour before a moment. Raises PrometheusError."""
    end = math.floor(at / STEP) * STEP
    start = end - LENGTH
    found = {kind: ask(expression, start, end, STEP) for kind, expression in QUESTIONS.items()}
    events = [
        event
        for kind in ("alert", "flood", "limit")
        for series in found[kind]
        for event in _events(kind, series, end)
    ]
    events += _harms(found["begin"], found["end"], start, end)
    events.sort(key=lambda e: (-e.begin, e.kind, e.what))
    return Timeline(start, end, events[:MOST_EVENTS], max(0, len(events) - MOST_EVENTS))


def _events(kind: str, series: Series, last: float) -> Iterator[Event]:
    of = series.labels.get
    for points in _stretches(series.points):
        begin, end = points[0][0], points[-1][0]
        yield Event(
            kind,
            begin,
            end,
            last - end < STEP,
            _words(kind, series.labels, [v for _, v in points]),
            of("tenant", ""),
            of("node", ""),
            of("severity", ""),
        )


def _stretches(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    part: list[tuple[float, float]] = []
    for point in points:
        if part and point[0] - part[-1][0] > (_TOGETHER + 0.5) * STEP:
            yield part
            part = []
        part.append(point)
    if part:
        yield part


def _words(kind: str, labels: Mapping[str, str], values: Sequence[float]) -> str:
    of = labels.get
    where = f"port {of('port', '?')} on {of('node', '?')}"
    if kind == "flood":
        return f"{of('tenant', '?')} floods from {where}, score {max(values):.0f} of 100"
    if kind == "limit":
        low, high = (numbers.quantity(f(values), "bytes_per_second") for f in (min, max))
        rate = low if low == high else f"{low} to {high}"
        return f"{of('tenant', '?')} is limited to {rate} at {where}"
    named = [f"{name} {labels[name]}" for name in ("tenant", "node", "path") if labels.get(name)]
    return f"{of('alertname', '?')}: {', '.join(named) or 'the site'}"


def _harms(begins: Sequence[Series], ends: Sequence[Series], start: float, last: float) -> Iterator[Event]:
    """Yield each harm once: its beginning is a value that stays until another harm is known."""
    until: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for s in ends:
        until[_who(s.labels)] = list(s.points)
    for s in begins:
        node, tenant, offender = who = _who(s.labels)
        for begin in sorted({v for _, v in s.points}):
            seen = [at for at, v in s.points if v == begin]
            known = [v for at, v in until.get(who, ()) if seen[0] <= at <= seen[-1] and v >= begin]
            end = max(known, default=begin)
            if end >= start:
                yield Event(
                    "harm", max(begin, start), end, last - end < 2 * STEP,
                    f"{tenant} is hurt by {offender} on {node}", tenant, node,
                )  # fmt: skip


def _who(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get("node", ""), labels.get("tenant", ""), labels.get("offender", "")
