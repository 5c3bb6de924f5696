"""A database that is damaged, lost or replaced: nothing goes into it any more, and a new one begins where it has to."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from isolation_agent.actions.orders import reset_breaker, set_kill_switch
from isolation_agent.errors import DamagedError
from isolation_agent.storage.damage import open_store
from isolation_agent.storage.store import Store, set_meta

from ..support.world import FakeClock, World

NOW = FakeClock().now()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with some pages."""
    found = tmp_path / "agent.db"
    with closing(Store(f"sqlite:///{found}")) as store, store.write() as session:
        for i in range(200):
            set_meta(session, f"key-{i}", "x" * 500)
    with closing(sqlite3.connect(found)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return found


def opened(path: Path) -> tuple[Store, str]:
    return open_store(f"sqlite:///{path}", path, "", NOW)


def scribble(path: Path, at: int, size: int = 3000) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(os.urandom(size))


def test_a_whole_database_is_opened_as_it_is(path: Path) -> None:
    store, new = opened(path)
    with closing(store), store.read() as session:
        assert session.connection().exec_driver_sql("SELECT count(*) FROM meta").scalar() == 201
    assert new == ""
    assert not list(path.parent.glob("*damaged*"))


def test_where_there_is_none_it_is_said(tmp_path: Path) -> None:
    store, new = opened(tmp_path / "agent.db")
    store.close()
    assert new == "there was none"


@pytest.mark.parametrize("at", [0, 8192, 40000], ids=["head", "page", "later"])
def test_a_damaged_one_is_kept_and_a_new_one_begins(path: Path, at: int) -> None:
    scribble(path, at)
    damaged = path.read_bytes()
    store, new = opened(path)
    with closing(store):
        assert store.kill_switch() is False
        store.check_whole()
    (kept,) = path.parent.glob("agent.db.damaged-*Z")
    assert kept.read_bytes() == damaged
    assert new == f"what was there was damaged, and is kept as {kept.name}"


def test_what_is_no_database_is_kept_as_well(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    path.write_bytes(b"this is no database, it only looks like a file" * 100)
    store, _ = opened(path)
    store.close()
    (kept,) = tmp_path.glob("agent.db.damaged-*Z")
    assert kept.read_bytes().startswith(b"this is no database")


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_what_goes_into_a_file_that_is_gone_is_not_acknowledged(path: Path, replaced: bool) -> None:
    with closing(Store(f"sqlite:///{path}")) as store:
        if replaced:
            copy = path.with_name("copy.db")
            shutil.copy(path, copy)
            copy.replace(path)
        else:
            path.unlink()
        with (
            pytest.raises(DamagedError, match="was removed or replaced while it was open"),
            store.write() as s,
        ):
            set_meta(s, "x", "1")


def test_damage_that_shows_while_it_is_open_is_told_from_a_full_disk(path: Path) -> None:
    with closing(Store(f"sqlite:///{path}")) as store:
        for page in range(4096, path.stat().st_size, 4096):
            scribble(path, page, 4000)
        with pytest.raises(DamagedError, match=r"malformed|not a database"), store.read() as session:
            session.connection().exec_driver_sql("SELECT count(*), max(value) FROM meta").scalar()


def lose(world: World) -> None:
    world.stop()
    for part in ("", "-wal", "-shm"):
        (world.dir / f"agent.db{part}").unlink(missing_ok=True)


@pytest.mark.parametrize("last", ["on", "off"])
def test_the_kill_switch_outlives_its_database(world: World, last: str) -> None:
    set_kill_switch(world.agent.journal, True, "a test", "eve")
    if last == "off":
        set_kill_switch(world.agent.journal, False, "a test", "eve")
    lose(world)
    assert world.agent.store.kill_switch() is (last == "on")
    (record,) = [r for r in world.audit_records() if r["event"] == "database.new"]
    assert (record["reason"], record["kill_switch"]) == ("there was none", last == "on")
    assert world.verify_audit().ok


@pytest.mark.parametrize("again", [False, True])
def test_the_breaker_outlives_its_database(world: World, again: bool) -> None:
    world.agent.journal.note("breaker.tripped", "controller", reason="9 actions began")
    if again:
        reset_breaker(world.agent.journal, "a test", "eve")
    lose(world)
    assert world.agent.store.breaker() == ("" if again else "9 actions began")


def test_the_kill_switch_outlives_a_start_that_did_not_get_far(world: World) -> None:
    """The new database was there, and then the process ended before it had read the audit log."""
    set_kill_switch(world.agent.journal, True, "a test", "eve")
    lose(world)
    path = world.dir / "agent.db"
    open_store(f"sqlite:///{path}", path, "", NOW)[0].close()
    assert world.agent.store.kill_switch() is True
    (record,) = [r for r in world.audit_records() if r["event"] == "database.new"]
    assert record["reason"] == "the last start with a new one did not get this far"
    world.step()
    set_kill_switch(world.agent.journal, False, "a test", "eve")
    world.stop()
    assert world.agent.store.kill_switch() is False
    assert world.audit_events().count("database.new") == 1, "who has led knows it"


def test_the_first_start_has_nothing_to_say(world: World) -> None:
    assert world.agent.store.kill_switch() is False
    assert "database.new" not in world.audit_events()
