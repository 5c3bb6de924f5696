"""Finding and stopping processes without ever hitting another one."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

__all__ = ["activity", "alive", "all_pids", "arguments", "listens", "parent", "same_files", "stop"]

_LISTEN = "0A"  # tcp_states.h
_USER_TIME = 11  # utime in what _stat returns, stime after it: proc_pid_stat(5)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent, ...; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def all_pids() -> list[int]:
    """Return the processes that there are."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def activity(pid: int) -> str:
    """Say in words what a process does: its state as ps shows it, and its processor time."""
    fields = _stat(pid)
    if not fields:
        return f"process {pid} has ended"
    ticks = int(fields[_USER_TIME]) + int(fields[_USER_TIME + 1])
    return f"process {pid}: state {fields[0]}, processor time {ticks / os.sysconf('SC_CLK_TCK'):.2f} s"


def parent(pid: int) -> int:
    """Return a process's parent, 0 if it has none or has ended."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def arguments(pid: int) -> list[str]:
    """Return a process's argument list, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def same_files(pid: int) -> bool:
    """Whether a process sees the same mounts as this one, so that a path means the same to both.

    A container on this machine may run a lab of its own, with the same paths.
    """
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False  # it has ended


def listens(pid: int, port: int) -> bool:
    """Whether a process itself listens on a TCP port; another one that holds the port does not count."""
    try:
        lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        lines += Path(f"/proc/{pid}/net/tcp6").read_text().splitlines()[1:]
        cells = (line.split() for line in lines)
        there = {f"socket:[{c[9]}]" for c in cells if c[1].endswith(f":{port:04X}") and c[3] == _LISTEN}
        return bool(there) and any(_target(fd) in there for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False  # it has ended


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""  # closed meanwhile


def stop(pids: Iterable[int], ours: Callable[[int], bool], grace: float = 3.0) -> list[int]:
    """Terminate processes, kill those that are left after grace seconds, and wait for the end.

    ours is asked once more after a process is held by a descriptor, so that a
    process that got the number of an ended one is left alone. Returns the
    processes that were stopped.
    """
    with ExitStack() as stack:
        held: dict[int, int] = {}
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except OSError:
                continue  # it has ended
            stack.callback(os.close, fd)
            if ours(pid):
                held[fd] = pid
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
            left = _alive(held)
            for fd in left:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, number)
            _wait(left, seconds)
        return sorted(held.values())


def _alive(held: Iterable[int]) -> list[int]:
    poll = select.poll()
    for fd in held:
        poll.register(fd, select.POLLIN)
    ended = {fd for fd, _ in poll.poll(0)}
    return [fd for fd in held if fd not in ended]


def _wait(held: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while held and time.monotonic() < deadline:
        poll = select.poll()
        for fd in held:
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        held = _alive(held)
