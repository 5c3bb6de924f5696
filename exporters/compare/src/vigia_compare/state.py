"""The file in which evidence outlives the program: replaced as a whole, never half."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import vigia_json

__all__ = ["Saver", "StateFile"]

_log = logging.getLogger(__name__)

_MOST = 64 << 20
"""Bytes of a file that is read."""


class StateFile:
    """Reads once and writes often. Nothing that is wrong with the file ends the program."""

    def __init__(self, path: Path | None) -> None:
        """Take the place; None: nothing is kept."""
        self._path = path
        self.problem = ""
        """Why what was known before is lost; empty if it is not, or if nothing was kept."""
        self._failed = ""

    def load(self) -> Any:
        """Return what was saved last, JSON; None if there is nothing, or what ``problem`` explains."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                raw = file.read(_MOST + 1)
            return vigia_json.loads(raw, max_size=_MOST)
        except FileNotFoundError:
            _log.info("no state file yet: evidence begins now", extra={"path": str(self._path)})
        except OSError as e:
            self.lost(f"cannot be read: {e.strerror}")
        except vigia_json.JsonError as e:
            self.lost(str(e))
        return None

    def lost(self, why: str) -> None:
        """Say that what the file holds is of no use."""
        self.problem = f"the state file was of no use: {why}"
        _log.warning(
            "cannot use the state file: evidence begins anew", extra={"path": str(self._path), "err": why}
        )

    @property
    def kept(self) -> bool:
        """Whether there is a file at all."""
        return self._path is not None

    def save(self, content: bytes) -> bool:
        """Replace the file; return whether it holds the content now.

        A failure is logged once until one succeeds: evidence goes on without.
        """
        if self._path is None:
            return False
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError as e:
            if e.strerror != self._failed:
                _log.warning(
                    "cannot write the state file", extra={"path": str(self._path), "err": e.strerror}
                )
            self._failed = e.strerror or "unknown"
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            return False
        self._failed = ""
        return True


class Saver:
    """Saves in a thread of its own: a disk may stall for minutes, and verdicts are not to wait for it."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._changed = threading.Condition()
        self._newest: bytes | None = None
        """What is to be written next; older content that was not written yet is of no use any more."""
        self._writing = False
        self._late = False
        """Whether it was said that content came before the older one was written."""
        self._behind: float | None = None
        """Since when, by the monotonic clock, there has been something that the file does not hold."""
        self._thread: threading.Thread | None = None

    def save(self, data: Any) -> None:
        """Take data as they are now, JSON, and return at once."""
        if not self._file.kept:
            return
        content = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        with self._changed:
            if self._newest is not None and not self._late:
                self._late = True
                _log.warning("the state file is out of date: the disk takes longer than an evaluation")
            self._newest = content
            if self._behind is None:
                self._behind = time.monotonic()
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="save", daemon=True)
                self._thread.start()

    def settled(self, seconds: float) -> bool:
        """Wait until the newest has been written, or could not be; return whether the file holds it."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest is None and not self._writing, seconds)
            return self._behind is None

    def behind(self) -> float:
        """Return for how many seconds the file has lacked something; 0 if it holds all."""
        with self._changed:
            return 0.0 if self._behind is None else time.monotonic() - self._behind

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None)
                content, self._newest, self._writing = self._newest or b"", None, True
                taken = time.monotonic()
            written = False
            try:
                written = self._file.save(content)
            finally:
                with self._changed:
                    self._writing = False
                    if written:
                        self._behind = None if self._newest is None else taken
                    self._late = self._late and self._newest is not None
                    self._changed.notify_all()


def _sync_folder(folder: Path) -> None:
    """Make the new name last as well, where folders can be synchronised."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
