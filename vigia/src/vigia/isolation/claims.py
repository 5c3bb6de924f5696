"""Claims of beds: what a campaign that was killed left behind is removed by whoever comes next.

A bed's files are in a folder of its own, on which its process holds a lock for as long
as it lives; its namespaces begin with the folder's name. A folder that nobody holds is
of a process that is gone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import down

__all__ = ["ROOT", "Claim", "claim", "sweep"]

_DRAWS = 64
"""Of 256 names of a process: who has a bed beside another draws again."""
ROOT = Path("/run/vigia-beds")
"""Where the folders are; gone when the machine is started again, like namespaces."""


@dataclass(frozen=True)
class Claim:
    """A name that is one bed's alone, and a folder for its files."""

    name: str
    folder: Path

    def mount_bpffs(self) -> Path:
        """Mount a BPF file system below the folder; it goes with the claim. Raises CommandError."""
        at = self.folder / "bpf"
        at.mkdir()
        commands.run(["mount", "-t", "bpf", "bpf", str(at)])
        return at


@contextmanager
def claim(kind: str, root: Path = ROOT) -> Iterator[Claim]:
    """Claim a name that begins with vigia-KIND, after removing the beds of processes that are gone.

    Raises VigiaError.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(root):
        _sweep(root)
        folder = _made(root, f"vigia-{kind}{os.getpid() % 100000}")
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield Claim(folder.name, folder)
    finally:
        _remove_folder(folder)
        os.close(held)


def sweep(root: Path = ROOT) -> list[str]:
    """Remove the beds of processes that are gone, and return their names. Raises CommandError."""
    if not root.exists():
        return []
    with _alone(root):
        return _sweep(root)


def _made(root: Path, process: str) -> Path:
    """Make a folder for a process, which may have others; devices named after it leave room for two more."""
    for _ in range(_DRAWS):
        folder = root / f"{process}{secrets.token_hex(1)}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise VigiaError(f"cannot claim a name below {root}: {_DRAWS} that begin with {process} are taken")


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Let nobody else claim or sweep meanwhile: a folder that was just made is not held yet."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sweep(root: Path) -> list[str]:
    gone = []
    for folder in sorted(p for p in root.iterdir() if p.is_dir()):
        with suppress(FileNotFoundError, BlockingIOError):  # it has just ended; it is alive
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                down.remove_namespaces(f"{folder.name}-")
                _remove_folder(folder)
                gone.append(folder.name)
            finally:
                os.close(held)
    return gone


def _remove_folder(folder: Path) -> None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        at = line.split()[4]
        if Path(at).is_relative_to(folder):
            commands.run(["umount", "--lazy", at])
    shutil.rmtree(folder, ignore_errors=True)
