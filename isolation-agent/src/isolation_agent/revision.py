"""Which source this is: stamped at build time, or asked of git where the sources are a checkout."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

__all__ = ["revision"]

_STAMP = "_revision.txt"


@cache
def revision() -> str:
    """Return the short commit id, or unknown."""
    folder = Path(__file__).parent
    try:
        return (folder / _STAMP).read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        pass
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5.0,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip() or "unknown"
