"""The database: durable before anything is acknowledged, one writer at a time."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from isolation_agent.errors import DamagedError, StorageError
from isolation_agent.storage.audit import GENESIS, Head
from isolation_agent.storage.tables import SCHEMA_VERSION, Base, Meta

__all__ = ["Store", "Transaction", "get_meta", "is_sqlite", "set_meta"]

Transaction = Session
"""One transaction; the other rooms do not name the library behind it."""

_AUDIT_HEAD = "audit_head"
_KILL_SWITCH = "kill_switch"
_BREAKER = "breaker"

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY = 0xFF  # of SQLite's extended result codes

_WRITE_LOCK = 0x7669676961
"""Key of PostgreSQL's advisory lock that makes writers take turns, as SQLite does by itself."""


class Store:
    """Sessions on the database.

    ``write`` is one transaction that holds the write lock from its start, so
    that what it reads cannot change under it. Errors of the database become
    StorageError.
    """

    def __init__(
        self, url: str, *, busy_timeout: float = 2.0, read_only: bool = False, replica: str = ""
    ) -> None:
        """busy_timeout is how many seconds a transaction waits for another one.

        replica names the process among those that share the database.
        """
        self._engine = (
            _sqlite(url, busy_timeout, read_only) if is_sqlite(url) else _postgres(url, busy_timeout)
        )
        self.exclusive = is_sqlite(url)
        self._file: _File | None = None
        self._replica = replica
        self._read = sessionmaker(self._engine, expire_on_commit=False)
        self._write = sessionmaker(self._engine.execution_options(immediate=True), expire_on_commit=False)
        with _translated("open"):
            if not read_only:
                with self.write() as session:  # under the lock: replicas may start together
                    Base.metadata.create_all(session.connection())
            _check_schema(self, read_only)
        self._file = None if read_only else _File.of(url)

    def check_whole(self) -> None:
        """Look at the whole of SQLite's file. Raises DamagedError."""
        if not self.exclusive:
            return
        with _translated("check"), self._engine.connect() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if found != "ok":
            raise DamagedError(f"database: is damaged: {found}")

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Run one transaction; it is on disk when the block has ended without an error.

        Raises DamagedError if it went into a file that is not there any more.
        """
        with _translated("write"), self._write.begin() as session:
            session.connection()  # begins here, not with the first statement
            yield session
        if self._file is not None:
            self._file.check()

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Run queries on one consistent state."""
        with _translated("read"), self._read.begin() as session:
            yield session

    def kill_switch(self) -> bool:
        """Tell whether an operator has set the kill switch."""
        with self.read() as session:
            return get_meta(session, _KILL_SWITCH) == "on"

    def set_kill_switch(self, session: Transaction, on: bool) -> None:
        """Store the kill switch."""
        set_meta(session, _KILL_SWITCH, "on" if on else "off")

    def switches(self, session: Transaction) -> tuple[bool, str]:
        """Return the kill switch and why the breaker has tripped, as a session sees them."""
        return get_meta(session, _KILL_SWITCH) == "on", get_meta(session, _BREAKER) or ""

    def breaker(self) -> str:
        """Return why the blast-radius breaker has tripped; empty if it has not."""
        with self.read() as session:
            return get_meta(session, _BREAKER) or ""

    def set_breaker(self, session: Transaction, reason: str) -> None:
        """Trip the breaker, or reset it with an empty reason."""
        set_meta(session, _BREAKER, reason)

    @property
    def _audit_key(self) -> str:
        """Every replica has its own audit log."""
        return f"{_AUDIT_HEAD}:{hashlib.sha256(self._replica.encode()).hexdigest()[:32]}"

    def audit_anchor(self) -> Head:
        """Return the newest audit record of this replica that the database knows of."""
        with self.read() as session:
            value = get_meta(session, self._audit_key)
        if value is None:
            return GENESIS
        seq, _, digest = value.partition(":")
        return Head(int(seq), digest)

    def set_audit_anchor(self, head: Head) -> None:
        """Remember the newest audit record."""
        with self.write() as session:
            set_meta(session, self._audit_key, f"{head.seq}:{head.hash}")


def get_meta(session: Transaction, key: str) -> str | None:
    """Return a named value."""
    row = session.get(Meta, key)
    return row.value if row else None


def set_meta(session: Transaction, key: str, value: str) -> None:
    """Store a named value."""
    session.merge(Meta(key=key, value=value))


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (IntegrityError, DataError, ProgrammingError):
        raise  # a mistake in the agent, not the state of the disk
    except (DBAPIError, PoolTimeout) as e:
        cause = str(e.orig) if isinstance(e, DBAPIError) else str(e)
        kind = DamagedError if _is_damage(e) else StorageError
        raise kind(f"database: cannot {what}: {cause.splitlines()[0]}") from e


def _is_damage(e: Exception) -> bool:
    """Whether SQLite says that the file is not what it wrote."""
    code = getattr(getattr(e, "orig", None), "sqlite_errorcode", None)
    return code is not None and code & _PRIMARY in _DAMAGE


class _File:
    """SQLite's file as it was opened: SQLite goes on writing into it when it is removed or replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = self._now()

    @classmethod
    def of(cls, url: str) -> _File | None:
        """Return the file of a database; None if it has none of its own."""
        path = make_url(url).database
        return cls(Path(path)) if is_sqlite(url) and path and path != ":memory:" else None

    def check(self) -> None:
        """Raise DamagedError if the file is not there any more, or is another one."""
        if self._now() != self._opened:
            raise DamagedError(f"database: {self._path} was removed or replaced while it was open")

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def is_sqlite(url: str) -> bool:
    """Tell whether a database URL is of SQLite, which one process at a time uses."""
    return make_url(url).get_backend_name() == "sqlite"


def _sqlite(url: str, busy_timeout: float, read_only: bool) -> Engine:
    """Make SQLite durable (WAL, synchronous FULL) and give transactions an explicit begin."""
    engine = create_engine(url, connect_args={"timeout": busy_timeout})

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA query_only=ON" if read_only else "PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("immediate")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _postgres(url: str, busy_timeout: float) -> Engine:
    """Give PostgreSQL what SQLite has: commits on disk, one writer at a time, bounded waits."""
    wait = int(busy_timeout * 1000)
    options = f"-c synchronous_commit=on -c lock_timeout={wait} -c statement_timeout={wait * 5}"
    engine = create_engine(
        url,
        connect_args={"connect_timeout": max(2, int(busy_timeout)), "options": options},
        isolation_level="REPEATABLE READ",
        pool_pre_ping=True,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("immediate"):
            # The lock comes before the snapshot, so that a writer sees what the one before it did.
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")

    return engine


def _check_schema(store: Store, read_only: bool) -> None:
    with store.read() as session:
        found = get_meta(session, "schema") if inspect(session.connection()).has_table("meta") else None
    if found is None and not read_only:
        with store.write() as session:
            set_meta(session, "schema", SCHEMA_VERSION)
    elif found != SCHEMA_VERSION:
        raise StorageError(
            f"database: has schema {found}, this version of the agent needs {SCHEMA_VERSION}; "
            "move the database away, or run the version that made it"
        )
