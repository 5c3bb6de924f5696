"""What a tenant that borrows keeps while its neighbours send within their contracts, at the worst."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from vigia.host import netns
from vigia.isolation.model import FlowOutcome, IsolationPlan, Mode, TrafficFlow
from vigia.isolation.overlay import OverlaySwitch, OverlayTestbed

__all__ = [
    "NOBODY",
    "SHARES",
    "Borrowed",
    "Setting",
    "Situation",
    "add_options",
    "borrow",
    "judge",
    "settings",
    "situations",
]

SHARES = {"a": 0.5, "b": 0.2, "c": 0.15, "d": 0.1}
"""What the borrower a and its neighbours bought, of what the link gives out."""

NOBODY = "nobody"
"""In place of a neighbour's name: what the bed itself does to a borrower, and no budget is held against."""

_TCP = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_LINK = 200_000_000
_TURNS = 3  # of a borrower alone: what TCP sends again by itself differs by more than what is forbidden
_ALONE, _SETTLES = 3.0, 0.1  # seconds of the borrower alone; until the neighbour's first window is over
_FRAME, _SEGMENT = 1514 + 50, 1448  # bytes of a full frame in VXLAN, and the TCP payload in it


@dataclass(frozen=True)
class Situation:
    """Who borrows, and who sends beside it, within its contract."""

    name: str
    neighbours: Sequence[TrafficFlow]
    borrower: TrafficFlow = field(default_factory=lambda: TrafficFlow("a", 2, 1))


@dataclass(frozen=True)
class Setting:
    """On what a tenant borrows, and how guests send TCP there."""

    switch: OverlaySwitch
    congestion: str
    """control of TCP, by the kernel's name"""
    offload: bool = False
    """devices cut what TCP sends into frames: queues meet up to 64 KiB at once"""

    def __str__(self) -> str:
        return f"{self.switch.value}, {self.congestion}" + (" with offload" if self.offload else "")


@dataclass(frozen=True)
class Borrowed:
    """What a borrower kept in one situation: ratios, and shares of what it sent."""

    setting: str
    neighbour: str
    mean: float
    """of what the neighbours leave"""
    second: float
    """the worst second, of what the neighbours leave"""
    window: float
    """the worst 100 ms but the neighbours' first, of the guarantee"""
    alone: float
    """the share of its segments that it sends again without a neighbour, once its flows have begun:
    the most of some turns"""
    again: float
    """that share beside the neighbour, from the neighbour's beginning on"""


def situations() -> Sequence[Situation]:
    """Return what the benchmark tries: a's flow goes from node 2 to node 1, b bought 37 Mbit/s."""

    def beside(rate: float, protocol: str = "udp", source: int = 3, sink: int = 1) -> TrafficFlow:
        return TrafficFlow("b", source, sink, protocol, rate=rate * 1e6, delay=_ALONE)

    ten = TrafficFlow("a", 2, 1, connections=10)
    four = [beside(34), replace(beside(20, "tcp"), tenant="c"), replace(beside(10, source=2), tenant="d")]
    return [
        *(Situation(f"{rate} Mbit/s of UDP", [beside(rate)]) for rate in (1, 5, 20, 34)),
        *(Situation(f"{rate} Mbit/s of TCP", [beside(rate, "tcp")]) for rate in (5, 34)),
        Situation("34 Mbit/s of TCP in ten flows", [replace(beside(34, "tcp"), connections=10)]),
        Situation("2 Mbit/s of SYN", [beside(2, "syn")]),
        Situation("bursts of 34 Mbit/s", [replace(beside(34), on=0.1, period=0.5)]),
        Situation("5 Mbit/s of UDP from its own node", [beside(5, source=2)]),
        Situation("20 Mbit/s of UDP from its own node to a third", [beside(20, source=2, sink=3)]),
        Situation("20 Mbit/s of UDP the other way", [beside(20, source=1, sink=3)]),
        Situation("20 Mbit/s of UDP, in ten flows itself", [beside(20)], ten),
        Situation("34 Mbit/s of TCP, in ten flows itself", [beside(34, "tcp")], ten),
        Situation("three tenants", four),
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


class _Counter:
    """Counts a namespace's segments from the moment on at which neighbours begin."""

    def __init__(self, namespace: str, pool: ThreadPoolExecutor) -> None:
        self._namespace, self._pool = namespace, pool
        self._first: Future[tuple[int, int]] | None = None

    def begin(self, start: float) -> None:
        """Flows will begin at a moment of CLOCK_MONOTONIC, and neighbours after them: what TCP loses while
        it finds out how fast it may send is not theirs."""
        self._first = self._pool.submit(self._at, start + _ALONE)

    def _at(self, moment: float) -> tuple[int, int]:
        time.sleep(max(0.0, moment - time.monotonic()))
        return _segments(self._namespace)

    def share(self) -> float:
        """Return the share that was sent again."""
        assert self._first is not None  # noqa: S101 - for the type checker
        pairs = zip(_segments(self._namespace), self._first.result(), strict=True)
        sent, again = (after - before for after, before in pairs)
        return again / max(sent, 1)


def _shared(flow: TrafficFlow, other: TrafficFlow) -> bool:
    """Tell whether both use one link in the same direction."""
    return flow.source == other.source or flow.sink == other.sink


def judge(
    outcome: FlowOutcome, beside: Sequence[FlowOutcome], guarantee: float
) -> tuple[float, float, float]:
    """Return what a borrower kept of what was left of the goodput that it had alone: mean, worst second;
    and its worst 100 ms, of its guarantee."""
    alone = outcome.mean(1.0, _ALONE)
    seconds = len(outcome.goodput) // 10
    beside = [b for b in beside if _shared(outcome.flow, b.flow)]
    kept = [
        outcome.mean(s, s + 1) / max(alone - sum(b.mean(s, s + 1) for b in beside), 1.0)
        for s in range(int(_ALONE) + 1, seconds)
    ]
    windows = outcome.goodput[round((_ALONE + _SETTLES) * 10) : seconds * 10]
    return statistics.fmean(kept), min(kept), min(windows) / guarantee


def borrow(
    enforcer: Path,
    setting: Setting,
    seconds: float,
    chosen: Sequence[Situation],
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Borrowed]:
    """Let TCP borrow in each situation for so long. Raises VigiaError."""
    usual: dict[TrafficFlow, float] = {}
    plan = IsolationPlan(Mode.VIGIA, SHARES, link=_LINK, offload=setting.offload)
    with OverlayTestbed(plan, enforcer, setting.switch) as bed, ThreadPoolExecutor(1) as pool:
        guarantee = bed.guarantee("a") * _SEGMENT / _FRAME

        def run(*flows: TrafficFlow) -> tuple[Sequence[FlowOutcome], float]:
            counter = _Counter(bed.guest(flows[0].source, flows[0].tenant), pool)
            ordered = [replace(f, congestion=setting.congestion) for f in flows]
            outcomes = bed.run(ordered, _ALONE + seconds, counter.begin)
            return outcomes, counter.share()

        for one in chosen:
            if one.borrower not in usual:
                turns = [run(one.borrower) for _ in range(_TURNS)]
                usual[one.borrower] = max(share for _, share in turns)
                flows = ", in ten flows itself" if one.borrower.connections > 1 else ""
                each = [judge(outcome, [], guarantee) for (outcome,), _ in turns]
                mean, second, window = (min(values) for values in zip(*each, strict=True))
                again = usual[one.borrower]
                yield Borrowed(str(setting), NOBODY + flows, mean, second, window, again, again)
            (outcome, *beside), again = run(one.borrower, *one.neighbours)
            kept = judge(outcome, beside, guarantee)
            found = Borrowed(str(setting), one.name, *kept, usual[one.borrower], again)
            say(f"measured a borrower beside {one.name} on {setting}")
            yield found


def _switches(text: str) -> list[OverlaySwitch]:
    known = [s.value for s in OverlaySwitch]
    for name in filter(None, text.split(",")):
        if name not in known:
            raise argparse.ArgumentTypeError(f"unknown switch {name!r}; have {', '.join(known)}")
    return [OverlaySwitch(name) for name in filter(None, text.split(","))]


def _congestion(text: str) -> str:
    known = _TCP.with_name("tcp_available_congestion_control").read_text().split()
    if text not in known:
        raise argparse.ArgumentTypeError(f"this machine has no {text!r}; have {', '.join(known)}")
    return text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what a borrower is measured with."""
    borrower = "switches on which a tenant borrows, with commas; default: all; '' leaves it out"
    parser.add_argument("--borrower", type=_switches, default=list(OverlaySwitch), help=borrower)
    congestion = "the borrower's and its neighbours' congestion control of TCP; default: the machine's"
    parser.add_argument("--congestion", type=_congestion, help=congestion)
    offload = "1: devices cut what the borrower and its neighbours send by TCP into frames"
    parser.add_argument("--offload", type=int, default=0, help=offload)


def settings(options: argparse.Namespace) -> list[Setting]:
    """Return what was chosen, a setting for each switch."""
    congestion = options.congestion or _TCP.read_text().strip()
    return [Setting(switch, congestion, bool(options.offload)) for switch in options.borrower]
