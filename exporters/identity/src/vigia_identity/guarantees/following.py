"""A list of the API server's that is kept up to date by its changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from vigia_identity.api_server import ApiServer, Listing, api_server
from vigia_identity.clouds import CloudError
from vigia_identity.config import Kubernetes

__all__ = ["Following"]

_log = logging.getLogger(__name__)

SECONDS = 240
"""For how long the API server is to tell of changes; then the whole list is asked for again."""
MARGIN = 60
"""Seconds that it may take beyond that."""
AGAIN = (1.0, 15.0)
"""Seconds until it is asked again after it failed: at first, and at most."""
LASTS = 10.0
"""Seconds that changes are told for where that works; an answer that ends before is followed by a pause."""

T = TypeVar("T")


class Following(Generic[T]):
    """Keeps up with a list, in a thread of its own. What was known stays while the API server is away."""

    def __init__(
        self,
        config: Callable[[], Kubernetes | None],
        listing: Listing,
        most: int,
        take: Callable[[Any], T | None],
        changed: Callable[[], None],
    ) -> None:
        """Follow at most so many objects: of each is kept what take returns, if anything.

        Called back is for every change of what is kept.
        """
        self._config, self._listing, self._most = config, listing, most
        self._take, self._changed = take, changed
        self._lock = threading.Lock()
        self._kept: dict[str, T] | None = None
        self._stopped = threading.Event()
        self._said = ""

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"follow {self._listing.path}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def all(self) -> list[T] | None:
        """Return what is kept; None before the list was read for the first time."""
        with self._lock:
            return None if self._kept is None else list(self._kept.values())

    def problem(self) -> str:
        """Return why it cannot keep up; empty while it can."""
        return self._said

    def _run(self) -> None:
        wait = AGAIN[0]
        while not self._stopped.is_set():
            config = self._config()
            if config is None:
                self._stopped.wait(AGAIN[1])
                continue
            began, well = time.monotonic(), False
            try:
                self.follow(config)
                well, self._said = True, ""
            except CloudError as e:
                self._complain(str(e))
            if time.monotonic() - began >= LASTS:
                wait = AGAIN[0]
                if well:
                    continue
            self._stopped.wait(wait)
            wait = min(2 * wait, AGAIN[1])

    def _complain(self, problem: str) -> None:
        """Say once what is wrong."""
        news, self._said = problem != self._said, problem
        if news:
            extra = {"list": self._listing.path, "err": problem}
            _log.warning("cannot follow a list; what is known of it stays", extra=extra)

    def follow(self, config: Kubernetes) -> None:
        """Read the list, and its changes until the API server ends its answer. Raises CloudError."""
        with api_server(config, SECONDS + MARGIN) as server:
            version = self._read(server)
            for kind, item in server.changes(self._listing, version, SECONDS):
                if self._stopped.is_set():
                    return
                self._one(kind, item)

    def _read(self, server: ApiServer) -> str:
        """Take the whole list; return its version."""
        found: dict[str, T] = {}
        version = ""
        for at, page in server.pages(self._listing):
            version = at
            for item in page:
                kept = self._take(item)
                if kept is not None:
                    found[item["metadata"]["uid"]] = kept
            self._bound(len(found))
        with self._lock:
            same, self._kept = self._kept == found, found
        if not same:
            self._changed()
        return version

    def _one(self, kind: str, item: Any) -> None:
        """Take one change."""
        uid = item["metadata"]["uid"]
        kept = None if kind == "DELETED" else self._take(item)
        with self._lock:
            assert self._kept is not None  # noqa: S101 - the list was read before
            same = self._kept.get(uid) == kept
            if kept is None:
                self._kept.pop(uid, None)
            else:
                self._kept[uid] = kept
            self._bound(len(self._kept))
        if not same:
            self._changed()

    def _bound(self, count: int) -> None:
        if count > self._most:
            raise CloudError(f"there are more than {self._most} of {self._listing.path}")
