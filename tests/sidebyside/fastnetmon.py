"""FastNetMon of Debian in the nodes of a bed, at the same taps as the enforcer."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vigia.host import commands

__all__ = ["SHIPPED", "TUNED", "Named", "Watcher", "configuration", "missing"]

PROGRAM, SHIPPED_FILE = "fastnetmon", Path("/etc/fastnetmon.conf")

SHIPPED: Mapping[str, str] = {}
"""As the package comes: 20 000 packets/s, 1 000 Mbit/s, an average over 5 s."""

TUNED: Mapping[str, str] = {
    "average_calculation_time": "1",
    "threshold_mbps": "60",
    "threshold_pps": "6000",
    "ban_for_udp_bandwidth": "on",
    "threshold_udp_mbps": "12",
    "ban_for_icmp_bandwidth": "on",
    "threshold_icmp_mbps": "12",
    "ban_for_udp_pps": "on",
    "threshold_udp_pps": "5000",
    "ban_for_icmp_pps": "on",
    "threshold_icmp_pps": "2000",
}
"""As somebody sets it who knows the bed: a link of 50 Mbit/s, senders that bought 9.4 of it, averages of a second."""

_NEEDED = {
    "disable_usage_report": "on",
    "mirror_afpacket": "on",
    "enable_api": "off",
    "prometheus": "off",
    "monitor_local_ip_addresses": "off",
}
_LINE = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$")


def missing() -> str:
    """Return how to get FastNetMon if it is not there, or nothing."""
    there = commands.find(PROGRAM) is not None and SHIPPED_FILE.exists()
    return "" if there else "missing: apt-get install fastnetmon"


def configuration(shipped: str, changes: Mapping[str, str]) -> str:
    """Return the package's configuration with some keys changed; what it does not have is added."""
    left, out = dict(changes), []
    for line in shipped.splitlines():
        if (m := _LINE.match(line)) and m[1] in changes:
            if m[1] in left:
                out.append(f"{m[1]} = {left.pop(m[1])}")
            continue
        out.append(line)
    return "\n".join([*out, *(f"{key} = {value}" for key, value in left.items())]) + "\n"


@dataclass(frozen=True)
class Named:
    """Whom it told of."""

    at: float
    """Unix time"""
    address: str
    direction: str


class Watcher:
    """One FastNetMon on a node's taps, told to notify and to do nothing else."""

    def __init__(
        self,
        folder: Path,
        node: str,
        devices: Sequence[str],
        guests: Sequence[str],
        changes: Mapping[str, str],
    ) -> None:
        """folder is its own; guests are the addresses of the node's own guests, which it guards."""
        folder.mkdir(parents=True)
        self._told = folder / "told"
        self._log = folder / "log"
        notify = folder / "notify.sh"
        notify.write_text(f'#!/bin/sh\necho "$(date +%s.%N) $*" >> {self._told}\ncat > /dev/null\n')
        notify.chmod(0o755)
        (folder / "networks").write_text("".join(f"{g}/32\n" for g in guests))
        (folder / "white").write_text("")
        changes = {
            **_NEEDED,
            **changes,
            "interfaces": ",".join(devices),
            "networks_list_path": str(folder / "networks"),
            "white_list_path": str(folder / "white"),
            "notify_script_path": str(notify),
            "pid_path": str(folder / "pid"),
            "cli_stats_file_path": str(folder / "stats"),
            "cli_stats_ipv6_file_path": str(folder / "stats6"),
        }
        file = folder / "fastnetmon.conf"
        file.write_text(configuration(SHIPPED_FILE.read_text(), changes))
        argv = [
            PROGRAM,
            "--configuration_file",
            str(file),
            "--log_file",
            str(self._log),
            "--disable_pid_logic",
        ]
        self._process = commands.start(argv, log=folder / "output", netns=node)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until it captures. Raises RuntimeError with what it said if it does not."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._log.exists() and "AF_PACKET" in self._log.read_text(errors="replace"):
                return
            time.sleep(0.05)
        said = self._log.read_text(errors="replace") if self._log.exists() else ""
        raise RuntimeError(f"fastnetmon does not capture: {said[-1000:]}")

    def named(self) -> list[Named]:
        """Return whom it has told of so far."""
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        words = [line.split() for line in lines]
        return [Named(float(w[0]), w[1], w[2]) for w in words if len(w) > 4 and w[4] != "unban"]

    def stop(self) -> None:
        """End it at once: there is nothing to keep."""
        self._process.send_signal(signal.SIGKILL)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired as e:
            raise RuntimeError("fastnetmon does not end") from e
