"""One comparison for the command line: what is printed, and which conditions hold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vigia_compare import regression, report
from vigia_compare.conditions import WORSE, Condition
from vigia_compare.config import Config
from vigia_compare.evaluation import Ledger, evaluate, terms
from vigia_compare.findings import NO_COMMON_HOSTS, Finding
from vigia_compare.published import published
from vigia_compare.source import Source
from vigia_prometheus import Prometheus
from vigia_service.errors import ServiceError
from vigia_text import terminal

__all__ = ["Asked", "compared", "held_by_changes", "held_by_findings"]

_TIMEOUT = 30.0


@dataclass(frozen=True)
class Asked:
    """What the command line asks for beside the configuration."""

    at: float
    """Unix time."""
    computed: bool
    """Count evidence of the period, and of nothing else; otherwise say what the service said."""
    earlier: float | None = None
    """Compare each path with itself so many seconds before."""
    least: int = 12
    """Windows that such a comparison takes."""
    conditions: Sequence[Condition] = ()


def compared(config: Config, asked: Asked) -> tuple[str, dict[str, Any], list[Condition]]:
    """Compare paths, or each with itself. Raises PrometheusError, and ServiceError where nothing was said.

    Returns the outcome for people and for programs, and the conditions that hold.
    """
    with Prometheus(config.prometheus, _TIMEOUT) as prometheus:
        source = Source(prometheus)
        if asked.earlier is not None:
            changes = regression.changes(source, config, asked.at, asked.earlier, asked.least)
            held = held_by_changes(asked.conditions, changes)
            return regression.as_text(changes), regression.as_json(changes), held
        if asked.computed:
            found = evaluate(source, config, asked.at, Ledger(terms(config)))
        else:
            said = published(source, config, asked.at)
            if said is None:
                when = datetime.fromtimestamp(asked.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
                raise ServiceError(
                    f"{config.prometheus} has no verdict of vigia-compare at {when}: the first comes a "
                    "minute or two after the start; wait, or write --since 1h to compare what is recorded"
                )
            found = said
    held = held_by_findings(asked.conditions, found.findings)
    return report.as_text(found, terminal.width(sys.stdout)), report.as_json(found), held


def held_by_findings(conditions: Sequence[Condition], findings: Sequence[Finding]) -> list[Condition]:
    """Return the conditions whose path is worse than the other on any metric.

    Raises ServiceError where two paths are not compared at all, which nobody should take for a good end.
    """
    pairs = {frozenset((f.a, f.b)) for f in findings if f.verdict != NO_COMMON_HOSTS}
    for c in conditions:
        if frozenset((c.path, c.other)) not in pairs:
            raise ServiceError(
                f"--fail-if {c.text}: these two are not compared: they share no pair of hosts, are unlike, "
                "or are not measured; see the pairs without --fail-if"
            )
    worse = {(f.b if f.better == f.a else f.a, f.better) for f in findings if f.better}
    return [c for c in conditions if (c.path, c.other) in worse]


def held_by_changes(conditions: Sequence[Condition], changes: Sequence[regression.Change]) -> list[Condition]:
    """Return the conditions, all or none, as any path is worse than it was."""
    return list(conditions) if any(c.said == WORSE for c in changes) else []
