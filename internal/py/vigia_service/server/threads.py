"""Threads that answer requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["Threads"]

_log = logging.getLogger(__name__)


class Threads:
    """A fixed number of threads with one queue.

    They are daemons: a request that never ends must not keep a program from
    ending, as it would with concurrent.futures.
    """

    def __init__(self, name: str, count: int) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        """Run work as soon as a thread is free."""
        self._queue.put(work)

    def close(self) -> None:
        """Let every thread end after the work that is queued now; does not wait."""
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                _log.exception("cannot answer a request")
