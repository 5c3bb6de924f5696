"""What a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Finding", "State", "absent", "fault", "fine", "warning"]

State = Literal["ok", "warning", "fault", "absent"]
"""absent: not on this node, and nothing needs it unless its operator says so."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: str
    state: State
    found: str
    """What is the case."""
    fix: str = ""
    """What to do about it; empty where nothing needs to be done."""
    concerns: tuple[str, ...] = ()
    """Programs that this is about."""

    def as_json(self) -> dict[str, Any]:
        """Return the finding as data."""
        return asdict(self)


def fine(check: str, found: str, *concerns: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, "ok", found, "", concerns)


def warning(check: str, found: str, fix: str, *concerns: str) -> Finding:
    """Return a finding of something that works less well than it could."""
    return Finding(check, "warning", found, fix, concerns)


def fault(check: str, found: str, fix: str, *concerns: str) -> Finding:
    """Return a finding of something that keeps a program from working."""
    return Finding(check, "fault", found, fix, concerns)


def absent(check: str, found: str, *concerns: str) -> Finding:
    """Return a finding of something that is not on this node."""
    return Finding(check, "absent", found, "", concerns)
