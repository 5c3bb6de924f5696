"""Completion in shells: the scripts, and what they complete to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vigia.lab.clouds import CLOUDS

VIGIA = str(Path(sys.executable).with_name("vigia"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(vigia: Callable[..., Any], shell: str) -> None:
    done = vigia("completion", shell)
    assert done.status == 0
    assert f"_VIGIA_COMPLETE={shell}_complete" in done.stdout


def test_another_shell_is_refused(vigia: Callable[..., Any]) -> None:
    done = vigia("completion", "csh")
    assert (done.status, done.stdout) == (2, "")
    assert "'csh' is not one of 'bash', 'zsh', 'fish';" in done.stderr


def completed(*words: str) -> list[str]:
    """What bash would be told to complete the last word to."""
    env = {
        **os.environ,
        "_VIGIA_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["vigia", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([VIGIA], capture_output=True, text=True, check=True, env=env)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("sta",), ["status", "stack"]),
        (("lab", "s"), ["status"]),
        (("campaign", "re"), ["resume", "report"]),
        (("lab", "up", "--cl"), ["--cloud"]),
        (("lab", "up", "--cloud", ""), list(CLOUDS)),
        (("completion", "z"), ["zsh"]),
    ],
)
def test_words_are_completed(words: tuple[str, ...], found: list[str]) -> None:
    assert sorted(completed(*words)) == sorted(found)


def test_the_script_works_in_a_real_bash(tmp_path: Path) -> None:
    script = tmp_path / "vigia.bash"
    script.write_text(
        subprocess.run([VIGIA, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    )
    ask = (
        f"PATH={Path(VIGIA).parent}:$PATH; source {script}; COMP_WORDS=(vigia lab pa); COMP_CWORD=2; "
        '_vigia_completion vigia; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["paths"]
