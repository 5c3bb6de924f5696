"""One comparison for the command line: what is printed, and which conditions hold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from vigia_compare import regression, report
from vigia_compare.conditions import WORSE, Condition
from vigia_compare.config import Config
from vigia_compare.engine import Group
from vigia_compare.evaluation import evaluate
from vigia_compare.source import Source
from vigia_prometheus import Prometheus
from vigia_statistics import Verdict
from vigia_text import terminal

__all__ = ["compared", "held_by_changes", "held_by_groups"]

_TIMEOUT = 30.0


def compared(
    config: Config, now: float, earlier: float | None, conditions: Sequence[Condition]
) -> tuple[str, dict[str, Any], list[Condition]]:
    """Compare paths, or each with itself ``earlier`` seconds before. Raises PrometheusError.

    Returns the outcome for people and for programs, and the conditions that hold.
    """
    with Prometheus(config.prometheus, _TIMEOUT) as prometheus:
        source = Source(prometheus)
        if earlier is not None:
            changes = regression.changes(source, config, now, earlier)
            held = held_by_changes(conditions, changes)
            return regression.as_text(changes), regression.as_json(changes), held
        found = evaluate(source, config, now)
    held = held_by_groups(conditions, found.groups)
    return report.as_text(found, terminal.width(sys.stdout)), report.as_json(found), held


def held_by_groups(conditions: Sequence[Condition], groups: Sequence[Group]) -> list[Condition]:
    """Return the conditions whose path is worse than the other on any metric."""
    pairs = [c for g in groups for c in g.pairs]
    worse = {(c.a, c.b) for c in pairs if c.verdict is Verdict.B}
    worse |= {(c.b, c.a) for c in pairs if c.verdict is Verdict.A}
    return [c for c in conditions if (c.path, c.other) in worse]


def held_by_changes(conditions: Sequence[Condition], changes: Sequence[regression.Change]) -> list[Condition]:
    """Return the conditions, all or none, as any path is worse than it was."""
    return list(conditions) if any(c.said == WORSE for c in changes) else []
