"""Removing a lab: everything that bears its name, and nothing else.

Nothing here needs the state file or a pid file: namespaces are found by their
prefix, processes by the namespaces that they are in and by the files that they
were started with, mounts and files by the run directory. So it works after a
crash at any point of making or removing a lab.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands, netns, processes
from vigia.lab import clouds
from vigia.lab.naming import Layout

__all__ = ["Removed", "leftovers", "remove", "remove_namespaces"]

_AGENTS = ("vigia-probe", "vigia-exporter", "vigia-enforcer")


@dataclass
class Removed:
    """What was there and is gone."""

    processes: list[int] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=list)
    mounts: int = 0
    rest: list[str] = field(default_factory=list)
    """What only the lab's cloud knows."""
    directory: bool = False

    @property
    def anything(self) -> bool:
        """Whether there was anything to remove."""
        return bool(self.processes or self.namespaces or self.mounts or self.rest or self.directory)

    def __str__(self) -> str:
        parts = [f"{len(self.namespaces)} namespaces", f"{len(self.processes)} processes"]
        parts += [f"{self.mounts} mount{'s' if self.mounts > 1 else ''}"] * (self.mounts > 0)
        parts += [*self.rest, *["the run directory"] * self.directory]
        return ", ".join(parts)


def leftovers(layout: Layout) -> bool:
    """Whether anything of a lab is there."""
    return bool(netns.names(layout.prefix)) or layout.directory.exists()


def remove(layout: Layout) -> Removed:
    """Remove a lab; the caller holds its lock. Raises VigiaError if something stays."""
    layout.state_file.unlink(missing_ok=True)  # from here on it is not up
    # Their sockets would keep the namespaces in being.
    removed = Removed(processes=_stop_programs(layout, _AGENTS))
    with ExitStack() as stack:
        inodes: set[int] = set()
        for _ in range(5):  # a daemon that was starting may have started another process
            for daemon in clouds.daemons():
                removed.processes += _stop_programs(layout, [daemon])
            present = netns.names(layout.prefix)
            inodes |= stack.enter_context(netns.held(present))
            removed.processes += _stop_inside(inodes)
            commands.ip_batch([f"netns del {name}" for name in present], force=True)
            removed.namespaces += present
            if not _inside(inodes) and not netns.names(layout.prefix):
                break
    removed.mounts = _unmount(layout.bpffs)
    for remove_rest in clouds.removers():
        removed.rest += remove_rest(layout)
    removed.directory = _remove_directory(layout.directory)
    left = netns.names(layout.prefix)
    if left:
        raise VigiaError(f"network namespaces remain: {', '.join(left)}; remove them: ip netns del NAME")
    return removed


def remove_namespaces(prefix: str) -> list[str]:
    """Stop what runs in the namespaces whose names begin so, remove them and return their names."""
    present = netns.names(prefix)
    with netns.held(present) as inodes:
        _stop_inside(inodes)
        commands.ip_batch([f"netns del {name}" for name in present], force=True)
    return present


def _stop_programs(layout: Layout, names: Collection[str]) -> list[int]:
    """Stop the programs of these names that were started with files of the lab, if their files are ours."""
    inside = f"{layout.directory}/"

    def ours(pid: int) -> bool:
        words = processes.arguments(pid) or [""]
        named = Path(words[0]).name in names and any(inside in word for word in words[1:])
        return named and processes.same_files(pid)

    return processes.stop([pid for pid in processes.all_pids() if ours(pid)], ours)


def _inside(inodes: set[int]) -> list[int]:
    """Processes in the lab's namespaces, without this one and those that it runs under."""
    mine = set()
    pid = os.getpid()
    while pid > 0 and pid not in mine:
        mine.add(pid)
        pid = processes.parent(pid)
    return [pid for pid in processes.all_pids() if pid not in mine and netns.is_inside(pid, inodes)]


def _stop_inside(inodes: set[int]) -> list[int]:
    return processes.stop(_inside(inodes), lambda pid: netns.is_inside(pid, inodes))


def _unmount(path: Path) -> int:
    count = 0
    while path.is_mount() and count < 16:
        commands.run(["umount", "--lazy", str(path)])
        count += 1
    return count


def _remove_directory(path: Path) -> bool:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4]) for line in lines]
    below = [point for point in points if point.is_relative_to(path) and point.is_mount()]
    if below:
        raise VigiaError(f"{below[0]} is still mounted; unmount it: umount {below[0]}")
    if not path.exists():
        return False
    try:
        shutil.rmtree(path)
    except OSError as e:
        raise VigiaError(f"{path} cannot be removed: {e.strerror}; remove it: rm -r {path}") from e
    return True
