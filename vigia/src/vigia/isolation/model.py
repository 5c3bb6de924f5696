"""What a testbed of the isolation experiments shall be, what runs on it, and what that brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from vigia.isolation.traffic import BIN

__all__ = ["FlowOutcome", "IsolationPlan", "Mode", "ShuffleJob", "ShuffleOutcome", "TrafficFlow"]


class Mode(Enum):
    """How tenants are kept apart."""

    NONE = "none"
    """nothing: best effort"""
    RIGID = "rigid"
    """schedulers at both ends; nobody gets more than its guarantee"""
    BORROWING = "borrowing"
    """schedulers at both ends; what is idle is lent"""
    PAPER = "paper"
    """borrowing, and senders are told by the plain scheme: halve, grow linearly"""
    VIGIA = "vigia"
    """borrowing, and senders are told an explicit rate for one destination"""


@dataclass(frozen=True)
class IsolationPlan:
    """What a bed shall be."""

    mode: Mode
    guarantees: Mapping[str, float]
    """tenant -> share of what the link gives out"""
    hosts: int = 3
    link: int = 50_000_000
    """rate of an access link, bits per second"""
    headroom: float = 0.05
    queue: int = 160
    """frames that an access link holds"""
    offload: bool = False
    """guests leave it to devices to cut what TCP sends into frames"""
    operators: Sequence[str] = ()
    """tenants without a contract: the operator's own, which probe"""


@dataclass(frozen=True)
class TrafficFlow:
    """Traffic of a tenant from its guest on one host to that on another."""

    tenant: str
    source: int
    sink: int
    protocol: str = "tcp"
    """tcp, udp, or syn: TCP connections that are begun, and go no further"""
    connections: int = 1
    rate: float = 0.0
    """bits per second of payload, syn: of frames; 0 = udp: twice the link; tcp: all that it gets"""
    size: int = 1400
    """udp: payload of a datagram, bytes"""
    delay: float = 0.0
    """seconds after the others"""
    on: float = 0.0
    """udp: seconds of every period in which it sends; 0 = all the time"""
    period: float = 0.0
    """udp: seconds from the beginning of one pulse to that of the next"""
    congestion: str = ""
    """tcp: the sender's congestion control; empty: the machine's"""
    early: float = 0.0
    """seconds by which it ends before the others, so that nothing is on its way when counting ends"""


@dataclass(frozen=True)
class FlowOutcome:
    """What a flow brought."""

    flow: TrafficFlow
    goodput: Sequence[float]
    """bits per second of payload, for every BIN seconds since the first flow began"""
    offered: float
    """bits of payload that the sender had accepted"""

    @property
    def lost(self) -> float:
        """The share of what was offered that did not arrive."""
        return 1 - sum(self.goodput) * BIN / self.offered if self.offered else 0.0

    def mean(self, begin: float = 0.0, end: float | None = None) -> float:
        """Return the mean goodput between two moments, bits per second."""
        part = self.goodput[round(begin / BIN) : None if end is None else round(end / BIN)]
        return sum(part) / max(1, len(part))


@dataclass(frozen=True)
class ShuffleJob:
    """An all-to-all job of a tenant, with a machine on every host."""

    tenant: str
    partition: int
    """bytes that each machine fetches from each other one"""
    longest: float
    """seconds after which it is given up"""
    parallel: int = 5
    """fetches of one machine at a time: what MapReduce's reducers do by default"""
    seed: int = 0
    """of the order in which machines fetch"""


@dataclass(frozen=True)
class ShuffleOutcome:
    """What became of a job, and what its competitors brought meanwhile."""

    seconds: float | None
    """until the last machine had everything; None if the job was given up"""
    goodput: float
    """bits per second of payload that one machine received on average, until the job was over"""
    fetched: float
    """ratio of the job's data that arrived"""
    competitors: Sequence[float]
    """bits per second of payload of each flow while the job ran"""
