from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from isolation_agent.storage import store

from .support.real_enforcer import RealEnforcer
from .support.world import FakeClock, World

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
ROOM = 1 << 30


@pytest.fixture(scope="session", autouse=True)
def statements_are_compiled_once() -> Iterator[None]:
    """Let all SQLite databases of the session share their compiled statements.

    A test that makes an agent spends most of its time on them otherwise. They depend on the kind of the
    database only, but are kept by database.
    """
    compiled: LRUCache[Any, Any] = LRUCache(1000)
    opened = store._sqlite

    def sharing(*arguments: Any) -> Engine:
        engine = opened(*arguments)
        engine._compiled_cache = compiled
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_sqlite", sharing)
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda self, other: type(self) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda self: hash(type(self)))
        yield


@pytest.fixture(scope="session")
def quick_folder() -> Iterator[Path]:
    """A folder in memory, if there is room: every commit is synced to disk, and a busy disk takes its time."""
    usable = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    with tempfile.TemporaryDirectory(prefix="vigia-agent-", dir=MEMORY if usable else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def tmp_path(quick_folder: Path, numbers: Iterator[int]) -> Iterator[Path]:
    """A folder of the test's own, which goes with it."""
    folder = quick_folder / str(next(numbers))
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands that run within a test set up logging for a whole process; that ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def real() -> Iterator[RealEnforcer]:
    """Yield an enforcer that limits in the kernel, on a node of one port."""
    if os.geteuid() != 0:
        pytest.skip("needs root: CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")
    made = RealEnforcer()
    yield made
    made.stop()
