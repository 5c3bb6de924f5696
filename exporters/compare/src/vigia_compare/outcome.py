"""One comparison for the command line: what is printed, and which conditions hold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from vigia_compare import regression, report
from vigia_compare.conditions import Condition
from vigia_compare.config import Config
from vigia_compare.evaluation import evaluate
from vigia_compare.windows import Source
from vigia_prometheus import Prometheus
from vigia_text import terminal

__all__ = ["compared"]

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
            failed = [c for c in conditions if c.fails_on_changes(changes)]
            return regression.as_text(changes), regression.as_json(changes), failed
        found = evaluate(source, config, now)
    failed = [c for c in conditions if c.fails_on_groups(found.groups)]
    return report.as_text(found, terminal.width(sys.stdout)), report.as_json(found), failed
