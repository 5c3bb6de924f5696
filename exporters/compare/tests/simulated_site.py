"""Two nodes that share a link, and a third: tenants' traffic by the second, and what Prometheus would have of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vigia_compare.facts import STEP, Facts, Key, Port, Target
from vigia_compare.windows import Grid
from vigia_statistics.samples import Floats

SECONDS = 900
LINK = 25e6
"""Bytes per second of the link between n1 and n2."""

GUARANTEES = {"blue": 8e6, "green": 6e6, "white": 4e6, "red": 4e6}
"""What each tenant bought at its port on every node: less than the link altogether."""

PACKET, SMALL = 1400.0, 60.0
"""Bytes."""

BEGUN = 1_800_000_000.0


@dataclass
class Site:
    """Blue is on n1 and probes n2; green and white send from n1 as well, often as much as they bought."""

    rng: np.random.Generator
    isolation: bool = True
    """Guarantees are scheduled and floods are limited; else all share one queue."""
    contracts: bool = True
    """Whether enforcers say what was bought."""
    per_packet: float = 0.0
    """Seconds of n1's one switching thread for each packet; 0 where the kernel switches."""
    offered: dict[tuple[str, str], Floats] = field(default_factory=dict)
    """Bytes per second by node and tenant."""
    small: dict[tuple[str, str], Floats] = field(default_factory=dict)
    """Packets of 60 bytes per second, which are in what is offered."""
    flooding: dict[tuple[str, str], Floats] = field(default_factory=dict)
    """1 in each second in which a tenant floods."""
    arriving: dict[tuple[str, str], Floats] = field(default_factory=dict)
    lost: Floats = field(default_factory=lambda: np.zeros(SECONDS))
    """Probes of blue, of 20 in each second, that were lost for no reason of the link."""

    def __post_init__(self) -> None:
        for tenant, bought in GUARANTEES.items():
            self.offered[("n1", tenant)] = 0.2 * bought * self._wander()
        for tenant in ("green", "white"):
            for _ in range(self.rng.integers(2, 8)):
                self.busy(tenant, int(self.rng.integers(0, SECONDS - 60)), int(self.rng.integers(10, 60)))
        self.exporter, self.enforcer = self.rng.uniform(0.0, 15.0, 2)
        """When in 15 s each is scraped."""

    def _wander(self) -> Floats:
        """A load around 1."""
        noise = self.rng.lognormal(0.0, 0.6, SECONDS + 4)
        return np.convolve(noise, np.ones(5) / 5.0, "valid")

    def busy(self, tenant: str, begin: int, seconds: int) -> None:
        """An innocent tenant sends all that it bought."""
        inside = slice(begin, begin + seconds)
        many = self.offered[("n1", tenant)][inside].size
        self.offered[("n1", tenant)][inside] = GUARANTEES[tenant] * self.rng.uniform(0.85, 1.0, many)

    def flood(self, begin: int, seconds: int, rate: float, node: str = "n1", tenant: str = "red") -> None:
        """Random UDP ports, at a rate that holds about."""
        inside = slice(begin, begin + seconds)
        sent = self.offered.setdefault((node, tenant), np.full(SECONDS, 1e4))
        sent[inside] += rate * self.rng.uniform(0.9, 1.1, sent[inside].size)
        self.flooding.setdefault((node, tenant), np.zeros(SECONDS))[inside] = 1.0

    def small_packets(self, begin: int, seconds: int, rate: float, tenant: str = "red") -> None:
        """A flood of so many packets of 60 bytes a second from n1."""
        self.flood(begin, seconds, rate * SMALL, "n1", tenant)
        self.small[("n1", tenant)] = np.zeros(SECONDS)
        self.small[("n1", tenant)][begin : begin + seconds] = rate

    def packets(self, node: str, tenant: str) -> Floats:
        """Packets that a tenant offers in each second."""
        small = self.small.get((node, tenant), np.zeros(SECONDS))
        return np.asarray(np.round((self.offered[(node, tenant)] - SMALL * small) / PACKET) + small)

    def switching(self) -> dict[str, Floats]:
        """How much of n1's switching thread each tenant would need in each second."""
        return {t: self.per_packet * self.packets(n, t) for n, t in self.offered if n == "n1"}

    def suspicious(self, tenant: str) -> None:
        """A tenant whose many short answers look like a flood, within its contract: a name server."""
        self.flooding[("n1", tenant)] = (self.rng.random(SECONDS) < 0.3).astype(float)

    def stray(self, chance: float) -> None:
        """Losses of nobody's making."""
        hit = self.rng.random(SECONDS) < chance
        self.lost = self.lost + hit * self.rng.integers(2, 6, SECONDS)

    def carried(self) -> tuple[dict[str, Floats], Floats]:
        """What each tenant's drops are at n1, bytes per second, and the share of blue's probes that the link loses."""
        at_link = {}
        for (node, tenant), sent in self.offered.items():
            if node == "n1":
                at_link[tenant] = np.minimum(sent, self._limit(node, tenant))
            elif ("n2", tenant) in self.arriving:
                at_link[tenant] = at_link.get(tenant, 0.0) + np.minimum(sent, self._limit(node, tenant))
        needed = sum(self.switching().values(), start=np.zeros(SECONDS))
        late = np.maximum(1.0 - 1.0 / np.maximum(needed, 1.0), 0.0)
        total = sum(at_link.values(), start=np.zeros(SECONDS))
        short = np.maximum(total - LINK, 0.0)
        if not self.isolation:
            share = short / np.maximum(total, 1.0)
            return {t: v * share for t, v in at_link.items()}, np.maximum(share, late)
        over = {t: np.maximum(v - GUARANTEES[t], 0.0) for t, v in at_link.items()}
        beyond = np.maximum(sum(over.values(), start=np.zeros(SECONDS)), 1.0)
        drops = {t: short * v / beyond for t, v in over.items()}
        return drops, np.maximum(drops["blue"] / np.maximum(at_link["blue"], 1.0), late)

    def _limit(self, node: str, tenant: str) -> Floats:
        out = np.full(SECONDS, np.inf)
        if self.isolation and (node, tenant) in self.flooding:
            out[self.limited(node, tenant)] = GUARANTEES[tenant]
        return out

    def limited(self, node: str, tenant: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Three seconds after a flood begins, and until 15 after its end."""
        flooding = self.flooding[(node, tenant)] > 0.0
        behind = np.array([flooding[max(0, i - 15) : i + 1].any() for i in range(SECONDS)])
        fresh = np.array(
            [not flooding[max(0, i - 3) : i - 2].any() if i > 3 else True for i in range(SECONDS)]
        )
        return np.asarray(behind & ~(flooding & fresh))

    def facts(self, now: int = SECONDS) -> Facts:
        """What is known ``now`` seconds after the beginning."""
        count = int((now - 1.5) // STEP)
        grid = Grid(BEGUN + count * STEP, STEP, count)
        drops, loss = self.carried()
        out: dict[str, dict[object, Floats]] = {
            name: {}
            for name in [
                "score",
                "spread",
                "scrapes",
                "limit",
                "sent",
                "packets",
                "guarantee",
                "drops",
                "received",
            ]
        }
        for (node, tenant), sent in self.offered.items():
            port: Port = (node, tenant, f"{node}-{tenant}")
            out["sent"][port] = self._counter(grid, sent, self.exporter)
            out["packets"][(node, tenant)] = self._counter(grid, self.packets(node, tenant), self.exporter)
            if self.contracts:
                out["guarantee"][port] = np.full(grid.count, GUARANTEES[tenant])
        for (node, tenant), flooding in self.flooding.items():
            port = (node, tenant, f"{node}-{tenant}")
            seen = flooding > 0.0
            out["score"][port] = self._fast(
                grid, np.where(seen, self.rng.uniform(80.0, 100.0, SECONDS), np.nan)
            )
            out["spread"][port] = self._fast(grid, np.where(seen, 400.0, np.nan))
            out["scrapes"][port] = 5.0 * self._mean(grid, seen.astype(float))
            if self.isolation:
                limit = np.where(self.limited(node, tenant), GUARANTEES[tenant], np.nan)
                out["limit"][port] = self._fast(grid, limit)
        for tenant, dropped in drops.items():
            if dropped.any():
                key: Key = ("n1", tenant)
                out["drops"][key] = self._counter(grid, np.round(dropped / PACKET), self.exporter)
        for (node, tenant), bytes_in in self.arriving.items():
            out["received"][(node, tenant)] = self._counter(grid, bytes_in, self.exporter)
        total = sum(drops.values(), start=np.zeros(SECONDS)) / PACKET
        out["lost_at"] = {("n1", "queue/up0"): self._counter(grid, total, self.exporter)}
        if self.per_packet:
            out |= self._switch(grid)
        out["watched"] = {"n1": np.zeros(grid.count)}
        out["loss"] = self._recent(grid, loss)
        return Facts(grid, **out)

    def _switch(self, grid: Grid) -> dict[str, dict[object, Floats]]:
        """What the exporter knows of n1's switching thread."""
        needed = self.switching()
        total = sum(needed.values(), start=np.zeros(SECONDS))
        busy = np.minimum(total, 1.0)
        element = ("n1", "ovs-vswitchd")
        used = {(*element, t): busy * v / np.maximum(total, 1e-9) for t, v in needed.items()}
        return {
            "processes": {element: self._counter(grid, busy, self.exporter)},
            "full": {element: self._counter(grid, (busy >= 0.9).astype(float), self.exporter)},
            "used": {k: self._counter(grid, v, self.exporter) for k, v in used.items()},
        }

    def _recent(self, grid: Grid, loss: Floats) -> dict[object, Floats]:
        lost = np.minimum(20.0, self.rng.binomial(20, np.clip(loss, 0.0, 1.0)) + self.lost)
        ten = np.convolve(lost, np.ones(10), "full")[:SECONDS]
        target: Target = ("n1", "n2", "blue")
        return {target: self._fast(grid, np.where(ten >= 2.0, ten / 200.0, np.nan))}

    @staticmethod
    def _fast(grid: Grid, by_second: Floats) -> Floats:
        """The largest of each step, NaN where there is none."""
        steps = by_second[: grid.count * int(STEP)].reshape(grid.count, int(STEP))
        known = np.isfinite(steps).any(axis=1)
        return np.where(known, np.where(np.isfinite(steps), steps, -np.inf).max(axis=1), np.nan)

    @staticmethod
    def _mean(grid: Grid, by_second: Floats) -> Floats:
        return np.asarray(by_second[: grid.count * int(STEP)].reshape(grid.count, int(STEP)).mean(axis=1))

    @staticmethod
    def _counter(grid: Grid, by_second: Floats, phase: float) -> Floats:
        """Growth per second between the last two scrapes."""
        counter = np.concatenate([[0.0], np.cumsum(by_second)])
        ends = STEP * np.arange(1, grid.count + 1)
        scraped = np.floor((ends - phase) / 15.0) * 15.0 + phase

        def at(t: Floats) -> Floats:
            return np.interp(t, np.arange(counter.size), counter)

        return np.where(scraped < 15.0, np.nan, (at(scraped) - at(scraped - 15.0)) / 15.0)
