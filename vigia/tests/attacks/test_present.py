"""What is said of trials, also of those that could not all be made."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from vigia.attacks.present import reported
from vigia.errors import VigiaError


@dataclass(frozen=True)
class Trial:
    name: str


def play(trials: list[Any], say: Callable[[str], None]) -> None:
    for name in ("one", "two"):
        trials.append(Trial(name))
        say(f"{name} is made")


def stopped(trials: list[Any], say: Callable[[str], None]) -> None:
    play(trials, say)
    raise VigiaError("the lab is gone")


def total(trials: Any) -> str:
    return f"{len(trials)} in all"


def test_each_trial_is_said_and_all_together(capsys: pytest.CaptureFixture[str]) -> None:
    made, whole = reported(play, total, as_json=False, broken="cannot play")
    assert whole and made == [Trial("one"), Trial("two")]
    said = capsys.readouterr()
    assert said.out == "one is made\ntwo is made\n2 in all\n" and not said.err


def test_json_is_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    reported(play, total, as_json=True, broken="cannot play")
    said = capsys.readouterr()
    assert json.loads(said.out) == [{"name": "one"}, {"name": "two"}]
    assert said.err == "one is made\ntwo is made\n2 in all\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_made_is_shown_where_not_all_was(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    made, whole = reported(stopped, total, as_json=as_json, broken="cannot play")
    assert not whole and len(made) == 2
    said = capsys.readouterr()
    assert "cannot play: the lab is gone\n" in said.err and "2 in all\n" in said.out + said.err
    assert not as_json or len(json.loads(said.out)) == 2
