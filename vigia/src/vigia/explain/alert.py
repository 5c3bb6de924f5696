"""An alert that fires, in sentences: since when, of whom, what it means, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from vigia_prometheus.answers import Alert
from vigia_text import terminal

__all__ = ["MOST", "explain", "ordered"]

MOST = 10
"""Series of an alert that are explained."""

_SHOWN = ("severity", "tenant", "node", "port", "path", "src", "dst", "probe", "offender")
_HIDDEN = ("alertname", "isolate", "policy")


def ordered(alerts: Iterable[Alert]) -> list[Alert]:
    """Return alerts with the oldest first."""
    return sorted(alerts, key=lambda a: (a.since, sorted(a.labels.items())))


def explain(alerts: Sequence[Alert], now: float) -> list[list[str]]:
    """Return what each of the alerts says, in their order; the headline is the first line of each."""
    blocks = [_lines(alert, now) for alert in alerts[:MOST]]
    if len(alerts) > MOST:
        blocks.append([f"{len(alerts) - MOST} more series of the same alert fire."])
    return blocks


def _lines(alert: Alert, now: float) -> list[str]:
    of = alert.annotations.get
    since = datetime.fromtimestamp(alert.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    name = terminal.clean(alert.labels.get("alertname", "an alert"))
    lines = [f"{name} fires since {since}, for {_lasted(now - alert.since)}: {_labels(alert)}."]
    said = of("description") or of("summary")
    if said:
        lines.append(_sentence(said))
    if of("action"):
        lines.append(f"What to do: {_sentence(of('action', ''))}")
    if of("runbook_url"):
        lines.append(f"Runbook: {terminal.clean(of('runbook_url', ''))}")
    return lines


def _labels(alert: Alert) -> str:
    rest = sorted(set(alert.labels) - set(_SHOWN) - set(_HIDDEN))
    named = [f"{n} {alert.labels[n]}" for n in (*_SHOWN, *rest) if alert.labels.get(n)]
    return terminal.clean(", ".join(named) or "the site")


def _sentence(text: str) -> str:
    return f"{terminal.clean(' '.join(text.split())).rstrip('.')}."


def _lasted(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"
