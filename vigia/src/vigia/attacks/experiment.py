"""One entry of the corpus against a bed, and what it came to."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from vigia.attacks import stream as ends
from vigia.attacks.corpus import SHARES, Entry, Stream
from vigia.attacks.frames import StreamEnds
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.isolation.model import FlowOutcome, IsolationPlan, Mode, TrafficFlow
from vigia.isolation.overlay import OverlayTestbed
from vigia.isolation.traffic import BIN

__all__ = [
    "LEAST",
    "LINK",
    "ONSET",
    "OPERATOR",
    "SUSPECT",
    "AttackTrial",
    "calm",
    "faults",
    "lost",
    "payload",
    "plan",
    "run",
    "time_to_limit",
]

LINK = 50_000_000
"""Rate of an access link, bits per second."""

ONSET = 2.0
"""Seconds of the victim alone."""

OPERATOR = "_infra"

LEAST = 0.95
"""What the victim must keep of its guarantee from a second after the onset, also in its worst second."""

SUSPECT = 70.0
"""Flood score from which the alert speaks."""

_REACTS = 1.0  # seconds in which the victim may suffer
_LOST = 0.005  # of what an honest tenant or the operator sends, from its second second
_PROBES = 80_000  # bits per second of the operator's probes: 200 packets of 50 bytes
_ENCAPSULATION = 50  # bytes of VXLAN, which a guarantee counts
_FRAME, _SEGMENT = 1514, 1448  # bytes of a full frame, and the TCP payload in it
_VICTIM = TrafficFlow("a", 2, 1)
_ATTEMPTS, _LATE = (
    4,
    0.25,
)  # runs at most, and seconds by which a stream may begin late in the one that counts
_LOOKED_AT = 0.3  # seconds between two looks at the scores
_FADES = 10.0  # seconds in which a score may fade before the next entry


@dataclass(frozen=True)
class AttackTrial:
    """What one run of an entry came to; shares are of what was bought."""

    entry: str
    switch: str
    victim: float
    """goodput from a second after the onset, mean"""
    worst: float
    """the worst second of it"""
    offered: float
    """what the entry's senders sent together, of what they bought together"""
    limited: float | None
    """seconds from the onset to the first limit at a source; None: there was none"""
    lost: float
    """share that the entry's receivers lost from the second second; 0 where nobody counts"""
    kept: float
    """what an honest tenant's TCP had from its second second on, of what it bought; 1 without TCP"""
    probes_lost: float
    """share of the operator's probes that was lost from the second second, both ways"""
    score: float
    """highest flood score of the entry's ports"""
    policed: float
    """packets of the entry's ports that limits dropped"""
    load: float


def plan() -> IsolationPlan:
    """Return the bed that the corpus needs."""
    return IsolationPlan(Mode.VIGIA, SHARES, link=LINK, operators=(OPERATOR,))


def payload(frames: float) -> float:
    """Return the TCP payload in a rate of full frames in VXLAN."""
    return frames * _SEGMENT / (_FRAME + _ENCAPSULATION)


def lost(sent: Sequence[float], received: Sequence[float], begin: float) -> float:
    """Return the share lost between two counts by BIN seconds, from a moment on."""
    first = round(begin / BIN)
    given = sum(sent[first:])
    return max(0.0, 1 - sum(received[first:]) / given) if given else 0.0


_STAMP = re.compile(r'^time=(\S+) .*msg="source limited" port=(\w+)-\d+ ')


def time_to_limit(logs: Sequence[str], tenants: Sequence[str], begun: float) -> float | None:
    """Return the seconds from a Unix time to the first limit on a port of the tenants."""
    found = []
    for line in "\n".join(logs).splitlines():
        if (m := _STAMP.match(line)) and m[2] in tenants:
            at = datetime.fromisoformat(m[1].replace("Z", "+00:00")).timestamp()
            if at >= begun:
                found.append(at - begun)
    return min(found, default=None)


def faults(entry: Entry, trial: AttackTrial, *, honest: bool) -> list[str]:
    """Return what of the requirement a run did not meet."""
    found = []
    if trial.victim < LEAST or trial.worst < LEAST:
        found.append(
            f"the victim has {trial.victim:.2f} of its guarantee, {trial.worst:.2f} in the worst second"
        )
    if trial.probes_lost > _LOST:
        found.append(f"{trial.probes_lost:.1%} of the operator's probes are lost")
    if not honest:
        if trial.offered <= 1:
            found.append(f"only {trial.offered:.2f} of the contract was sent: this machine is too busy")
        return found
    return found + _accusations(entry, trial)


def _accusations(entry: Entry, trial: AttackTrial) -> list[str]:
    """Return what an honest tenant had to suffer."""
    found = []
    if trial.kept < LEAST:
        found.append(f"its TCP has {trial.kept:.2f} of what it bought")
    if all(
        f.protocol == "udp" for f in entry.flows
    ):  # TCP may borrow, and is told to leave others their room
        if trial.limited is not None:
            found.append("it was limited within its contract")
        if trial.policed:
            found.append(f"{trial.policed:.0f} of its packets were policed")
        if trial.lost > _LOST:
            found.append(f"{trial.lost:.1%} of it is lost")
    if trial.score >= SUSPECT:
        found.append(f"it is taken for a flood (score {trial.score:.0f})")
    return found


def _score(bed: OverlayTestbed, hosts: Sequence[int], tenants: Sequence[str]) -> float:
    """Return the highest flood score of some ports now."""
    ports = [p for host in hosts for p in bed.state(host)["ports"] if p["tenant"] in tenants and p["signals"]]
    return max((p["signals"]["flood_score"] for p in ports), default=0.0)


def calm(bed: OverlayTestbed, hosts: Sequence[int], tenants: Sequence[str]) -> None:
    """Wait until nothing is known any more of the flood of an entry before."""
    deadline = time.monotonic() + _FADES
    while _score(bed, hosts, tenants) and time.monotonic() < deadline:
        time.sleep(_LOOKED_AT)


class _Scores(threading.Thread):
    """Looks at the flood scores of some ports while traffic runs."""

    def __init__(self, bed: OverlayTestbed, hosts: Sequence[int], tenants: Sequence[str]) -> None:
        super().__init__()
        self.highest = 0.0
        self._bed, self._hosts, self._tenants = bed, hosts, tenants
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_LOOKED_AT):
            self.highest = max(self.highest, _score(self._bed, self._hosts, self._tenants))

    def end(self) -> float:
        self._over.set()
        self.join()
        return self.highest


class _Streams:
    """The processes of an entry's streams."""

    def __init__(self, bed: OverlayTestbed, entry: Entry, *, counted: bool) -> None:
        self._bed, self._entry, self._counted = bed, entry, counted
        self._sends: list[subprocess.Popen[str]] = []
        self._receives: list[subprocess.Popen[str]] = []

    def start(self, at: float) -> None:
        """Start them; they send from a moment of CLOCK_MONOTONIC on."""
        for i, s in enumerate(self._entry.streams):
            if self._counted:
                self._receives.append(self._spawn("receive", i, s, at))
            self._sends.append(self._spawn("send", i, s, at))

    def _spawn(self, role: str, index: int, s: Stream, at: float) -> subprocess.Popen[str]:
        bed, here = self._bed, s.source if role == "send" else s.sink
        third = 6 - s.source - s.sink
        order = ends.Order(
            role=role,
            entry=self._entry.name,
            index=index,
            namespace=bed.guest(here, s.tenant),
            ends=StreamEnds(
                mac=bed.mac(s.source, s.tenant),
                address=bed.address(s.source, s.tenant),
                peer_mac=bed.mac(s.sink, s.tenant),
                peer_address=bed.address(s.sink, s.tenant),
                other_mac=bed.mac(third, s.tenant),
                victim_mac=bed.mac(s.sink, "a"),
                victim_address=bed.address(s.sink, "a"),
                victim_network=bed.network("a"),
                node=bed.tunnel(s.source),
                peer_node=bed.tunnel(s.sink),
            ),
            link=LINK / 8,
            start=at,
            seconds=self._entry.seconds + (0.3 if role == "receive" else 0.0),
            overhead=_ENCAPSULATION,
            parent=os.getpid(),
        )
        return commands.spawn(ends.command(), ends.encode(order))

    def counts(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return what each stream sent, and what arrived of it, by BIN seconds."""
        return [self._read(c) for c in self._sends], [self._read(c) for c in self._receives]

    def _read(self, child: subprocess.Popen[str]) -> list[int]:
        out, err = child.communicate()
        if child.returncode != 0:
            raise VigiaError(f"a stream of {self._entry.name} failed: {err.strip()[-500:]}")
        return [int(n) for n in json.loads(out)]

    def stop(self) -> None:
        """End what still runs."""
        for child in (*self._sends, *self._receives):
            if child.poll() is None:
                child.kill()
            child.communicate()


@contextmanager
def _streams(bed: OverlayTestbed, entry: Entry, *, counted: bool) -> Iterator[_Streams]:
    made = _Streams(bed, entry, counted=counted)
    try:
        yield made
    finally:
        made.stop()


def run(bed: OverlayTestbed, entry: Entry, *, honest: bool, attempts: int = _ATTEMPTS) -> AttackTrial:
    """Let an entry meet the victim once; again if the machine had no time to begin it. Raises VigiaError."""
    for _ in range(attempts):
        trial, late = _run(bed, entry, honest=honest)
        if late <= _LATE:
            break
    return trial


def _late(sent: Sequence[Sequence[int]]) -> float:
    """Return the seconds after which the last end of a stream began."""
    return max((BIN * next((i for i, n in enumerate(s) if n), len(s)) for s in sent), default=0.0)


def _run(bed: OverlayTestbed, entry: Entry, *, honest: bool) -> tuple[AttackTrial, float]:
    tenants = sorted({s.tenant for s in entry.streams} | {f.tenant for f in entry.flows})
    hosts = sorted({s.source for s in entry.streams} | {f.source for f in entry.flows})
    bed.settle()
    calm(bed, hosts, tenants)
    policed = _policed(bed, hosts, tenants)
    whole = ONSET + entry.seconds
    probes = [
        TrafficFlow(OPERATOR, s, r, "udp", rate=_PROBES, size=50, delay=ONSET + _REACTS, early=0.3)
        for s, r in ((3, 1), (1, 3))
    ]
    with _streams(bed, entry, counted=honest) as streams:
        scores = _Scores(bed, hosts, tenants)
        scores.start()
        try:
            victim, *others = bed.run(
                [_VICTIM, *probes, *entry.flows], whole, lambda at: streams.start(at + ONSET)
            )
        finally:
            highest = scores.end()
        sent, received = streams.counts()
    begun = time.time() - time.monotonic() + bed.started + ONSET
    bought = payload(bed.guarantee("a"))
    seconds = [victim.mean(ONSET + s, ONSET + s + 1) for s in range(1, math.floor(entry.seconds))]
    flows = others[len(probes) :]
    given = sum(map(sum, sent)) * 8 + sum(f.offered for f in flows)
    sources = {(s.tenant, s.source) for s in entry.streams} | {(f.tenant, f.source) for f in entry.flows}
    contract = sum(bed.guarantee(t) for t, _ in sources) * entry.seconds
    trial = AttackTrial(
        entry=entry.name,
        switch=bed.switch.value,
        victim=statistics.fmean(seconds) / bought,
        worst=min(seconds) / bought,
        offered=given / contract,
        limited=time_to_limit([bed.log(h) for h in hosts], tenants, begun),
        kept=min([_kept(f, whole, payload(bed.guarantee(f.flow.tenant))) for f in flows] + [1.0]),
        lost=max(
            [lost(s, r, _REACTS) for s, r in zip(sent, received, strict=False)]
            + [f.lost for f in flows]
            + [0.0]
        ),
        probes_lost=max(p.lost for p in others[: len(probes)]),
        score=highest,
        policed=_policed(bed, hosts, tenants) - policed,
        load=os.getloadavg()[0],
    )
    return trial, _late([*sent, *received])


def _kept(outcome: FlowOutcome, whole: float, bought: float) -> float:
    """Return what a TCP flow had from its second second on, of what was bought."""
    flow = outcome.flow
    if flow.protocol != "tcp":
        return 1.0
    return outcome.mean(flow.delay + _REACTS, whole - flow.early) / bought


def _policed(bed: OverlayTestbed, hosts: Sequence[int], tenants: Sequence[str]) -> float:
    return sum(
        value
        for h in hosts
        for series, value in bed.metrics(h).items()
        if series.startswith("vigia_isolation_policed_packets_total{")
        and any(f'tenant="{t}"' in series for t in tenants)
    )
