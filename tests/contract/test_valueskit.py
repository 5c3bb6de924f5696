"""What is read from a program's code, and what does not fit the catalogue."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from types import ModuleType

import pytest
from valueskit import Code, differences


class Way(StrEnum):
    THERE = "there"
    BACK = "back"


TOY = """
def walk(metrics, way, far):
    metrics.ways.labels("out", "x").inc()
    self.metrics.ways.labels("far" if far else "near")
    ways.labels(way)
    other.labels("of another")
    begin(action, Way.BACK, "why")
    begin(action, Elsewhere.THERE)
    outcome = "good" if far else "bad"
    return inner(way)

class Walker:
    def verdict(self):
        if self.far:
            return "far"
        return self.name if self.named else "near"
"""


@pytest.fixture
def code(tmp_path: Path) -> Code:
    (tmp_path / "inner").mkdir()
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "inner/toy.py").write_text(TOY)
    package = ModuleType("toy")
    package.__file__ = str(tmp_path / "__init__.py")
    return Code(package)


def test_what_is_read(code: Code) -> None:
    assert code.arguments("ways.labels", 0) == {"out", "far", "near"}
    assert code.arguments("begin", 1, Way) == {"back"}
    assert code.assigned("outcome") == {"good", "bad"}
    assert code.returned("verdict") == {"far", "near"}


def test_what_is_not_there_is_an_error(code: Code) -> None:
    for read in (
        lambda: code.arguments("roads.labels", 0),
        lambda: code.arguments("ways.labels", 7),
        lambda: code.arguments("begin", 1),
        lambda: code.assigned("nothing"),
        lambda: code.returned("verdict", "walk"),
    ):
        with pytest.raises(AssertionError, match="no"):
            read()


def test_differences() -> None:
    what = "vigia_campaign_repetitions.state"
    assert differences("campaign", {what: ["planned", "done", "failed"]}) == []
    assert differences("campaign", {what: ["planned", "done", "lost"], "vigia_x.y": ["z"]}) == [
        f"{what}: lost can be emitted, and is not in the catalogue",
        f"{what}: the catalogue lists failed, which nothing emits",
        "vigia_x.y: no closed label of the part",
    ]
    assert len(differences("campaign", {})) == 3
