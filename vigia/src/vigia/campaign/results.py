"""What the programs of a campaign print, read."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from vigia.errors import VigiaError

__all__ = ["Traffic", "benchmark", "echoes", "probes", "traffic"]

_ECHO = re.compile(r"icmp_seq=(\d+) .*time=([\d.]+) ms")
_REPORT_LIMIT = 64 << 20


@dataclass(frozen=True)
class Traffic:
    """What an iperf3 client and its server counted after the warm-up."""

    received: float
    """Bits per second that arrived at the server."""
    received_back: float | None
    """The same of the other direction, if there was one."""
    lost: float | None
    """Ratio of datagrams that were lost (UDP)."""
    retransmits: int | None
    """Segments sent again (TCP)."""
    packets: int | None
    """Datagrams that were sent (UDP)."""
    seconds: float


def traffic(text: str) -> Traffic:
    """Read the JSON of an iperf3 client. Raises VigiaError with its reason."""
    report = _json(text, "iperf3")
    if report.get("error"):
        raise VigiaError(f"iperf3: {report['error']}")
    try:
        end = report["end"]
        udp = report["start"]["test_start"]["protocol"] == "UDP"
        sent, received = end["sum_sent"], end["sum_received"]
        back = end.get("sum_received_bidir_reverse")
        return Traffic(
            received=float(received["bits_per_second"]),
            received_back=float(back["bits_per_second"]) if back else None,
            lost=_lost(sent, received) if udp else None,
            retransmits=None if udp else int(sent.get("retransmits", 0)),
            packets=int(end["sum"]["packets"]) if udp else None,
            seconds=float(received["seconds"]),
        )
    except (KeyError, TypeError, ValueError) as e:
        raise VigiaError(f"iperf3's report lacks {e}") from e


def _lost(sent: dict[str, Any], received: dict[str, Any]) -> float | None:
    """Return the ratio of bytes that did not arrive, None if none were sent.

    The client's own count of losses has those of the warm-up, too, and may exceed all that were sent since.
    What arrived may be a little more than what was sent: the server begins and ends its count a little later.
    """
    if not sent["bytes"]:
        return None
    return max(0.0, 1 - int(received["bytes"]) / int(sent["bytes"]))


def echoes(text: str, count: int) -> list[float]:
    """Read ping's output: seconds of each of count echoes, NaN for one that was lost."""
    found = {int(m[1]): float(m[2]) / 1000 for m in _ECHO.finditer(text)}
    return [found.get(i, math.nan) for i in range(1, count + 1)]


def probes(text: str) -> tuple[list[float], list[float]]:
    """Read vigia-probe once --json: seconds of each round trip, of the kernel's and of the application's.

    NaN is a packet that was lost, or of which the kernel gave no time.
    Raises VigiaError if nothing was sent.
    """
    report = _json(text, "vigia-probe")
    if not report.get("probes"):
        raise VigiaError(f"vigia-probe sent nothing: {report.get('reason', 'no reason given')}")

    def values(key: str) -> list[float]:
        return [math.nan if p.get(key) is None else float(p[key]) for p in report["probes"]]

    return values("rtt_seconds"), values("rtt_application_seconds")


def benchmark(text: str) -> dict[str, float]:
    """Read the JSON of vigia.campaign.benchmarks. Raises VigiaError."""
    return {name: float(value) for name, value in _json(text, "the benchmark").items()}


def _json(text: str, program: str) -> dict[str, Any]:
    if len(text) > _REPORT_LIMIT:
        raise VigiaError(f"{program} wrote more than {_REPORT_LIMIT} bytes")
    try:
        report = json.loads(text)
    except ValueError as e:
        raise VigiaError(f"{program} did not report: {text.strip()[:200] or 'it wrote nothing'}") from e
    if not isinstance(report, dict):
        raise VigiaError(f"{program} did not report an object")
    return report
