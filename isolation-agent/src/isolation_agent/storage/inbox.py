"""The inbox: webhook messages that are on disk and not yet handled."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, select

from isolation_agent.errors import StorageError
from isolation_agent.storage.store import Store, Transaction
from isolation_agent.storage.tables import InboxMessage

__all__ = ["Inbox", "InboxFull", "depth", "oldest", "remove"]


@dataclass
class _Receipt:
    """A message on its way into the inbox."""

    message: InboxMessage
    max_messages: int
    max_bytes: int
    done: bool = False
    error: BaseException | None = None


class InboxFull(StorageError):
    """The inbox holds as much as it may."""


class Inbox:
    """Takes messages. Safe for use by several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arrived: list[_Receipt] = []
        self._arrived_lock = threading.Lock()
        self._receiving = threading.Lock()
        """held by the thread that commits what has arrived"""

    def receive(self, message: InboxMessage, max_messages: int, max_bytes: int) -> None:
        """Store a webhook message durably. Raises InboxFull or StorageError.

        Messages that come while another commit is on its way to the disk share the next one.
        """
        mine = _Receipt(message, max_messages, max_bytes)
        with self._arrived_lock:
            self._arrived.append(mine)
        with self._receiving:
            if not mine.done:
                with self._arrived_lock:
                    batch, self._arrived = self._arrived, []
                self._receive(batch)
        if mine.error is not None:
            raise mine.error

    def _receive(self, batch: Sequence[_Receipt]) -> None:
        try:
            with self._store.write() as session:
                count, size = session.execute(
                    select(func.count(), func.coalesce(func.sum(InboxMessage.size), 0)).select_from(
                        InboxMessage
                    )
                ).one()
                for receipt in batch:
                    if count >= receipt.max_messages or size + receipt.message.size > receipt.max_bytes:
                        receipt.error = InboxFull(
                            f"the inbox holds {count} messages of {size} bytes together"
                        )
                        continue
                    session.add(receipt.message)
                    count, size = count + 1, size + receipt.message.size
        except BaseException as e:
            for receipt in batch:
                receipt.error = e
            if not isinstance(e, Exception):
                raise
        finally:
            for receipt in batch:
                receipt.done = True


def depth(session: Transaction) -> int:
    """Return the number of messages that are stored and not yet handled."""
    return session.scalar(select(func.count()).select_from(InboxMessage)) or 0


def oldest(session: Transaction, most: int, room: int) -> Sequence[InboxMessage]:
    """Return the oldest messages: one, or up to so many that have so many bytes together."""
    waiting = select(InboxMessage.id, InboxMessage.size).order_by(InboxMessage.id).limit(most)
    chosen: list[int] = []
    for number, size in session.execute(waiting):
        room -= size
        if chosen and room < 0:
            break
        chosen.append(number)
    found = select(InboxMessage).where(InboxMessage.id.in_(chosen)).order_by(InboxMessage.id)
    return session.scalars(found).all()


def remove(session: Transaction, messages: Iterable[InboxMessage]) -> None:
    """Take messages from the inbox."""
    session.execute(delete(InboxMessage).where(InboxMessage.id.in_([m.id for m in messages])))
