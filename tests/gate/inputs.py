"""Whether a step's inputs are what they were when it last passed: then make test need not run it again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gate.results import Count

EVERYWHERE = ("pyproject.toml", "uv.lock", "conftest.py", "Makefile", "tools/", "tests/gate/")
"""Inputs of every step."""


def allowed() -> bool:
    """Whether earlier results may stand for a step: never in CI, nor where VIGIA_GATE_FRESH is set."""
    return not os.environ.get("CI") and not os.environ.get("VIGIA_GATE_FRESH")


class Memory:
    """Remembers, in a folder that git ignores, with which inputs each step passed last."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._files = _tracked(root)

    def recall(self, step: str, inputs: Sequence[str]) -> Count | None:
        """Return what the step counted when it passed with these very inputs; None if it has to run."""
        try:
            known: dict[str, Any] = json.loads((self._folder / f"{step}.json").read_text())
            return Count(**known["count"]) if known["inputs"] == self.digest(inputs) else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep(self, step: str, inputs: Sequence[str], before: str, count: Count) -> None:
        """Remember a step that passed, unless its inputs changed while it ran."""
        if self.digest(inputs) != before:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._folder / f"{step}.new"
        new.write_text(json.dumps({"inputs": before, "count": count.as_json()}))
        new.replace(self._folder / f"{step}.json")

    def digest(self, inputs: Sequence[str]) -> str:
        """Return a hash of the files' names and contents, the machine's kernel and the interpreters."""
        wanted = (*EVERYWHERE, *inputs)
        total = hashlib.sha256(f"{platform.release()} {sys.version} {_go_version()}".encode())
        for name in self._files:
            if not any(_within(name, w) for w in wanted):
                continue
            path = self._root / name
            content = str(path.readlink()).encode() if path.is_symlink() else _content(path)
            total.update(f"{name}\0{len(content)}\0".encode() + content)
        return total.hexdigest()


def _within(name: str, wanted: str) -> bool:
    return wanted in ("/", name) or (wanted.endswith("/") and name.startswith(wanted))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b"gone"


def _tracked(root: Path) -> list[str]:
    """Every file that git tracks, or would."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted(set(filter(None, listed.split("\0"))))


def _go_version() -> str:
    done = subprocess.run(["go", "version"], capture_output=True, text=True, check=False)
    return done.stdout
