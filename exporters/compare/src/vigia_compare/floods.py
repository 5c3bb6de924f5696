"""Who floods: what a port sends where its score, its limit or what is dropped of it says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vigia_compare.facts import LAG, SCRAPE, STEP, Facts, Key, Mask, Port
from vigia_statistics.samples import Floats

__all__ = [
    "HEEDLESS",
    "LEAST_DROPS",
    "Flood",
    "around",
    "beyond_contract",
    "contract_of",
    "flooding",
    "newest_floods",
    "restrained",
    "usual_rate",
    "widened",
]

FLOOD_SCORE = 70.0
"""What the alert VigiaUdpFlood asks for."""

HEEDLESS = 0.3
"""Part of its packets that is dropped while a tenant sends on beyond its contract. Nothing that heeds loss
goes on like that: it is a flood, whatever it looks like."""

HELD_SCORE = 30.0
"""Score with which a port that has a limit still floods."""

TOGETHER = 6
"""Steps without a flood that two floods of a tenant are apart at least."""

BEYOND = 1.05
"""A tenant is within its contract up to this many times its guarantee."""

LEAST_DROPS = 10.0
"""Packets whose drop is harm."""

MUCH_TAKEN = 0.1
"""Part of its guarantee that a tenant takes from others, beside which the loss of its own probes tells."""

MOST_FLOODS = 20
"""Floods that are looked at, the newest."""


@dataclass(frozen=True)
class Flood:
    """One tenant's flood from one node."""

    node: str
    tenant: str
    ports: Sequence[Port]
    first: int
    last: int
    """Steps; the last is part of it."""
    rate: float
    """Bytes per second that its ports offered while it lasted."""
    proven: float
    """The same on average between two scrapes, whatever else they sent then."""
    guarantee: float | None
    beyond: float
    """Bytes beyond the contract; all that is unusual where no contract is known."""

    @property
    def within(self) -> bool:
        """Whether it may have kept to its contract."""
        return self.guarantee is not None and self.proven <= BEYOND * self.guarantee

    def span(self, steps: int) -> slice:
        """Return the steps in which counters and ratios may show it."""
        return slice(self.first, min(steps, self.last + 1 + LAG))


def newest_floods(known: Facts) -> list[Flood]:
    """Return the newest floods that enough is known of to weigh them."""
    accused: dict[Key, dict[Port, Mask]] = {}
    for port in known.score.keys() | _heedless_ports(known):
        mask = flooding(known, port)
        if mask.any():
            accused.setdefault(port[:2], {})[port] = mask
    out = []
    for key, ports in sorted(accused.items()):
        whole = np.logical_or.reduce(list(ports.values()))
        for first, last in _spans(whole, TOGETHER):
            taking_part = {p: m for p, m in ports.items() if m[first : last + 1].any()}
            flood = _weighed(known, key, taking_part, first, last)
            if flood is not None:
                out.append(flood)
    return sorted(out, key=lambda f: -f.last)[:MOST_FLOODS]


def restrained(known: Facts) -> dict[Key, Mask]:
    """Return when a tenant on a node flooded or was limited: what it suffers then is its own doing."""
    out: dict[Key, Mask] = {}
    for port in known.score.keys() | known.limit.keys() | _heedless_ports(known):
        mask = flooding(known, port) | np.isfinite(_series(known.limit, port, known))
        if mask.any():
            key = port[:2]
            out[key] = out.get(key, np.zeros(mask.size, dtype=bool)) | mask
    return out


def flooding(known: Facts, port: Port) -> Mask:
    return np.asarray(_scored(known, port) | _heedless(known, port))


def _scored(known: Facts, port: Port) -> Mask:
    score, limit = (_series(of, port, known) for of in (known.score, known.limit))
    return np.asarray((score >= FLOOD_SCORE) | (np.isfinite(limit) & (score >= HELD_SCORE)))  # NaN is not


def _heedless(known: Facts, port: Port) -> Mask:
    """Return when a port sent beyond its contract while much of what its tenant sent was dropped."""
    lost = _shed(known, port)
    if port not in known.sent or contract_of(known, port) is None:
        return lost
    silent = _lost_silently(known, port)
    if silent.any():
        lost = lost | silent
    return np.asarray(lost & ((beyond_contract(known, port) > 0.0) | _took_beyond(known, port)))


def _shed(known: Facts, port: Port) -> Mask:
    """Return when much of what a port's tenant sent was dropped, by the counters."""
    none = np.zeros(known.grid.count, dtype=bool)
    drops, packets = known.drops.get(port[:2]), known.packets.get(port[:2])
    if drops is None or packets is None or port not in known.sent or contract_of(known, port) is None:
        return none
    return np.asarray((drops * SCRAPE >= LEAST_DROPS) & (drops >= HEEDLESS * packets))  # NaN is neither


def _lost_silently(known: Facts, port: Port) -> Mask:
    """Return when much of what a port's tenant sent was lost by its own probes, and nobody else floods.

    A switch in user space may lose frames that nobody counts; the tenant's probes are lost with them. But who
    merely borrows loses probes as well, where somebody else fills the link.
    """
    lost = np.zeros(known.grid.count, dtype=bool)
    took = around(_took(known, port[:2], MUCH_TAKEN * (contract_of(known, port) or 0.0)), 1)
    for (src, _, tenant), loss in known.loss.items():
        if (src, tenant) == port[:2]:
            lost |= took & (loss >= HEEDLESS)
    if lost.any():
        for told in _counted_floods(known, node=port[0], but=port[1]):
            lost &= ~around(told, LAG)
    return lost


def _counted_floods(known: Facts, node: str, but: str) -> Iterator[Mask]:
    """Yield when ports of other tenants on a node flooded by their score, limit or counted drops."""
    for port in known.score.keys() | {p for p in known.sent if p[:2] in known.drops}:
        if port[0] != node or port[1] == but:
            continue
        told = _scored(known, port)
        if (shed := _shed(known, port)).any():
            told |= shed & (beyond_contract(known, port) > 0.0)
        if told.any():
            yield told


def _heedless_ports(known: Facts) -> set[Port]:
    return {p for p in known.sent if not p[1].startswith("_") and _heedless(known, p).any()}


def _took_beyond(known: Facts, port: Port) -> Mask:
    """Return when a port sent beyond its contract by what it took from those who waited.

    A flood of a few seconds that two scrapes share is within many a contract by the average of either.
    """
    out = np.zeros(known.grid.count, dtype=bool)
    guarantee = contract_of(known, port) or 0.0
    for first, last in _spans(_took(known, port[:2]), LAG):
        if _while_taking(known, port, slice(first, last + 1)) > BEYOND * guarantee:
            out[first : last + 1 + LAG] = True
    return out


def _took(known: Facts, key: Key, least: float = 0.0) -> Mask:
    """Return when a tenant on a node had more of a full link than its contract while another waited."""
    out = np.zeros(known.grid.count, dtype=bool)
    for (node, _, taker), values in known.taken.items():
        if (node, taker) == key:
            out |= values > least
    return out


def _while_taking(known: Facts, port: Port, span: slice) -> float:
    """Return what a port sent a second while its tenant took from others; 0 before counters have it all."""
    steps = int(_took(known, port[:2])[span].sum())
    if not steps or span.stop + LAG > known.grid.count:
        return 0.0
    sent = _series(known.sent, port, known)
    usual = usual_rate(sent, widened(_took(known, port[:2])))
    grew = np.maximum(np.nan_to_num(sent[span.start : span.stop + LAG]) - usual, 0.0).sum()
    return usual + float(grew) / steps


def beyond_contract(known: Facts, port: Port) -> Floats:
    sent = known.sent[port]
    guarantee = contract_of(known, port)
    allowed = usual_rate(sent, np.zeros(sent.size, dtype=bool)) if guarantee is None else BEYOND * guarantee
    return np.asarray(np.maximum(np.nan_to_num(sent) - allowed, 0.0))


def _weighed(known: Facts, key: Key, ports: Mapping[Port, Mask], first: int, last: int) -> Flood | None:
    """Return a flood with what its ports sent; None while no scrape of the counters has seen it."""
    steps = known.grid.count
    span = slice(first, min(steps, last + 1 + LAG))
    rate = proven = beyond = 0.0
    bought: list[float | None] = []
    for port, mask in ports.items():
        sent = _series(known.sent, port, known)
        usual = usual_rate(sent, widened(mask))
        grew = float(np.maximum(np.nan_to_num(sent[span]) - usual, 0.0).sum()) * STEP
        seconds = max(1.0, _seconds(known, port, slice(first, last + 1), mask))
        peak = float(np.nan_to_num(sent[span]).max(initial=0.0))
        ended = last + LAG < steps
        if _heedless(known, port)[span].any():
            peak = max(peak, _while_taking(known, port, slice(first, last + 1)))
        most = max(peak, usual + grew / seconds) if ended else peak
        guarantee = contract_of(known, port)
        bought.append(guarantee)
        rate, proven = rate + most, proven + peak
        beyond += grew if guarantee is None else max(0.0, most - guarantee) * seconds
    if rate <= 0.0:
        return None
    contract = None if None in bought else float(sum(b for b in bought if b is not None))
    return Flood(*key, sorted(ports), first, last, rate, proven, contract, beyond)


def _seconds(known: Facts, port: Port, span: slice, mask: Mask) -> float:
    """Return for how long a port flooded: by the scrapes that saw it; by steps where there are none."""
    counts = known.scrapes.get(port)
    if counts is None or not np.isfinite(counts).any():
        return float(mask[span].sum()) * STEP
    a_step = float(np.nanmax(counts))
    return float(np.nansum(counts[span])) / a_step * STEP


def _spans(mask: Mask, apart: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last step of each run, runs that are nearer than ``apart`` together."""
    at = np.flatnonzero(mask)
    if at.size:
        for run in np.split(at, np.flatnonzero(np.diff(at) > apart) + 1):
            yield int(run[0]), int(run[-1])


def _series(of: Mapping[Port, Floats], port: Port, known: Facts) -> Floats:
    found = of.get(port)
    return np.full(known.grid.count, np.nan) if found is None else found


def usual_rate(values: Floats, but: Mask) -> float:
    known = values[np.isfinite(values) & ~but]
    return float(np.median(known)) if known.size else 0.0


def contract_of(known: Facts, port: Port) -> float | None:
    """Return what the port's contract promises; None if no enforcer has said so."""
    values = known.guarantee.get(port)
    said = values[np.isfinite(values)] if values is not None else np.zeros(0)
    return float(said[-1]) if said.size else None


def widened(mask: Mask) -> Mask:
    """Return a mask with the steps in which counters may still show what was in it."""
    out = mask.copy()
    for k in range(1, LAG + 1):
        out[k:] |= mask[:-k]
    return out


def around(mask: Mask, steps: int) -> Mask:
    """Return a mask with so many steps before and after what is in it."""
    return np.asarray(np.convolve(mask, np.ones(2 * steps + 1), "same") > 0.0)[: mask.size]
