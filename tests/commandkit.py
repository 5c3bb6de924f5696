"""Whether commands that documents show exist: programs of ours, their subcommands and their options."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache

from labkit import ROOT, VIGIA

__all__ = ["ANY", "OURS", "SERVICES", "accepted", "parts_of"]

BINARIES = {f"vigia-{part}": ROOT / "bin" / f"vigia-{part}" for part in ("probe", "exporter", "enforcer")}
SCRIPTS = {
    name: VIGIA.with_name(name) for name in ("vigia", "vigia-compare", "vigia-identity", "isolation-agent")
}
OURS = {**BINARIES, **SCRIPTS}
SERVICES = [name for name in OURS if name != "vigia"]
ANY = "PROGRAM"
"""Stands for each of our services."""


@cache
def help_of(program: str, *subcommands: str) -> str:
    done = subprocess.run(
        [str(OURS[program]), *subcommands, "--help"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{program} {' '.join(subcommands)} --help: {done.stderr}"
    return done.stdout + done.stderr


def parts_of(command: str) -> Iterator[list[str]]:
    """The words of each command of a pipe and of those substituted into it."""
    for inner in re.findall(r"\$\(([^)]*)\)", command):
        yield shlex.split(inner)
    for part in re.sub(r"\$\([^)]*\)", "1", command).split(" | "):
        yield shlex.split(part)


def accepted(program: str, words: list[str]) -> None:
    """Each subcommand answers --help, and each option is in its help or in that of the command before it."""
    subcommands: list[str] = []
    known = help_of(program)
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("--"):
            assert re.search(rf"(?<![\w-])-?{re.escape(word)}\b", known) or f"{word[1:]}" in known.split(), (
                f"{program} {' '.join(subcommands)} has no {word}"
            )
            skip = bool(
                re.search(rf"{re.escape(word)}[ =](<?[A-Z\[]|string|int|value|duration)", known)
            ) or word in (
                "--config",
                "--to",
                "--count",
                "--url",
                "--metric",
            )
        else:
            subcommands.append(word)
            known += help_of(program, *subcommands)
            assert re.search(rf"(?m)\b{word}\b", help_of(program, *subcommands[:-1])), (
                f"{program} has no {word}"
            )
