"""Running a flood and making sure that it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from vigia.errors import VigiaError
from vigia.flood.order import FloodOrder
from vigia.flood.sender import FloodOutcome
from vigia.host import commands

__all__ = ["FloodReport", "run"]

_GRACE = 30.0
"""Seconds beyond its time that a flood may take to start and end on a busy machine."""


@dataclass(frozen=True)
class FloodReport:
    """A flood that has been sent."""

    order: FloodOrder
    outcome: FloodOutcome

    @property
    def seconds(self) -> float:
        """Time from the first to the last packet."""
        return (self.outcome.last_ns - self.outcome.first_ns) / 1e9

    @property
    def rate(self) -> float:
        """Achieved rate in bits of UDP payload per second."""
        sent = self.outcome.packets * self.order.size * 8
        return sent / self.seconds if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, object]:
        """Return the report as data."""
        o = self.order
        return {
            "tenant": o.tenant,
            "path": o.path,
            "node": o.node,
            "from": o.source,
            "to": o.destination,
            "first_packet": instant(self.outcome.first_ns),
            "last_packet": instant(self.outcome.last_ns),
            "seconds": round(self.seconds, 6),
            "packets": self.outcome.packets,
            "bytes": self.outcome.packets * o.size,
            "packet_bytes": o.size,
            "wanted_bits_per_second": o.rate * 8,
            "achieved_bits_per_second": round(self.rate),
            "send_errors": self.outcome.errors,
        }

    def as_text(self) -> str:
        """Return the report for people."""
        v = self.as_json()
        return "\n".join(
            [
                f"flood         {v['tenant']} on {v['path']} from {v['node']}: {v['from']} to {v['to']}",
                f"first packet  {v['first_packet']}",
                f"last packet   {v['last_packet']}  ({self.seconds:.3f} s)",
                f"sent          {v['packets']} packets of {v['packet_bytes']} bytes, {v['bytes']} bytes",
                f"rate          {self.rate / 1e6:.1f} Mbit/s of {self.order.rate * 8 / 1e6:g} Mbit/s wanted",
                f"send errors   {v['send_errors']}",
            ]
        )


def instant(nanoseconds: int) -> str | None:
    """Return a Unix time as UTC with microseconds, None for none."""
    if not nanoseconds:
        return None
    seconds, rest = divmod(nanoseconds, 10**9)
    stamp = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def run(order: FloodOrder) -> FloodReport:
    """Send a flood and wait for its end. Raises VigiaError.

    If this process is interrupted the flood stops and what was sent is still
    reported. If it is killed, the kernel kills the sender with it.
    """
    argv = [sys.executable, "-m", "vigia.flood.sender"]
    with commands.spawn(argv, json.dumps({"order": asdict(order), "parent": os.getpid()})) as child:
        try:
            out, err = _wait(child, order)
        except subprocess.TimeoutExpired as e:
            raise VigiaError(f"the flood did not end after {order.seconds:g} s and was killed") from e
        finally:
            child.kill()
    if child.returncode != 0:
        raise VigiaError(f"the flood was not sent: {err.strip() or f'exit status {child.returncode}'}")
    return FloodReport(order, FloodOutcome(**json.loads(out)))


def _wait(child: subprocess.Popen[str], order: FloodOrder) -> tuple[str, str]:
    try:
        return child.communicate(timeout=order.seconds + _GRACE)
    except KeyboardInterrupt:
        child.terminate()
        return child.communicate(timeout=_GRACE)
