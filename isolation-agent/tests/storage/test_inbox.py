"""The inbox: bounded, durable, and one commit for messages that come together."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from isolation_agent.storage import inbox as stored
from isolation_agent.storage.inbox import Inbox, InboxFull
from isolation_agent.storage.store import Store, Transaction
from isolation_agent.storage.tables import InboxMessage

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'agent.db'}")
    yield made
    made.close()


def message(body: bytes = b"{}") -> InboxMessage:
    return InboxMessage(received_at=NOW, peer="127.0.0.1", sha256="0" * 64, size=len(body), body=body)


def waiting(store: Store) -> int:
    with store.read() as session:
        return stored.depth(session)


def test_inbox_bounds(store: Store) -> None:
    inbox = Inbox(store)
    inbox.receive(message(b"x" * 10), max_messages=2, max_bytes=100)
    with pytest.raises(InboxFull, match="1 messages of 10 bytes"):
        inbox.receive(message(b"x" * 91), max_messages=2, max_bytes=100)
    inbox.receive(message(b"x" * 90), max_messages=2, max_bytes=100)
    with pytest.raises(InboxFull):
        inbox.receive(message(b""), max_messages=2, max_bytes=1000)
    assert waiting(store) == 2


def test_messages_that_come_together_share_a_commit(store: Store) -> None:
    commits: list[int] = []
    begun, go_on = threading.Event(), threading.Event()
    write = store.write

    @contextmanager
    def slowly() -> Iterator[Transaction]:
        commits.append(1)
        begun.set()
        assert go_on.wait(60)
        with write() as session:
            yield session

    store.write = slowly  # type: ignore[method-assign]
    inbox = Inbox(store)
    with ThreadPoolExecutor(12) as pool:
        first = pool.submit(inbox.receive, message(b"first"), 11, 1000)
        assert begun.wait(60)
        others = [pool.submit(inbox.receive, message(b"x" * 10), 11, 1000) for _ in range(11)]
        deadline = time.monotonic() + 60
        while len(inbox._arrived) < len(others) and time.monotonic() < deadline:
            time.sleep(0.01)
        go_on.set()
        first.result(60)
        refused = [f for f in others if f.exception(60) is not None]
    assert len(commits) == 2, "one for the first, one for all that came meanwhile"
    assert waiting(store) == 11
    assert [type(f.exception()) for f in refused] == [InboxFull], "each is held against the bounds"


def test_the_oldest_come_first_and_small_ones_together(store: Store) -> None:
    inbox = Inbox(store)
    for size in (10, 20, 500, 10):
        inbox.receive(message(b"x" * size), max_messages=9, max_bytes=1000)

    def oldest(most: int, room: int) -> list[int]:
        with store.read() as session:
            return [m.size for m in stored.oldest(session, most, room)]

    assert oldest(10, 100) == [10, 20], "as many as have room together"
    assert oldest(1, 100) == [10]
    with store.write() as session:
        stored.remove(session, stored.oldest(session, 10, 100))
    assert oldest(10, 100) == [500], "one that is too large comes alone"
    assert oldest(10, 1000) == [500, 10]
    assert waiting(store) == 2
