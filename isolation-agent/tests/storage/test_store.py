"""The database: durable, one writer, and of the right version."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, StatementError

from isolation_agent.errors import StorageError
from isolation_agent.model.states import (
    ENFORCING,
    OVER,
    TRANSITIONS,
    IllegalTransition,
    State,
    check_transition,
)
from isolation_agent.storage import quarantine
from isolation_agent.storage.audit import GENESIS, Head
from isolation_agent.storage.store import Store, get_meta, set_meta
from isolation_agent.storage.tables import Action, Base, Episode, InboxMessage, Reason, TimelineEntry

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'agent.db'}"


@pytest.fixture
def store(url: str) -> Store:
    return Store(url)


def message(body: bytes = b"{}") -> InboxMessage:
    return InboxMessage(received_at=NOW, peer="127.0.0.1", sha256="0" * 64, size=len(body), body=body)


def action(**extra: object) -> Action:
    values: dict[str, object] = {
        "id": "a",
        "policy": "p",
        "policy_version": "v",
        "node": "n",
        "port": "o",
        "tenant": "t",
        "level": "L2",
        "state": State.RECEIVED,
        "params": {},
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Action(**values | extra)


def test_durable_settings(store: Store) -> None:
    with store.write() as session:
        run = session.connection().exec_driver_sql
        assert run("PRAGMA journal_mode").scalar() == "wal"
        assert run("PRAGMA synchronous").scalar() == 2, "FULL: a commit is on disk"
        assert run("PRAGMA foreign_keys").scalar() == 1


def test_values_outlive_the_store(url: str) -> None:
    first = Store(url)
    assert (first.kill_switch(), first.audit_anchor()) == (False, GENESIS)
    with first.write() as session:
        first.set_kill_switch(session, True)
        set_meta(session, "x", "1")
    first.set_audit_anchor(Head(7, "ab"))
    first.close()
    second = Store(url)
    assert (second.kill_switch(), second.audit_anchor()) == (True, Head(7, "ab"))
    with second.read() as session:
        assert get_meta(session, "x") == "1"
        assert get_meta(session, "y") is None


def test_block_that_fails_changes_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.write() as session:
        set_meta(session, "x", "1")
        session.flush()
        _ = 1 / 0
    with store.read() as session:
        assert get_meta(session, "x") is None


def test_write_lock_is_held_from_the_start(url: str, store: Store) -> None:
    other = Store(url, busy_timeout=0.05)
    with store.write(), pytest.raises(StorageError, match="locked"), other.write():
        pass
    with other.write():
        pass


def test_readers_do_not_wait_for_a_writer(url: str, store: Store) -> None:
    other = Store(url, busy_timeout=0.05)
    with store.write() as session:
        set_meta(session, "x", "1")
        session.flush()
        assert other.kill_switch() is False


def test_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_bytes(b"this is no database, it only looks like a file" * 100)
    with pytest.raises(StorageError, match="not a database"):
        Store(f"sqlite:///{tmp_path / 'agent.db'}")


def test_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="unable to open database file"):
        Store(f"sqlite:///{tmp_path / 'absent' / 'agent.db'}")


def test_other_schema_is_refused(url: str, tmp_path: Path) -> None:
    Store(url).close()
    with sqlite3.connect(tmp_path / "agent.db") as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    db.close()
    with pytest.raises(StorageError, match="has schema 99, this version of the agent needs 2"):
        Store(url)


def test_a_database_without_the_newest_table_gets_it(url: str, tmp_path: Path) -> None:
    Store(url).close()
    with sqlite3.connect(tmp_path / "agent.db") as db:
        db.execute("DROP TABLE quarantine")
    db.close()
    store = Store(url)
    with store.read() as session:
        assert quarantine.newest(session, 1) == []
    store.close()


def test_read_only_changes_nothing(url: str, store: Store) -> None:
    reader = Store(url, read_only=True)
    assert reader.kill_switch() is False
    with pytest.raises(StorageError, match="readonly"), reader.write() as session:
        set_meta(session, "x", "1")


def test_read_only_does_not_make_tables(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    sqlite3.connect(path).close()
    path.touch()
    with pytest.raises(StorageError, match="has schema None"):
        Store(f"sqlite:///{path}", read_only=True)


def test_instants_are_utc_with_microseconds(store: Store) -> None:
    local = NOW.astimezone(timezone(timedelta(hours=5)))
    with store.write() as session:
        session.add(action(created_at=local))
    with store.read() as session:
        row = session.scalars(select(Action)).one()
    assert row.created_at == NOW
    assert row.created_at.tzinfo is UTC
    assert row.ended_at is None


def test_naive_instants_are_a_mistake(store: Store) -> None:
    with pytest.raises(StatementError, match="naive"), store.write() as session:
        session.add(action(created_at=NOW.replace(tzinfo=None)))


def test_states_come_back_as_states(store: Store) -> None:
    with store.write() as session:
        session.add(action(state=State.ACTIVE))
    with store.read() as session:
        assert session.scalars(select(Action.state)).one() is State.ACTIVE


def test_one_open_action_for_a_policy_and_target(store: Store) -> None:
    with store.write() as session:
        session.add(action(id="a"))
    with pytest.raises(IntegrityError), store.write() as session:
        session.add(action(id="b"))
    with store.write() as session:
        session.scalars(select(Action)).one().ended_at = NOW
        session.flush()
        session.add(action(id="b"))
        session.add(action(id="c", tenant="another"))


def test_one_limit_for_a_port(store: Store) -> None:
    with store.write() as session:
        session.add(action(id="a", state=State.ACTIVE))
        session.add(action(id="b", policy="q"))
    with pytest.raises(IntegrityError), store.write() as session:
        session.add(action(id="c", policy="r", state=State.APPLYING))


def test_one_episode_for_a_fingerprint_and_start(store: Store) -> None:
    def episode() -> Episode:
        return Episode(
            fingerprint="f",
            starts_at=NOW,
            status="firing",
            labels={},
            annotations={},
            received_at=NOW,
            last_seen=NOW,
        )

    with store.write() as session:
        session.add(episode())
    with pytest.raises(IntegrityError), store.write() as session:
        session.add(episode())


def test_reasons_and_timeline_go_with_their_action(store: Store) -> None:
    with store.write() as session:
        row = action()
        session.add(row)
        session.add(
            episode := Episode(
                fingerprint="f",
                starts_at=NOW,
                status="firing",
                labels={},
                annotations={},
                received_at=NOW,
                last_seen=NOW,
            )
        )
        session.flush()
        session.add(Reason(action_seq=row.seq, episode_id=episode.id, policy="p"))
        session.add(TimelineEntry(action_seq=row.seq, at=NOW, event="e", detail={}))
    with store.write() as session:
        session.execute(Action.__table__.delete())  # type: ignore[attr-defined]
    with store.read() as session:
        assert session.scalars(select(Reason)).all() == []
        assert session.scalars(select(TimelineEntry)).all() == []
        assert len(session.scalars(select(Episode)).all()) == 1


def test_hostile_text_is_stored_as_it_is(store: Store) -> None:
    nasty = "a\x00b\u2028'; DROP TABLE action; --\U0001f4a5"
    with store.write() as session:
        session.add(action(params={"x": nasty}))
    with store.read() as session:
        assert session.scalars(select(Action.params)).one() == {"x": nasty}


def test_numbers_of_actions_are_never_used_again(store: Store) -> None:
    assert {t.name for t in Base.metadata.sorted_tables} == {
        "meta", "inbox", "episode", "action", "reason", "timeline", "approval", "lease", "login_session",
        "stored_answer", "allow", "policy_version", "quarantine",
        "node_term",
    }  # fmt: skip
    with store.write() as session:
        session.add(row := action())
        session.flush()
        first = row.seq
        session.delete(row)
        session.flush()
        session.add(row := action(id="b"))
        session.flush()
        assert row.seq > first


# The state machine


@pytest.mark.parametrize("old", list(State))
@pytest.mark.parametrize("new", list(State))
def test_only_listed_steps_are_possible(old: State, new: State) -> None:
    if new in TRANSITIONS[old]:
        check_transition(old, new)
    else:
        with pytest.raises(IllegalTransition, match=f"from {old} to {new}"):
            check_transition(old, new)


def test_every_state_has_its_place() -> None:
    assert set(TRANSITIONS) == set(State)
    assert all(not TRANSITIONS[s] for s in OVER), "what is over stays over"
    for state in ENFORCING:
        assert set(OVER) & TRANSITIONS[state] or State.RELEASING in TRANSITIONS[state], "every limit can end"
    assert State.ACTIVE not in TRANSITIONS[State.RECEIVED], "nothing is active without an intent on disk"
