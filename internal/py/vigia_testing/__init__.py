"""What the tests of several parts need. It is in no wheel and no program imports it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from vigia_service.patience import Patience

__all__ = ["DEADLINE", "eventually", "modules_after", "start_python"]

DEADLINE = 90.0
"""Seconds that a test waits for something that takes a moment on an idle machine: only a fault reaches it."""

_PAUSE = 0.02

T = TypeVar("T")


def eventually(condition: Callable[[], T], what: str | Callable[[], str], seconds: float = DEADLINE) -> T:
    """Poll until condition returns something true, and return that; AssertionError says what was awaited."""
    patience = Patience(seconds)
    while True:
        found = condition()
        if found:
            return found
        if patience.over():
            awaited = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:g} s: {awaited}")
        time.sleep(_PAUSE)


def start_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python program, with both of its outputs in pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def modules_after(program: str, *arguments: str) -> set[str]:
    """Return the top-level modules that a Python program has imported when it ends; argv[0] is ``program``.

    ``program`` is the name of a console script: ``main`` of ``MODULE:main`` is found in its metadata.
    """
    code = (
        "import sys, importlib.metadata as m\n"
        "name, sys.argv = sys.argv[1], sys.argv[1:]\n"
        "(found,) = [e for e in m.entry_points(group='console_scripts') if e.name == name]\n"
        "before = set(sys.modules)\n"
        "try:\n    found.load()()\n"
        "except SystemExit as e:\n    assert e.code in (0, None), e.code\n"
        "names = {n.partition('.')[0] for n in set(sys.modules) - before}\n"
        "sys.stderr.write('\\n' + ' '.join(sorted(names)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, program, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())
