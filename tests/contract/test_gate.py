"""The gate removes what a run that was killed left behind, and nothing of a run that is alive."""

from __future__ import annotations

import pytest
from gate.leftovers import abandoned

ALIVE = {11, 12345}


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("vigia-test-11040-17", True),
        ("vigia-test-flood-11040", True),
        ("vigia-test-netns-11040-1", True),
        ("vigia-test-12345-17", False),
        ("vigia-test-flood-11", False),
        ("vigia-test-none", False),
        ("vigia-demo-lb1", False),
        ("other-vigia-test-11040-17", False),
        ("vigia-test-11040-17-kept", False),
    ],
)
def test_only_namespaces_of_dead_tests_go(name: str, goes: bool) -> None:
    assert abandoned([name], ALIVE.__contains__) == ([name] if goes else [])
