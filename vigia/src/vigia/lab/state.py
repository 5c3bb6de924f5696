"""What the run directory remembers of a lab, and the lock that guards it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from vigia.errors import VigiaError
from vigia.host import processes
from vigia.lab import clouds, model, naming
from vigia.lab.model import Datapath, Lab
from vigia.lab.naming import Layout
from vigia.lab.topology import Topology

__all__ = ["Phase", "State", "locked", "read", "running", "write"]

Phase = Literal["starting", "up"]

_VERSION = 1


@dataclass(frozen=True)
class State:
    """A lab that is up, or whose making has begun; removing it removes the record first."""

    phase: Phase
    lab: Lab
    datapath: Datapath
    since: float
    """Unix time at which the phase began."""
    cloud: str = clouds.PLAIN


def write(state: State) -> None:
    """Record the state; a crash leaves the old record or the new one, never half of one."""
    path = state.lab.layout.state_file
    record = {
        "version": _VERSION,
        "phase": state.phase,
        "cloud": state.cloud,
        "datapath": state.datapath,
        "since": state.since,
        "topology": state.lab.topology.model_dump(mode="json"),
    }
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1) + "\n")
    new.replace(path)


def read(layout: Layout) -> State | None:
    """Return the recorded state, or None if there is none that can be read."""
    try:
        record: Any = json.loads(layout.state_file.read_text())
        if record["version"] != _VERSION:
            return None
        topology = Topology.model_validate(record["topology"])
        cloud = record.get("cloud", clouds.PLAIN)
        lab = clouds.load(cloud).known(model.resolve(topology))
        return State(record["phase"], lab, record["datapath"], record["since"], cloud)
    except (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return None


def running(name: str) -> State:
    """Return the state of a lab that is up. Raises VigiaError if it is not."""
    state = read(naming.layout_of(name))
    if state is None or state.phase != "up":
        raise VigiaError(f"lab {name} is not up; bring it up: vigia lab up")
    return state


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Hold the lab's lock. Raises VigiaError at once if another command holds it.

    Commands started meanwhile inherit the lock. If this process is killed, the
    lock is free when the last of them has ended, so nobody works beside it.
    """
    fd = _acquire(layout)
    try:
        yield
    finally:
        layout.lock_file.unlink(missing_ok=True)
        os.close(fd)
        with suppress(OSError):  # another lab is there
            layout.root.rmdir()


def _acquire(layout: Layout) -> int:
    path = layout.lock_file
    deadline = time.monotonic() + 30
    while True:
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            if (owner.isdigit() and processes.alive(int(owner))) or time.monotonic() > deadline:
                raise VigiaError(
                    f"another command (process {owner}) is working on lab {layout.lab}; wait for its end"
                ) from e
            time.sleep(0.05)
            continue
        if _same_file(fd, path):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            os.set_inheritable(fd, True)
            return fd
        os.close(fd)  # its last holder removed it


def _open(path: Path) -> int:
    while True:
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # the directory went away in between
        except OSError as e:
            raise VigiaError(f"{path} cannot be opened: {e.strerror}; run as root") from e


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
