"""What happened in a period: alerts, floods, limits, and who hurt whom, each with a beginning and an end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vigia_compare.site import FLOOD_SCORE
from vigia_prometheus import Series
from vigia_text import numbers

__all__ = [
    "LENGTH",
    "MOST_EVENTS",
    "PERIODS",
    "STEP",
    "Event",
    "Period",
    "Ranges",
    "Timeline",
    "questions",
    "timeline",
]

LENGTH = 3600.0
"""Seconds that are shown if nobody asks for another period."""

STEP = 15.0
"""Seconds between two looks: what is shorter and between two of them, is seen by its largest value."""

MOST_STEPS = 240
"""Looks of a period; of a longer one than an hour they are further apart."""


@dataclass(frozen=True)
class Period:
    """How much of the past is shown. There are few, so that all who look share the answers."""

    length: float
    words: str
    """What stands before \"before 14:02\"."""

    @property
    def step(self) -> float:
        """Seconds between two looks."""
        return max(STEP, self.length / MOST_STEPS)


PERIODS: Mapping[str, Period] = {
    "15m": Period(900.0, "15 minutes"),
    "1h": Period(LENGTH, "hour"),
    "6h": Period(21_600.0, "6 hours"),
    "24h": Period(86_400.0, "24 hours"),
}
"""By what is written in an address."""

MOST_EVENTS = 200
"""Events that are shown, the newest."""

_TOGETHER = 3
"""Steps that two parts of one event may be apart."""

_KNOWN = "vigia_compare_interference_begin_timestamp_seconds"
_FIRING = 'ALERTS{alertstate="firing"}'


def questions(step: float) -> Mapping[str, str]:
    """Return what is asked at looks that are so many seconds apart."""
    over = f"[{step:g}s]"
    firing = _FIRING if step <= STEP else f"max_over_time({_FIRING}{over})"
    return {
        "alert": f"count by (alertname, severity, tenant, node, path) ({firing})",
        "flood": "max by (node, port, tenant) "
        f"(max_over_time(vigia_port_flood_score{over})) >= {FLOOD_SCORE:g}",
        "limit": f"min by (node, port, tenant) (min_over_time(vigia_isolation_limit_bytes_per_second{over}))",
        "begin": f"max by (node, tenant, offender) ({_KNOWN})",
        "end": f"max by (node, tenant, offender) ({_KNOWN.replace('begin', 'end')})",
    }


QUESTIONS = questions(STEP)


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
    by: str = ""
    """Of harm: who did it."""
    alert: str = ""
    """Of an alert: its name."""

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
    step: float = STEP
    """Seconds between two looks."""


def timeline(ask: Ranges, at: float, period: Period = PERIODS["1h"]) -> Timeline:
    """Return what happened in the period before a moment. Raises PrometheusError."""
    step = period.step
    end = math.floor(at / step) * step
    start = end - period.length
    found = {kind: ask(expression, start, end, step) for kind, expression in questions(step).items()}
    events = [
        event
        for kind in ("alert", "flood", "limit")
        for series in found[kind]
        for event in _events(kind, series, end, step)
    ]
    events += _harms(found["begin"], found["end"], start, end, step)
    events.sort(key=lambda e: (-e.begin, e.kind, e.what))
    return Timeline(start, end, events[:MOST_EVENTS], max(0, len(events) - MOST_EVENTS), step)


def _events(kind: str, series: Series, last: float, step: float) -> Iterator[Event]:
    of = series.labels.get
    for points in _stretches(series.points, step):
        begin, end = points[0][0], points[-1][0]
        yield Event(
            kind,
            begin,
            end,
            last - end < step,
            _words(kind, series.labels, [v for _, v in points]),
            of("tenant", ""),
            of("node", ""),
            of("severity", ""),
            alert=of("alertname", "") if kind == "alert" else "",
        )


def _stretches(points: Sequence[tuple[float, float]], step: float) -> Iterator[list[tuple[float, float]]]:
    part: list[tuple[float, float]] = []
    for point in points:
        if part and point[0] - part[-1][0] > (_TOGETHER + 0.5) * STEP + step - STEP:
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


def _harms(
    begins: Sequence[Series], ends: Sequence[Series], start: float, last: float, step: float
) -> Iterator[Event]:
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
                    "harm", max(begin, start), end, last - end < STEP + step,
                    f"{tenant} is hurt by {offender} on {node}", tenant, node, by=offender,
                )  # fmt: skip


def _who(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get("node", ""), labels.get("tenant", ""), labels.get("offender", "")
