from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.world import FakeClock, World


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
