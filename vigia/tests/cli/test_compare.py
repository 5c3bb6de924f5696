"""vigia compare: it offers what vigia-compare report does, and passes it on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vigia.cli import compare

PROGRAM = Path(sys.executable).with_name("vigia-compare")


def options(text: str) -> set[str]:
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE))


def test_it_has_the_options_of_vigia_compare(vigia: Callable[..., Any]) -> None:
    theirs = subprocess.run([PROGRAM, "report", "--help"], capture_output=True, text=True, check=True).stdout
    assert options(vigia("compare", "--help").stdout) - {"--lab"} == options(theirs) | {"--help"}


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ((), ["--prometheus", "URL"]),
        (
            ("--since", "15m", "--window", "1m", "--json"),
            ["--prometheus", "URL", "--since", "900.0s", "--window", "60.0s", "--json"],
        ),
        (
            ("--metric", "rtt", "--metric", "loss", "--fail-if", "a:b", "--tenant", "red", "--against", "1d"),
            [
                *("--prometheus", "URL", "--metric", "rtt", "--metric", "loss"),
                *("--fail-if", "a:b", "--tenant", "red", "--against", "86400.0s"),
            ],
        ),
        (
            ("--minimum-windows", "20"),
            ["--prometheus", "URL", "--minimum-windows", "20"],
        ),
        (("--at", "2h"), ["--prometheus", "URL", "--at", "2h"]),
    ],
)
def test_what_is_asked_for_is_passed_on(
    vigia: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], passed: list[str]
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("vigia.host.commands.replace_process", lambda argv: seen.append(argv))
    assert vigia("compare", "--prometheus", "URL", *words).status == 0
    assert seen == [[str(PROGRAM), "report", *passed]]


def test_without_a_lab_it_says_which_is_missing(vigia: Callable[..., Any]) -> None:
    done = vigia("compare", "--lab", "never")
    assert (done.status, done.stderr) == (1, "vigia: lab never is not up; bring it up: vigia lab up\n")


def test_it_becomes_vigia_compare(vigia_process: Callable[..., Any]) -> None:
    """Nobody answers there, which is what vigia-compare itself says."""
    done = vigia_process("compare", "--prometheus", "http://127.0.0.1:1", "--since", "15m")
    assert done.status == 1
    assert done.stderr.startswith("vigia-compare: ")


def test_all_options_are_in_the_room_that_says_so() -> None:
    assert {o for p in compare.compare.params for o in p.opts} >= {"--since", "--against", "--json"}
