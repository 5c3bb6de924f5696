"""Bounds that the configuration and the statistics share. Imports nothing heavy."""

from __future__ import annotations

__all__ = ["LEAST_PERIOD", "LEAST_WINDOWS", "MAX_WINDOWS", "MINUTE"]

MINUTE = 60.0
"""What the rule group vigia-windows records a window of, seconds; all windows are whole minutes."""

MAX_WINDOWS = 2000
"""Windows of one period: a bound on what is asked of Prometheus and on the pairs to compare."""

LEAST_PERIOD = 5
"""Windows of a period at least: what is shown of a path is of more than a moment."""

LEAST_WINDOWS = 40
"""Windows below which two series are not said to coincide: 39 rotations reach p = 0.025."""
