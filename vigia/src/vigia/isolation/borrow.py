"""What a tenant that borrows keeps while its neighbour sends within its contract, at the worst."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vigia.host import netns
from vigia.isolation.model import FlowOutcome, IsolationPlan, Mode, TrafficFlow
from vigia.isolation.testbed import IsolationTestbed

__all__ = ["Borrowed", "borrow", "judge", "neighbours"]

_SHARES = {"a": 0.5, "b": 0.2}
_LINK = 200_000_000
_ALONE, _SETTLES = 3.0, 0.1  # seconds of the borrower alone; until the neighbour's first window is over
_FRAME, _SEGMENT = 1514, 1448  # bytes of a full frame, and the TCP payload in it


@dataclass(frozen=True)
class Borrowed:
    """What a borrower kept beside one kind of neighbour; all but the name and the retransmits are ratios."""

    neighbour: str
    mean: float
    """of what the neighbour leaves"""
    second: float
    """the worst second, of what the neighbour leaves"""
    window: float
    """the worst 100 ms but the neighbour's first, of the guarantee"""
    retransmits: float
    """the share of its segments that it sent again, to that without a neighbour: queues of 2 ms cost some"""


def neighbours() -> Sequence[tuple[str, TrafficFlow]]:
    """Return the neighbours that the benchmark lets send, each within its contract of 38 Mbit/s."""

    def beside(source: int, rate: float, on: float = 0.0, period: float = 0.0) -> TrafficFlow:
        return TrafficFlow("b", source, 1, "udp", rate=rate * 1e6, delay=_ALONE, on=on, period=period)

    return [
        *((f"{rate} Mbit/s of UDP", beside(3, rate)) for rate in (1, 5, 20, 35)),
        ("5 Mbit/s of UDP from its own node", beside(2, 5)),
        ("bursts of 35 Mbit/s", beside(3, 35, on=0.1, period=0.5)),
    ]


def _segments(namespace: str) -> tuple[int, int]:
    """Return the TCP segments that a namespace has sent, and sent again."""

    def read() -> tuple[int, int]:
        names, values = (
            line.split()[1:]
            for line in Path("/proc/thread-self/net/snmp").read_text().splitlines()
            if line.startswith("Tcp:")
        )
        found = dict(zip(names, map(int, values), strict=True))
        return found["OutSegs"], found["RetransSegs"]

    return netns.inside(namespace, read)


def judge(name: str, outcome: FlowOutcome, beside: FlowOutcome, guarantee: float, again: float) -> Borrowed:
    """Return what a borrower kept of what was left of the goodput that it had alone."""
    alone = outcome.mean(1.0, _ALONE)
    seconds = len(outcome.goodput) // 10
    kept = [
        outcome.mean(s, s + 1) / max(alone - beside.mean(s, s + 1), 1.0)
        for s in range(int(_ALONE) + 1, seconds)
    ]
    windows = outcome.goodput[round((_ALONE + _SETTLES) * 10) : seconds * 10]
    return Borrowed(name, statistics.fmean(kept), min(kept), min(windows) / guarantee, again)


def borrow(enforcer: Path, seconds: float) -> list[Borrowed]:
    """Let TCP borrow beside each neighbour for so long. Raises VigiaError."""
    rows = []
    with IsolationTestbed(IsolationPlan(Mode.VIGIA, _SHARES, link=_LINK), enforcer) as bed:

        def run(*beside: TrafficFlow) -> tuple[Sequence[FlowOutcome], float]:
            before = _segments(bed.guest(2, "a"))
            outcomes = bed.run([TrafficFlow("a", 2, 1), *beside], _ALONE + seconds)
            sent, again = (after - b for after, b in zip(_segments(bed.guest(2, "a")), before, strict=True))
            return outcomes, again / max(sent, 1)

        _, usual = run()
        for name, neighbour in neighbours():
            (outcome, beside), again = run(neighbour)
            guarantee = bed.guarantee("a") * _SEGMENT / _FRAME
            rows.append(judge(name, outcome, beside, guarantee, again / max(usual, 1e-4)))
    return rows
