"""What the play showed: the timeline, the phases, and whether every step was seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from vigia.demo.scenario import Cast, Play
from vigia.demo.transfer import Interval
from vigia.errors import VigiaError
from vigia.lab.model import Datapath
from vigia_text import numbers, tables, terminal

__all__ = ["KEPT", "DemoOutcome", "Instant", "Phase", "assess", "promised"]

SECOND = 1.0
"""Seconds over which the throughput of the victim is averaged."""

FIRST = "first second of the flood"
"""It begins without a limit, and may end with one."""

LIMITED = "flood, limited"

KEPT = {FIRST: 0.9, LIMITED: 0.95}
"""Share of its guarantee that the victim has at least; without control it has 0.1 to 0.2 of it."""


@dataclass(frozen=True)
class Instant:
    """Something that happened, and when it was measured."""

    name: str
    at: float
    """Unix time."""
    text: str


@dataclass(frozen=True)
class Phase:
    """What the victim got during a part of the play."""

    name: str
    seconds: float
    bits_per_second: float
    retransmits: int
    probes: int
    lost: int

    @property
    def loss(self) -> float | None:
        """Share of the victim's probes that were lost; None without any, in a phase between two probes."""
        return self.lost / self.probes if self.probes else None


@dataclass(frozen=True)
class DemoOutcome:
    """The play, assessed."""

    instants: list[Instant]
    phases: list[Phase]
    guarantee: float
    """What the victim bought, in bits per second."""
    first_second: float
    """What the victim had in the first second of the flood, in bits per second."""
    worst_second: float
    """The least that the victim had in a second of the flood, in bits per second.

    It is told, and nothing is promised of it: TCP recovers from losses in its own time.
    """

    @property
    def kept(self) -> dict[str, float]:
        """Share of its guarantee that the victim had: in the first second, and under the limit; 1 at most."""
        (limited,) = (p.bits_per_second for p in self.phases if p.name == LIMITED)
        had = {FIRST: self.first_second, LIMITED: limited}
        return {name: min(1.0, rate / self.guarantee) for name, rate in had.items()}

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as data."""
        start = self.instants[0].at
        return {
            "timeline": [
                {
                    "event": i.name,
                    "at": _utc(i.at),
                    "seconds_after_flood": round(i.at - start, 6),
                    "text": i.text,
                }
                for i in self.instants
            ],
            "victim": [
                {
                    "phase": p.name,
                    "seconds": round(p.seconds, 3),
                    "bits_per_second": round(p.bits_per_second),
                    "retransmits": p.retransmits,
                    "probes": p.probes,
                    "probes_lost": p.lost,
                }
                for p in self.phases
            ],
            "guarantee": {
                "bits_per_second": round(self.guarantee),
                "kept": {name: round(share, 3) for name, share in self.kept.items()},
                "worst_second_bits_per_second": round(self.worst_second),
            },
        }

    def timeline(self, width: int | None = None) -> str:
        """Return the timeline for people, in so many columns."""
        start = self.instants[0].at
        rows = [(_utc(i.at)[11:], f"{i.at - start:+.3f} s", i.text) for i in self.instants]
        return tables.table(("time (UTC)", "since flood", "what"), rows, width=width)

    def victim(self, width: int | None = None) -> str:
        """Return the phases for people, in so many columns."""
        rows = [
            (
                p.name,
                f"{p.seconds:.1f} s",
                numbers.bits_per_second(p.bits_per_second),
                p.retransmits,
                p.probes,
                "-" if p.loss is None else numbers.percent(p.loss),
            )
            for p in self.phases
        ]
        header = ("phase", "time", "TCP", "retransmits", "probes", "probes lost")
        table = tables.table(header, rows, width=width)
        kept = ", ".join(f"{share:.0%} ({name})" for name, share in self.kept.items())
        worst = numbers.bits_per_second(self.worst_second)
        sentence = (
            f"of its guarantee of {self.guarantee / 1e6:g} Mbit/s it had {kept}; its worst second: {worst}"
        )
        return f"{table}\n\n{terminal.hang(sentence, width)}"


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def promised(who: Cast, datapath: Datapath) -> Mapping[str, float]:
    """Return the shares of KEPT that hold on the cast's path.

    A switch in user space forwards on one core. Until the flood is limited at its port, before the switch,
    it takes that core from the victim, whatever is scheduled on the link: nothing is promised until then.
    """
    in_user_space = datapath == "userspace" and who.victim.switch == "openvswitch"
    return {name: share for name, share in KEPT.items() if not (in_user_space and name == FIRST)}


def assess(play: Play, promises: Mapping[str, float] = KEPT) -> DemoOutcome:
    """Put what was observed in order.

    Raises VigiaError if a step was not seen or makes no sense, or if a promise was broken.
    """
    instants = list(_instants(play))
    for earlier, later in pairwise(instants):
        if later.at < earlier.at - 0.2:  # clocks of iperf3 and of the kernel stamps differ by less
            raise VigiaError(f'"{later.text}" was measured before "{earlier.text}": the order makes no sense')
    phases = list(_phases(play))
    seconds = _flooded_seconds(play)
    outcome = DemoOutcome(instants, phases, play.cast.guarantee * 8, seconds[0], min(seconds))
    for name, least in promises.items():
        share = outcome.kept[name]
        if share < least:
            raise VigiaError(
                f"{play.cast.victim.tenant} had only {share:.0%} of its guarantee, "
                f"{least:.0%} was promised ({name}); "
                "see GET /v1/actual of the enforcers of both nodes for what is scheduled"
            )
    return outcome


def _instants(play: Play) -> Iterator[Instant]:
    who, seen = play.cast, play.action.instants
    offender, victim = who.offender, who.victim
    limit = play.limit * 8 / 1e6
    yield Instant(
        "flood_start",
        play.flood.outcome.first_ns / 1e9,
        f"{offender.tenant} sends the first packet of the flood from {offender.node} ({offender.path})",
    )
    yield _from(seen, "kernel_detected", f"the kernel detects it at port {offender.port}")
    yield _from(seen, "alert_started", "Prometheus fires VigiaUdpFlood")
    yield _from(seen, "webhook_received", "the isolation agent has the alert")
    yield _from(
        seen, "limit_verified", f"{limit:g} Mbit/s of UDP at {offender.port}, read back from the kernel"
    )
    yield Instant(
        "victim_recovered",
        _recovery(play),
        f"{victim.tenant} has its guarantee of {who.guarantee * 8 / 1e6:g} Mbit/s under the limit",
    )
    yield Instant("flood_end", play.flood.outcome.last_ns / 1e9, f"{offender.tenant} sends the last packet")
    yield _from(seen, "released", "the limit is lifted on evidence, read back from the kernel")


def _from(seen: Any, event: str, text: str) -> Instant:
    if event not in seen:
        raise VigiaError(f"not observed: {text} (the action has no event {event})")
    return Instant(event, seen[event], text)


def _recovery(play: Play) -> float:
    """When the victim first had its guarantee on average for a second, after the limit was set."""
    limit = play.action.instants["limit_verified"]
    after = [i for i in play.intervals if i.begin >= limit]
    for begin, rate in _seconds(after):
        if rate >= play.cast.guarantee * 8:
            return begin
    bought = play.cast.guarantee * 8 / 1e6
    raise VigiaError(
        f"{play.cast.victim.tenant} did not get its guarantee of {bought:g} Mbit/s under the limit: "
        f"{_mean(after) / 1e6:.0f} Mbit/s on average"
    )


def _flooded_seconds(play: Play) -> list[float]:
    """What the victim had in each second that is within the flood, in bits per second."""
    inside = _touching(play, play.probes["flood"].at, play.probes["flood_end"].at)
    rates = [rate for _, rate in _seconds(inside)]
    if not rates:
        raise VigiaError("the transfer has no reading during the flood; see whether iperf3 runs here")
    return rates


def _seconds(intervals: list[Interval]) -> Iterator[tuple[float, float]]:
    """Yield the begin and the mean of every second of readings, from each reading on."""
    for k, first in enumerate(intervals):
        # A reading may take longer than it should: the second then ends with it.
        last = next((n for n, i in enumerate(intervals[k:], k) if i.end >= first.begin + SECOND - 0.05), None)
        if last is None:
            return
        yield first.begin, _mean(intervals[k : last + 1])


def _touching(play: Play, begin: float, end: float) -> list[Interval]:
    """Readings of the transfer that a time has a share in: one as short as a reading has some, too."""
    return [i for i in play.intervals if i.end > begin and i.begin < end]


def _mean(intervals: list[Interval]) -> float:
    total = sum(i.end - i.begin for i in intervals)
    return sum(i.bits_per_second * (i.end - i.begin) for i in intervals) / total if total else 0.0


def _phases(play: Play) -> Iterator[Phase]:
    boundaries = (
        ("before", "begin", "flood"),
        ("flood, no limit", "flood", "limit"),
        (LIMITED, "limit", "flood_end"),
        ("after", "flood_end", "end"),
    )
    for name, first, last in boundaries:
        begin, end = play.probes[first], play.probes[last]
        inside = _touching(play, begin.at, end.at)
        yield Phase(
            name=name,
            seconds=end.at - begin.at,
            bits_per_second=_mean(inside),
            retransmits=sum(i.retransmits for i in inside),
            probes=round(end.sent - begin.sent),
            lost=round(end.lost - begin.lost),
        )
