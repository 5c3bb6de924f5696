"""A program on a pseudo terminal, and what it sends there."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping


def on_a_terminal(code: str, env: Mapping[str, str]) -> str:
    """Return what Python code prints on a terminal, with these variables alone. It has to end with 0."""
    leader, follower = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", code], stdout=follower, stderr=follower, env=dict(env))
    os.close(follower)
    seen = b""
    while True:
        try:
            more = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        seen += more
    os.close(leader)
    assert child.wait() == 0, seen.decode()
    return seen.decode()
