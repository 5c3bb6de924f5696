"""Counters by windows, as PromQL. Imports nothing heavy."""

from __future__ import annotations

__all__ = ["counted", "grown"]


def grown(selector: str) -> str:
    """Return an expression: what a counter grew by in a window, the difference between its two ends.

    Neighbouring windows share an end, so that each count is in one of them. With ``increase`` it is not: what
    falls between the last scrape of a window and the first of the next is in neither. An end is the newest
    sample of half a window; where it is missing, or the program was started in between, there is no value.
    """
    return f"(last_over_time({selector}[$half]) - last_over_time({selector}[$half] offset $window) >= 0)"


def counted(selector: str, job: str) -> str:
    """Return what grown does, for a counter that has no series until it counts.

    What it has then, it has grown by, if its program was scraped when the window began: else nobody knows
    since when it counts.
    """
    first = f"last_over_time({selector}[$half]) unless last_over_time({selector}[$half] offset $window)"
    scraped = f'last_over_time(up{{job="{job}"}}[$half] offset $window) == 1'
    return f"({grown(selector)} or (({first}) and on (node) ({scraped})))"
