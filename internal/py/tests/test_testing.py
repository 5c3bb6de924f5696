"""The tests' own helpers can fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vigia_testing import eventually, modules_after

ROOT = Path(__file__).parents[1]


def test_eventually_returns_what_it_finds() -> None:
    found = iter([0, "", None, "there"])
    assert eventually(lambda: next(found), "something") == "there"


def test_eventually_fails_and_says_what_is_missing() -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: the cows to come home"):
        eventually(lambda: False, "the cows to come home", seconds=0)
    with pytest.raises(AssertionError, match="3 of 5"):
        eventually(lambda: [], lambda: "3 of 5", seconds=0)


def test_modules_of_a_program() -> None:
    assert "click" in modules_after("vigia-compare", "--version")
    with pytest.raises(subprocess.CalledProcessError):
        modules_after("no-such-program")


def test_helpers_are_in_no_wheel() -> None:
    import tomllib  # noqa: PLC0415

    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]["packages"]
    there = {p.parent.name for p in ROOT.glob("vigia_*/__init__.py")}
    assert set(packages) == there - {"vigia_testing"}
