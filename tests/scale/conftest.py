"""What every test of this folder has: machines that end with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scalekit import Machines


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()
