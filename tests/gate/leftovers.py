"""Removing what a run that was killed left on the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from gate.commands import VENV, run

LABS = Path("/run/vigia-test-labs")
"""A file for each lab of a test, named like it, with the process whose it is."""

_OWNED = re.compile(r"vigia-test-(?:[a-z]+-)*(\d+)(?:-\d+)?")

Alive = Callable[[int], bool]


def abandoned(names: Iterable[str], alive: Alive) -> list[str]:
    """Return the names of tests' things whose process, which they are named after, is gone."""
    found = ((name, _OWNED.fullmatch(name)) for name in names)
    return sorted(name for name, match in found if match and not alive(int(match[1])))


def abandoned_mounts(mounts: str, alive: Alive) -> list[str]:
    """Return where tests' file systems are still mounted, by /proc/self/mounts."""
    entries = [line.split() for line in mounts.splitlines()]
    gone = set(abandoned((source for source, *_ in entries), alive))
    # Blanks of a path are in octal there: proc(5).
    return [
        re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), at) for source, at, *_ in entries if source in gone
    ]


def abandoned_labs(folder: Path, alive: Alive) -> list[str]:
    """Return the labs of tests whose processes are gone; a file that cannot be read is of nobody."""
    claims = sorted(folder.iterdir()) if folder.is_dir() else []
    owners = {p.name: p.read_text().strip() for p in claims}
    return [lab for lab, pid in owners.items() if not (pid.isdecimal() and alive(int(pid)))]


def clean_up() -> None:
    """Remove labs, namespaces, mounts and beds of campaigns of tests whose processes are gone."""
    if os.geteuid() != 0:
        return  # it could not make anything either
    folder = Path("/run/netns")
    names = [p.name for p in folder.iterdir()] if folder.exists() else []
    for name in abandoned(names, _runs):
        run("ip", "netns", "del", name)
    for lab in abandoned_labs(LABS, _runs):
        run(VENV / "vigia", "down", "--lab", lab)
        (LABS / lab).unlink(missing_ok=True)
    for place in abandoned_mounts(Path("/proc/self/mounts").read_text(), _runs):
        run("umount", place)
    run(VENV / "python", "-c", "from vigia.isolation import claims; claims.sweep()")


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
