"""Conditions of --fail-if, for exit codes. Imports nothing heavy: a wrong one is refused at once."""

from __future__ import annotations

from dataclasses import dataclass

import click

__all__ = ["WORSE", "Condition", "condition"]

WORSE = "worse"


@dataclass(frozen=True)
class Condition:
    """One --fail-if: path is worse than other on any metric, or than it was if neither is named."""

    text: str
    path: str
    other: str


def condition(text: str, with_past: bool) -> Condition:
    """Parse a --fail-if. Raises click.UsageError."""
    path, colon, other = text.partition(":")
    if with_past and text == WORSE:
        return Condition(text, "", "")
    if not with_past and colon and path and other and path != other:
        return Condition(text, path, other)
    fix = (
        "with --against write worse" if with_past else "write A:B with two paths, or add --against for worse"
    )
    raise click.UsageError(f"--fail-if {text}: is no condition here; {fix}")
