"""Named network namespaces: finding them, entering them, who is inside.

Only the network namespace is entered, never a mount namespace, so that files,
bpffs and tracefs stay those of the process (setns(2)).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from vigia.errors import VigiaError
from vigia.host import syscalls

__all__ = ["DIRECTORY", "enter", "held", "inode", "inside", "is_inside", "names", "path"]

DIRECTORY = Path("/run/netns")
"""Where ip-netns(8) keeps named namespaces."""

T = TypeVar("T")


def path(name: str) -> Path:
    """Return the file of a namespace."""
    return DIRECTORY / name


def names(prefix: str) -> list[str]:
    """Return the namespaces whose names start with prefix, sorted."""
    try:
        return sorted(p.name for p in DIRECTORY.iterdir() if p.name.startswith(prefix))
    except FileNotFoundError:
        return []


def inode(name: str) -> int | None:
    """Return the number that identifies a namespace in the kernel, or None if it is not there."""
    try:
        return path(name).stat().st_ino
    except OSError:
        return None


@contextmanager
def held(wanted: Iterable[str]) -> Iterator[set[int]]:
    """Keep namespaces in being, with or without their names, and give their numbers.

    The kernel gives the number of a namespace that is gone to the next one; while
    these are held, their numbers mean them and no others.
    """
    with ExitStack() as stack:
        numbers = set()
        for name in wanted:
            with suppress(OSError):  # it has gone meanwhile
                numbers.add(os.fstat(stack.enter_context(path(name).open("rb")).fileno()).st_ino)
        yield numbers


def enter(name: str) -> None:
    """Move the calling thread into a namespace for good. Raises VigiaError."""
    try:
        with path(name).open("rb") as f:
            syscalls.setns(f.fileno())
    except FileNotFoundError as e:
        raise VigiaError(f"network namespace {name} does not exist; bring the lab up: vigia lab up") from e
    except OSError as e:
        raise VigiaError(f"network namespace {name} cannot be entered: {e.strerror}; run as root") from e


def inside(name: str, call: Callable[[], T]) -> T:
    """Run call in a namespace, on a thread of its own, and return what it returns.

    Processes that call starts are inside from their first instruction, and
    sockets that it opens stay there.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            enter(name)
            results.append(call())
        except BaseException as e:  # handed to the caller below
            errors.append(e)

    thread = threading.Thread(target=body, name=f"in {name}")
    try:
        thread.start()
        thread.join()
    except BaseException:  # interrupted, perhaps while starting: still leave nothing running behind
        while thread in threading.enumerate():
            time.sleep(0.01)
        raise
    if errors:
        raise errors[0]
    return results[0]


def is_inside(pid: int, inodes: set[int]) -> bool:
    """Whether a process's main thread is in one of the namespaces."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink()) in {f"net:[{number}]" for number in inodes}
    except OSError:
        return False  # it has ended
