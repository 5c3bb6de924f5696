"""What a campaign ran on: enough to know later why its numbers are what they are."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vigia.errors import VigiaError
from vigia.host import commands

__all__ = ["describe", "load"]

_VERSIONS = {
    "iperf3": ["iperf3", "--version"],
    "ping": ["ping", "-V"],
    "ip": ["ip", "-V"],
    "ovs": ["ovs-vsctl", "--version"],
    "fio": ["fio", "--version"],
    "cc": ["cc", "--version"],
    "strongswan": ["swanctl", "--version"],
}


def describe(source: Path | None) -> dict[str, Any]:
    """Return kernel, machine, versions, settings and the revision of the source folder, if there is one."""
    return {
        "kernel": platform.release(),
        "system": _release(),
        "machine": platform.machine(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "receive_buffer_max": _read("/proc/sys/net/core/rmem_max"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "none",
        "versions": _versions(),
        "revision": _revision(source),
        "load": list(load()),
    }


def load() -> tuple[float, float, float]:
    """Return the load averages over 1, 5 and 15 minutes."""
    return os.getloadavg()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _release() -> str:
    found = re.search(r'PRETTY_NAME="(.*)"', _read("/etc/os-release"))
    return found[1] if found else platform.system()


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.*)", _read("/proc/cpuinfo"))
    return found[1] if found else platform.processor()


def _versions() -> Mapping[str, str]:
    found = {}
    for name, argv in _VERSIONS.items():
        if commands.find(argv[0]) is None:
            continue
        said = commands.run(argv, check=False)
        # strongSwan's complains of plugins and of no daemon before it says its version.
        lines = [
            line
            for line in (said.stdout + "\n" + said.stderr).splitlines()
            if re.search(r"\d", line) and not line.startswith("plugin ")
        ]
        if lines:
            found[name] = lines[0].strip()[:100]
    return found


def _revision(source: Path | None) -> str:
    if source is None or commands.find("git") is None:
        return ""
    try:
        where = ["git", "-C", str(source)]
        head = commands.run([*where, "rev-parse", "HEAD"], check=False).stdout.strip()
        changed = commands.run([*where, "status", "--porcelain"], check=False).stdout.strip()
    except VigiaError:
        return ""
    return f"{head} with changes" if head and changed else head
