"""The exit codes of the command: one table."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Exit"]


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    FOUND = 3

    @property
    def meaning(self) -> str:
        """Say in a few words what the code stands for."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.OK: "done, and all is well",
    Exit.FAILED: "failed, or the answer is no (not ready, not valid)",
    Exit.USAGE: "wrong command line",
    Exit.FOUND: "a condition of --fail-if holds",
}
