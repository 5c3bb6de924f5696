"""All checks of a node, one after the other."""

from __future__ import annotations

from pathlib import Path

from vigia.doctor import kernel, machine, openvswitch
from vigia.doctor.finding import Finding

__all__ = ["examine"]


def examine(address: str, rundir: Path, namespace: str | None, pins: Path) -> list[Finding]:
    """Run every check and return what they found; changes nothing on the machine."""
    return [*kernel.check(pins), *machine.check(address), *openvswitch.check(rundir, namespace)]
