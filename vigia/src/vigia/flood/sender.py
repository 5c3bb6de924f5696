"""The flood's sending process: python -m vigia.flood.sender, its order as JSON on standard input.

It enters the tenant's namespace for good, so it can reach nothing else. It ends
by itself: after its time, with its parent, and by an alarm should it hang.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any

from vigia.errors import VigiaError
from vigia.flood.order import FloodOrder
from vigia.flood.packets import PacketTrain
from vigia.host import netns, syscalls

__all__ = ["FloodOutcome", "main", "send"]

_BATCH = 64  # packets to a system call
_PAUSE = 0.0005  # seconds; the longest burst after a pause is the rate times this
_GRACE = 10  # seconds


@dataclass
class FloodOutcome:
    """What was sent, and when."""

    packets: int = 0
    errors: int = 0
    first_ns: int = 0
    """Unix time just before the first packet, in nanoseconds."""
    last_ns: int = 0
    """Unix time just after the last packet, in nanoseconds."""


class StopSignal:
    """Set by SIGTERM and SIGINT: the flood ends early and still reports."""

    def __init__(self) -> None:
        self.wanted = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True


def send(order: FloodOrder, train: PacketTrain, stop: StopSignal) -> FloodOutcome:
    """Send at the ordered rate for the ordered time.

    The schedule is fixed beforehand: after a delay, what is due is sent at
    once, but never more than a tenth of a second of it.
    """
    outcome = FloodOutcome()
    per_second = order.rate / order.size
    begin = time.monotonic()
    end = begin + order.seconds
    allowance = per_second / 10 + 1
    skipped = 0.0
    while not stop.wanted:
        now = time.monotonic()
        if now >= end:
            break
        due = (now - begin) * per_second + 1 - skipped - outcome.packets - outcome.errors
        if due > allowance:
            skipped += due - allowance
            due = allowance
        if due < 1:
            time.sleep(_PAUSE)
            continue
        before = time.time_ns()
        sent, failed = train.send(min(int(due), _BATCH))
        outcome.packets += sent
        outcome.errors += failed
        if sent:
            outcome.first_ns = outcome.first_ns or before
            outcome.last_ns = time.time_ns()
    return outcome


def main() -> None:
    """Read the order, send, write the outcome as JSON to standard output."""
    given: dict[str, Any] = json.load(sys.stdin)
    order = FloodOrder(**given["order"])
    syscalls.die_with_parent(given["parent"])
    signal.setitimer(signal.ITIMER_REAL, order.seconds + _GRACE)  # SIGALRM ends the process
    stop = StopSignal()
    try:
        netns.enter(order.netns)
        train = PacketTrain(order.source, order.destination, order.size, order.ports)
    except (VigiaError, OSError) as e:
        sys.exit(f"cannot send from {order.source} in {order.netns}: {e}")
    outcome = send(order, train, stop)
    train.close()
    json.dump(asdict(outcome), sys.stdout)


if __name__ == "__main__":
    main()
