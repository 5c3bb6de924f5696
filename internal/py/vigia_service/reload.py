"""Reloading the configuration of a running program: all of it, or nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, TypeVar

from vigia_config import ConfigError
from vigia_service.errors import ServiceError

__all__ = ["Reloader"]

_log = logging.getLogger(__name__)

C = TypeVar("C")


class Reloader(Generic[C]):
    """Reads a configuration again and swaps it in once everything that can fail has succeeded."""

    def __init__(  # noqa: PLR0913
        self,
        path: Path,
        read: Callable[[Path], C],
        *,
        current: Callable[[], C],
        fixed: Callable[[C], Mapping[str, object]],
        prepare: Callable[[C], Callable[[], None]],
        reloaded: Callable[[bool], None],
    ) -> None:
        """Take what the program knows.

        ``read`` and ``prepare`` may raise ConfigError or ServiceError. ``fixed`` returns the fields that
        only a restart changes, by name. ``prepare`` makes what the new configuration needs, and returns
        what puts it in force, which must not fail. ``reloaded`` records the outcome as a metric.
        """
        self._path = path
        self._read = read
        self._current = current
        self._fixed = fixed
        self._prepare = prepare
        self._reloaded = reloaded
        self._lock = threading.Lock()
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def reload(self) -> None:
        """Reload now. Raises ServiceError, and then everything is as before."""
        with self._lock:
            try:
                new = self._read(self._path)
                self._refuse_changes(new)
                commit = self._prepare(new)
            except (ConfigError, ServiceError) as e:
                self._reloaded(False)
                _log.error("cannot reload, the old configuration stays in force", extra={"err": str(e)})
                raise ServiceError(str(e)) from e
            commit()
            self._reloaded(True)
        _log.info("configuration reloaded", extra={"config": str(self._path)})

    def request(self) -> None:
        """Reload soon, in a thread of its own; for signal handlers."""
        self._requests.put(True)

    def start(self) -> None:
        """Begin to serve requests."""
        self._thread = threading.Thread(target=self._serve, name="reload", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the request that is being served."""
        self._requests.put(False)
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _serve(self) -> None:
        while self._requests.get():
            try:
                self.reload()
            except ServiceError:
                continue  # logged and counted already
            except Exception:
                _log.exception("cannot reload: the program has made a mistake")
                self._reloaded(False)

    def _refuse_changes(self, new: C) -> None:
        before, after = self._fixed(self._current()), self._fixed(new)
        for field, old in before.items():
            if after[field] != old:
                raise ServiceError(
                    f"{self._path}: {field} cannot change from {old} to {after[field]} while the program "
                    "runs; restart it"
                )
