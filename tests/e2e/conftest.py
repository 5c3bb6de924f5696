"""One demo for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from demokit import Demo, run_demo


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run the demo once; afterwards everything is killed rather than stopped, and then removed."""
    yield from run_demo(tmp_path_factory.mktemp("e2e"))
