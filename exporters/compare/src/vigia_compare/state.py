"""The file in which evidence outlives the program: replaced as a whole, never half."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import vigia_json

__all__ = ["StateFile"]

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

    def save(self, data: Any) -> None:
        """Replace the file. A failure is logged once until one succeeds: evidence goes on without."""
        if self._path is None:
            return
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            with new.open("wb") as file:
                file.write(json.dumps(data, separators=(",", ":"), allow_nan=False).encode())
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
        else:
            self._failed = ""


def _sync_folder(folder: Path) -> None:
    """Make the new name last as well, where folders can be synchronised."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
