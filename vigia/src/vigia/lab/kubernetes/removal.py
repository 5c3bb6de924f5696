"""What a cluster leaves beside namespaces, processes and the run directory."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from vigia.errors import VigiaError
from vigia.lab.kubernetes.machines import GROUPS
from vigia.lab.kubernetes.places import ClusterPlaces
from vigia.lab.naming import Layout

__all__ = ["remove"]


def remove(layout: Layout) -> list[str]:
    """Remove control groups and data, after the processes; return what was there. Raises VigiaError."""
    places = ClusterPlaces(layout)
    groups = [g for g in sorted(GROUPS.glob(f"*/{places.group}")) if g.is_dir()]
    found = [f"{len(groups)} control groups"] if groups else []
    for group in groups:
        _remove_group(group)
    if places.data.exists():
        found.append("the cluster's data")
        shutil.rmtree(places.data)
        with suppress(OSError):  # another lab has data there
            places.data.parent.rmdir()
    return found


def _remove_group(group: Path) -> None:
    """Remove a control group and those below it. Its processes were killed, and may not be gone yet."""
    end = time.monotonic() + 30
    while True:
        inner = sorted((p for p in group.rglob("*") if p.is_dir()), key=lambda p: len(p.parts), reverse=True)
        with suppress(OSError):
            for folder in (*inner, group):
                folder.rmdir()
            return
        if not group.exists():
            return
        if time.monotonic() > end:
            raise VigiaError(f"the control group {group} has processes that do not end")
        time.sleep(0.1)
