"""Who leads, when several replicas share a database.

Nobody compares clocks: the leader beats, and whoever has seen no beat for a
whole lease on its own monotonic clock takes over with a higher term. The term
fences: every write of the controller checks it under the database's write
lock, and enforcers refuse requests of an older one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.orm import Session

from isolation_agent.clock import Clock
from isolation_agent.errors import NotLeader, StorageError
from isolation_agent.storage.store import Store
from isolation_agent.storage.tables import Lease

__all__ = ["LeaderLease", "LedStore", "never_led"]

_NAME = "controller"

_log = logging.getLogger(__name__)


class LeaderLease:
    """This replica's view of the lease."""

    def __init__(self, store: Store, clock: Clock, holder: str, seconds: float) -> None:
        """seconds is how long the lease lasts after a beat."""
        self._store = store
        self._clock = clock
        self._holder = holder
        self._seconds = seconds
        self._seen: tuple[int, int] | None = None
        self._seen_at = 0.0
        self._held_until = 0.0
        self.term = 0
        self.leader = ""

    @property
    def held(self) -> bool:
        """True while this replica leads, as far as its own clock can tell."""
        return self.term > 0 and self._clock.monotonic() < self._held_until

    def keep(self) -> bool:
        """Beat, or take over if nobody does; returns whether this replica leads. Raises StorageError."""
        if self.held and self._clock.monotonic() < self._held_until - self._seconds * 2 / 3:
            return True
        began = self._clock.monotonic()
        with self._store.write() as session:
            row = session.get(Lease, _NAME)
            if row is None:
                row = Lease(name=_NAME, holder="", term=0, beat=0)
                session.add(row)
            led = self._beat(row)
            self.leader = row.holder
        if led:
            self._held_until = began + self._seconds
        return led

    def _beat(self, row: Lease) -> bool:
        if self.term > 0 and row.term == self.term and row.holder == self._holder:
            row.beat += 1
            return True
        self.term = 0
        now, state = self._clock.monotonic(), (row.term, row.beat)
        if state != self._seen:
            self._seen, self._seen_at = state, now
        free = not row.holder or (row.holder == self._holder and self._store.exclusive)
        if not free and now - self._seen_at < self._seconds:
            return False
        row.term, row.holder, row.beat = row.term + 1, self._holder, 0
        self.term = row.term
        _log.info("this replica leads", extra={"replica": self._holder, "term": self.term})
        return True

    def give_up(self) -> None:
        """Let another replica take over at once; if that cannot be stored, it waits for the lease."""
        if self.term == 0:
            return
        with suppress(StorageError), self._store.write() as session:
            row = session.get(Lease, _NAME)
            if row is not None and (row.term, row.holder) == (self.term, self._holder):
                row.holder = ""
        self.term, self._held_until = 0, 0.0

    def check(self, session: Session) -> None:
        """Raise NotLeader unless this replica's term is the current one."""
        row = session.get(Lease, _NAME)
        if self.term == 0 or row is None or (row.term, row.holder) != (self.term, self._holder):
            self.term = 0
            raise NotLeader("another replica leads now; nothing was changed")


def never_led(store: Store) -> bool:
    """Tell whether a database is this process's own, and so new that nobody has led with it yet.

    Raises StorageError.
    """
    if not store.exclusive:
        return False
    with store.read() as session:
        return session.get(Lease, _NAME) is None


class LedStore:
    """The store as the controller writes to it: every transaction is fenced by the term."""

    def __init__(self, store: Store, lease: LeaderLease) -> None:
        self._store = store
        self._lease = lease

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Run one transaction. Raises NotLeader, and changes nothing, if another replica leads."""
        with self._store.write() as session:
            self._lease.check(session)
            yield session
