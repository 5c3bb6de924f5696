"""A program on a pseudo terminal, and what it sends there."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping

from vigia_testing import DEADLINE

SCREEN = f"""
import sys, time

class Screen:
    def __init__(self): self.out, self.seen = sys.stdout, ""
    def write(self, text):
        self.seen += text
        return self.out.write(text)
    def __getattr__(self, name): return getattr(self.out, name)

def draws(): return True

def until(*words):
    for _ in range({int(DEADLINE * 100)}):
        if not draws() or all(w in screen.seen for w in words): return
        time.sleep(0.01)
    sys.exit(f"{{words!r}} are not drawn")

screen = Screen()
"""
"""The begin of a program that goes on once something is drawn, on the terminal whose content it knows."""


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
