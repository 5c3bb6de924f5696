"""Enforcers that somebody else found: a file in the format of Prometheus's file_sd."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import vigia_json

__all__ = ["Stamp", "read_hosts", "stamp"]

MOST_BYTES, MOST_HOSTS = 16 << 20, 10_000

Stamp: TypeAlias = tuple[int, int, int] | None
"""What tells a file from another one that took its place; None for none."""


def stamp(path: Path) -> Stamp:
    """Return what tells whether a file has changed."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_hosts(path: Path) -> dict[str, str]:
    """Return HOST:PORT by node; a file that is not there yet has none. Raises ValueError."""
    try:
        with path.open("rb") as f:
            raw = f.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise ValueError(f"cannot be read: {e.strerror}") from e
    groups = vigia_json.loads(raw, max_size=MOST_BYTES)
    if not isinstance(groups, list):
        raise ValueError("is not a list of groups with targets and labels")
    out: dict[str, str] = {}
    for i, group in enumerate(groups):
        node, target = _one(i, group)
        if node in out:
            raise ValueError(f'[{i}].labels.node: "{node}" appears twice')
        out[node] = target
    if len(out) > MOST_HOSTS:
        raise ValueError(f"{len(out)} hosts are too many, at most {MOST_HOSTS} are taken")
    return out


def _one(i: int, group: Any) -> tuple[str, str]:
    labels = group.get("labels") if isinstance(group, dict) else None
    targets = group.get("targets") if isinstance(group, dict) else None
    node = labels.get("node") if isinstance(labels, dict) else None
    if not isinstance(node, str) or not node:
        raise ValueError(f"[{i}].labels.node is missing")
    if not isinstance(targets, list) or len(targets) != 1 or not isinstance(targets[0], str):
        raise ValueError(f"[{i}].targets is not one address HOST:PORT, as every node has one enforcer")
    return node, targets[0]
