"""Conditions of --fail-if, for exit codes. Imports nothing heavy: a wrong one is refused at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from vigia_compare.engine import Group
    from vigia_compare.regression import Change

__all__ = ["WORSE", "Condition", "condition"]

WORSE = "worse"


@dataclass(frozen=True)
class Condition:
    """One --fail-if."""

    text: str
    path: str
    other: str

    def fails_on_groups(self, groups: Sequence[Group]) -> bool:
        """Whether path is worse than other on any metric."""
        from vigia_statistics import Verdict  # noqa: PLC0415 - numpy takes a moment

        return any(
            (c.a, c.b, c.verdict) in ((self.path, self.other, Verdict.B), (self.other, self.path, Verdict.A))
            for g in groups
            for c in g.pairs
        )

    def fails_on_changes(self, found: Sequence[Change]) -> bool:
        """Whether any path is worse than it was."""
        return any(c.said == WORSE for c in found)


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
