"""Trying the lab's paths with real packets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import naming
from vigia.lab.model import Lab, Target

__all__ = ["Trial", "first_packets", "measure", "targets", "tunnels"]

_PATIENCE = 15  # seconds; ovs-vswitchd may need some to count its processors

_SUMMARY = re.compile(r"(\d+) packets transmitted, (\d+) (?:packets )?received")
_RTT = re.compile(r"rtt min/avg/max/mdev = [\d.]+/([\d.]+)/")


@dataclass(frozen=True)
class Trial:
    """What a few ICMP echoes over one path found."""

    target: Target
    sent: int
    received: int
    rtt: float | None
    """Mean round-trip time in seconds, None without an answer."""
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the path carries packets there and back."""
        return self.received > 0


def targets(lab: Lab) -> list[Target]:
    """Return every path, tenant and link once, from the link's first node."""
    return [t for link in lab.links for t in lab.targets(lab.node(link.nodes[0]))]


def tunnels(lab: Lab) -> list[Target]:
    """Return each link's tunnel endpoints that have an address of their own."""
    nodes = [lab.node(link.nodes[0]) for link in lab.links]
    return [
        Target(n.name, n.peer, "underlay", naming.INFRA, n.netns, n.tunnel.ip, n.tunnel_peer)
        for n in nodes
        if n.tunnel != n.underlay
    ]


def first_packets(wanted: Iterable[Target]) -> None:
    """Wait until every target answers, which also fills the neighbour tables. Raises VigiaError."""
    for trial in _all(wanted, ["-c", "1", "-i", "0.2", "-w", str(_PATIENCE)]):
        if not trial.ok:
            t = trial.target
            raise VigiaError(
                f"path {t.path} of tenant {t.tenant} does not carry packets from {t.source} ({t.address}) "
                f"to {t.destination} ({t.peer}): {trial.error or f'no answer within {_PATIENCE} s'}"
            )


def measure(wanted: Iterable[Target]) -> list[Trial]:
    """Send three echoes to each target, all targets at once."""
    return _all(wanted, ["-c", "3", "-i", "0.2", "-W", "1"])


def _all(wanted: Iterable[Target], options: list[str]) -> list[Trial]:
    with ThreadPoolExecutor(max_workers=16) as pool:
        return list(pool.map(lambda target: _ping(target, options), wanted))


def _ping(target: Target, options: list[str]) -> Trial:
    argv = ["ping", "-n", "-q", *options, "-I", str(target.address), str(target.peer)]
    try:
        done = commands.run(argv, netns=target.netns, check=False)
    except VigiaError as e:
        return Trial(target, 0, 0, None, str(e))
    summary, rtt = _SUMMARY.search(done.stdout), _RTT.search(done.stdout)
    if summary is None:
        return Trial(target, 0, 0, None, done.stderr.strip() or f"ping: exit status {done.status}")
    mean = float(rtt[1]) / 1000 if rtt else None
    return Trial(target, int(summary[1]), int(summary[2]), mean)
