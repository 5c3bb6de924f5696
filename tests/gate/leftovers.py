"""Removing what a run that was killed left on the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from gate.commands import VENV, run

_NAMESPACE = re.compile(r"vigia-test-(?:[a-z]+-)*(\d+)(?:-\d+)?")


def abandoned(names: Iterable[str], alive: Callable[[int], bool]) -> list[str]:
    """Return the tests' network namespaces whose process, which they are named after, is gone."""
    found = ((name, _NAMESPACE.fullmatch(name)) for name in names)
    return sorted(name for name, match in found if match and not alive(int(match[1])))


def clean_up() -> None:
    """Remove namespaces of tests and beds of campaigns whose processes are gone."""
    if os.geteuid() != 0:
        return  # it could not make anything either
    folder = Path("/run/netns")
    names = [p.name for p in folder.iterdir()] if folder.exists() else []
    for name in abandoned(names, lambda pid: Path(f"/proc/{pid}").exists()):
        run("ip", "netns", "del", name)
    run(VENV / "python", "-c", "from vigia.isolation import claims; claims.sweep()")
