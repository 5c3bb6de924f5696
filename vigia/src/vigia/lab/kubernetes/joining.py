"""Joins a control group of every hierarchy, then becomes another program: joining GROUP COMMAND..."""

from __future__ import annotations

import sys

from vigia.host import commands
from vigia.lab.kubernetes.machines import CONTROLLERS, GROUPS

__all__: list[str] = []


def _main(group: str, *command: str) -> None:
    for controller in CONTROLLERS:
        (GROUPS / controller / group / "cgroup.procs").write_text("0")
    commands.replace_process(list(command))


if __name__ == "__main__":
    _main(*sys.argv[1:])
