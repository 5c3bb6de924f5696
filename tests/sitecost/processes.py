"""What a process takes, and how it is ended."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    """Return what all threads of a process have run for."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Return the anonymous and the file-backed memory of a process that is resident, in bytes."""
    found = dict(
        re.findall(r"^(Rss\w+):\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    )
    return int(found["RssAnon"]) * 1024, int(found["RssFile"]) * 1024


def stop(process: subprocess.Popen[bytes], patience: float) -> None:
    """Ask a process to end, and kill it after so many seconds."""
    process.terminate()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
