"""What an action is about."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A tenant's port on a node."""

    node: str
    port: str
    tenant: str
