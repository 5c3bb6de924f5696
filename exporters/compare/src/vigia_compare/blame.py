"""Who hurt whom, by what the system knows: floods, contracts, what was full, and who suffered meanwhile.

A flood counts against a tenant only where it went beyond its contract, or took most of a processor that was
full. Whom it hurt is who lost probes, was slow or had packets dropped for want of room just then, and less at
other times. Where nobody flooded, a tenant that went beyond its contract while a shared element was full is
named if the harm moves with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vigia_compare.coincidence import rank, rank_correlation
from vigia_compare.facts import STEP, Facts, Key, Mask, Port
from vigia_compare.floods import (
    HEEDLESS,
    LEAST_DROPS,
    Flood,
    around,
    beyond_contract,
    contract_of,
    flooding,
    newest_floods,
    restrained,
    usual_rate,
    widened,
)
from vigia_compare.limits import LEAST_WINDOWS
from vigia_statistics.samples import Floats
from vigia_text import numbers

__all__ = ["Blamed", "Clue", "Harm", "blame", "restrained"]

FULL = 0.9
"""Busy ratio from which an element is full; it is an average over a scrape."""

LEAST_FULL = 2.0
"""Seconds for which a process was full from which on that is more than a burst, whatever the average says."""

LOSSY, SLOW = 0.01, 0.1
"""Shares of probes from which a target suffers, as in the alert VigiaTenantInterference."""

LEAST_TAKEN = 0.001
"""Part of its own guarantee that others take from a tenant that waits, from which it is harm. Little: a flood
that is held within a second takes no more."""

WORSE = 1.5
"""The harm during a flood is at least this many times what it is at other times."""

SQUEEZED = 0.85
"""A tenant whose sending falls below this part of what it was is pushed aside."""

LEAST_SHARE, MOST_OF = 0.1, 0.5

_MINUTE = 12
"""Steps of a minute; a tenant's sending is compared with that of the minute before a flood."""

ALPHA = 0.05


@dataclass(frozen=True)
class Clue:
    """One thing that is known and speaks for a verdict."""

    kind: str
    """flood, heedless, limit, contract, saturation, arrival or coincidence."""
    text: str
    value: float
    """Score, share of packets, bytes per second, bytes per second, busy ratio, seconds or packets, bytes,
    p-value."""


@dataclass(frozen=True)
class Blamed:
    """A tenant that was hurt, and by whom."""

    node: str
    tenant: str
    offender: str
    source: str
    """Node of the offender's ports."""
    ports: Sequence[str]
    measure: str
    """loss, delay, bandwidth or drops: what was bad."""
    begin: float
    """Unix time at which the harm began, to a step."""
    end: float
    share: float
    """Of all that went beyond contracts, the offender's part."""
    own_share: float
    """The same of the tenant itself."""
    p_value: float | None
    """Of harm and flood coinciding by chance; None with too few steps to tell."""
    certain: bool
    """Whether all of it is known; False: it is only likely."""
    clues: Sequence[Clue]


@dataclass(frozen=True)
class Harm:
    """When a tenant on a node suffered, and how much."""

    measure: str
    severity: Floats
    """By step; 0 where it did not suffer."""
    nodes: frozenset[str]
    """Both ends of what suffered."""
    taker: str | None = None
    """Who is known to have done it, if that is known."""


def blame(known: Facts, minutes: Mapping[Key, tuple[str, Floats]] | None = None) -> list[Blamed]:
    """Name who hurt whom, one answer for each tenant and node.

    ``minutes`` is the excess that records of a minute show, by node and tenant: what it is of, and its size
    by step.
    """
    look = _Look(known, newest_floods(known), restrained(known))
    harms = list(_harms(known, minutes or {}))
    found: dict[Key, tuple[Blamed, Harm, Flood]] = {}
    for flood in look.floods:
        for key, harm in harms:
            one = _by_flood(look, flood, key, harm)
            if one is not None and (
                key not in found or _rank(one, flood) > _rank(found[key][0], found[key][2])
            ):
                found[key] = one, harm, flood
    out = {key: _with_p(known, *parts) for key, parts in found.items()}
    for key, harm in harms:
        if key not in out and harm.measure not in ("drops", "bandwidth"):
            beyond = _by_contract(look, key, harm)
            if beyond is not None:
                out[key] = beyond
    return [out[key] for key in sorted(out)]


@dataclass(frozen=True)
class _Look:
    """What all answers of one look share."""

    known: Facts
    floods: Sequence[Flood]
    faults: Mapping[Key, Mask]
    """When tenants flooded or had a limit."""

    def at_fault(self, tenant: str, span: slice | Mask) -> bool:
        """Return whether a tenant itself flooded, or had a limit, meanwhile; then it is nobody's victim."""
        return any(mask[span].any() for (_, t), mask in self.faults.items() if t == tenant)


_ORDER = ("loss", "delay", "bandwidth", "drops")


def _rank(one: Blamed, flood: Flood) -> tuple[bool, int, int, float, float]:
    """Order answers, certain ones first: what a flood did before never hides what one does now."""
    return one.certain, flood.last, -_ORDER.index(one.measure), one.begin, one.share


def _harms(known: Facts, minutes: Mapping[Key, tuple[str, Floats]]) -> Iterator[tuple[Key, Harm]]:
    """Yield what tenants suffered, by node; a tenant may have suffered in several ways."""
    none = np.zeros(known.grid.count)
    ways: dict[tuple[Key, str], tuple[Floats, frozenset[str]]] = {}

    def add(key: Key, measure: str, severity: Floats, nodes: Iterable[str]) -> None:
        if severity.any():
            before, ends = ways.get((key, measure), (none, frozenset()))
            ways[(key, measure)] = np.maximum(before, severity), ends | frozenset(nodes)

    for series, measure, least in ((known.loss, "loss", LOSSY), (known.slow, "delay", SLOW)):
        for (src, dst, tenant), values in series.items():
            add((src, tenant), measure, np.where(values >= least, values, 0.0), (src, dst))
    for key, (measure, severity) in minutes.items():
        # Where steps say it, the windows of a minute around them add nothing but their edges.
        exact, _ = ways.get((key, measure), (none, None))
        add(key, measure, np.where(around(exact > 0.0, _MINUTE), 0.0, severity), (key[0],))
    for key, values in known.drops.items():
        add(key, "drops", np.nan_to_num(values), (key[0],))
    for (key, measure), (severity, nodes) in sorted(
        ways.items(), key=lambda w: (w[0][0], _ORDER.index(w[0][1]))
    ):
        if not key[1].startswith("_"):
            yield key, Harm(measure, severity, nodes)
    yield from _displaced(known)


def _displaced(known: Facts) -> Iterator[tuple[Key, Harm]]:
    """Yield what tenants waited for on a full link while another had more of it than it bought."""
    for (node, tenant, taker), values in sorted(known.taken.items()):
        bought = max(
            (contract_of(known, p) or 0.0 for p in known.guarantee if p[:2] == (node, tenant)), default=0.0
        )
        severity = np.where(values > LEAST_TAKEN * bought, values, 0.0)
        if severity.any():
            yield (node, tenant), Harm("bandwidth", severity, frozenset([node]), taker)


def _by_flood(look: _Look, flood: Flood, key: Key, harm: Harm) -> Blamed | None:
    """Return that a flood hurt a tenant, if what is known says so; the p-value comes later."""
    known, (node, tenant) = look.known, key
    span = flood.span(known.grid.count)
    if not _hurts(harm, span) or not _may_hurt(flood, tenant, harm) or look.at_fault(tenant, span):
        return None
    hogs = _hogs(known, flood, span)
    if flood.within and hogs is None:
        return None
    worse = _worse(known, key, harm, span, look.faults[flood.node, flood.tenant])
    saturation = list(_saturation(known, flood, tenant, span))
    if worse is False or (worse is None and not saturation):
        return None
    near = flood.node in harm.nodes
    arrival = None if near else _arrival(known, flood, harm, span)
    seen = near or arrival is not None
    if not seen or (flood.guarantee is None and not saturation):
        p = _p_value(known, key, harm, flood)
        if p is None or p > ALPHA:
            return None
    share, own = _shares(look, flood, tenant, span)
    share = max(share, hogs or 0.0)
    if share < LEAST_SHARE:
        return None
    clues = [*_flood_clues(known, flood, span), *saturation, *([arrival] if arrival else [])]
    begin, end = _when(known, harm, span)
    ports = [p[2] for p in flood.ports]
    return Blamed(
        node, tenant, flood.tenant, flood.node, ports, harm.measure, begin, end, share, own, None, seen, clues
    )


def _hurts(harm: Harm, span: slice) -> bool:
    """Return whether there was harm at all in a stretch."""
    total = float(harm.severity[span].sum())
    return total * STEP >= LEAST_DROPS if harm.measure == "drops" else total > 0.0


def _may_hurt(flood: Flood, tenant: str, harm: Harm) -> bool:
    """Return whether what a tenant suffered can be this flood's doing at all."""
    if harm.taker is None:
        return tenant != flood.tenant
    return harm.taker == flood.tenant and flood.node in harm.nodes


def _with_p(known: Facts, one: Blamed, harm: Harm, flood: Flood) -> Blamed:
    """Return an answer with how sure statistics are of it."""
    p = _p_value(known, (one.node, one.tenant), harm, flood)
    return one if p is None else replace(one, p_value=p, clues=[*one.clues, *_coincidence(p, "flood")])


def _coincidence(p: float, what: str) -> Iterator[Clue]:
    if p <= ALPHA:
        yield Clue("coincidence", f"harm and {what} coincide (p {numbers.probability(p)})", p)


def _when(known: Facts, harm: Harm, span: slice) -> tuple[float, float]:
    bad = np.flatnonzero(harm.severity[span]) + span.start
    return known.at(int(bad[0])) - STEP, known.at(int(bad[-1]))


def _worse(known: Facts, key: Key, harm: Harm, span: slice, floods: Mask) -> bool | None:
    """Whether the tenant suffered more than while the flooder was quiet; None if it hardly ever was.

    Who floods every minute would never be named, if its other floods counted.
    """
    outside = _watched(known, key[0])
    outside[span] = False
    if int(outside.sum()) < LEAST_WINDOWS:
        return True
    outside &= ~widened(around(floods, 1))
    if int(outside.sum()) < LEAST_WINDOWS:
        return None
    if float(harm.severity[span].mean()) > WORSE * float(harm.severity[outside].mean()):
        return True
    if harm.measure != "drops":
        return False
    # Who always sends all that it can always drops some: what it sent tells whether it was pushed aside.
    sent = _sent_by(known, key)
    before, meanwhile = sent[max(0, span.start - _MINUTE) : span.start], sent[span]
    return bool(before.size) and float(meanwhile.min(initial=np.inf)) < SQUEEZED * float(np.median(before))


def _watched(known: Facts, node: str) -> Mask:
    said = known.watched.get(node)
    if said is None or not np.isfinite(said).any():
        return np.ones(known.grid.count, dtype=bool)
    return np.isfinite(said)


def _sent_by(known: Facts, key: Key) -> Floats:
    zero = np.zeros(known.grid.count)
    return sum((np.nan_to_num(v) for p, v in known.sent.items() if p[:2] == key), start=zero)


def _saturation(known: Facts, flood: Flood, tenant: str, span: slice) -> Iterator[Clue]:
    """Yield which elements of the flood's node were full, and what the tenant itself lost there."""
    yield from _full(known, flood.node, span)
    taken = known.taken.get((flood.node, tenant, flood.tenant))
    most = float(np.nan_to_num(taken[span]).max(initial=0.0)) if taken is not None else 0.0
    if most > 0.0:
        had = f"{flood.tenant} had {numbers.size(most * STEP)}"
        text = f"{had} of a full link of {flood.node} beyond its contract within 5 s, while {tenant} waited"
        yield Clue("saturation", text, most)
    dropped = known.drops.get((flood.node, tenant))
    count = float(np.nansum(dropped[span])) * STEP if dropped is not None else 0.0
    if count >= LEAST_DROPS:
        text = (
            f"{numbers.count(round(count))} packets of {tenant} were dropped for want of room on {flood.node}"
        )
        yield Clue("saturation", text, count)


def _full(known: Facts, node: str, span: slice) -> Iterator[Clue]:
    for of, what in ((known.queues, "busy"), (known.processes, "of a processor")):
        for (where, element), busy in sorted(of.items()):
            most = float(np.nan_to_num(busy[span]).max(initial=0.0))
            if where == node and most >= FULL:
                yield Clue(
                    "saturation", f"{element} on {node} was full ({numbers.percent(most)} {what})", most
                )
    for (where, element), _ in sorted(known.full.items()):
        seconds = _full_seconds(known, (where, element), span)
        if where == node and seconds >= LEAST_FULL:
            yield Clue("saturation", f"{element} on {node} was full for {seconds:.0f} s", seconds)
    for (where, element), lost in sorted(known.lost_at.items()):
        count = float(np.nansum(lost[span])) * STEP
        if where == node and count >= LEAST_DROPS:
            yield Clue(
                "saturation", f"{element} on {node} dropped {numbers.count(round(count))} packets", count
            )


def _full_seconds(known: Facts, element: Key, span: slice) -> float:
    full = known.full.get(element)
    return float(np.nansum(full[span])) * STEP if full is not None else 0.0


def _hogs(known: Facts, flood: Flood, span: slice) -> float | None:
    """Return the flood's share of a processor that was full, where that is most of it."""
    for (node, element), busy in known.processes.items():
        average = float(np.nan_to_num(busy[span]).max(initial=0.0))
        if node != flood.node or (
            average < FULL and _full_seconds(known, (node, element), span) < LEAST_FULL
        ):
            continue
        uses = {
            t: float(np.nansum(v[span])) for (n, e, t), v in known.used.items() if (n, e) == (node, element)
        }
        total = sum(uses.values())
        if total > 0.0 and uses.get(flood.tenant, 0.0) >= MOST_OF * total:
            return uses[flood.tenant] / total
    return None


def _arrival(known: Facts, flood: Flood, harm: Harm, span: slice) -> Clue | None:
    """Return that the flood arrived at an end of what suffered; None if that was not seen."""
    wide = np.zeros(known.grid.count, dtype=bool)
    wide[span] = True
    for node in sorted(harm.nodes):
        received = known.received.get((node, flood.tenant))
        if received is None:
            continue
        grew = float(np.maximum(np.nan_to_num(received[span]) - usual_rate(received, wide), 0.0).sum()) * STEP
        if grew > 0.0 and grew >= LEAST_SHARE * flood.beyond:
            return Clue("arrival", f"{numbers.size(grew)} of it arrived on {node}", grew)
    return None


def _flood_clues(known: Facts, flood: Flood, span: slice) -> Iterator[Clue]:
    score, spread = (
        max((float(np.nan_to_num(of[p][span]).max(initial=0.0)) for p in flood.ports if p in of), default=0.0)
        for of in (known.score, known.spread)
    )
    limits = [v for p in flood.ports if p in known.limit for v in known.limit[p][span] if np.isfinite(v)]
    names = ", ".join(p[2] for p in flood.ports)
    if score > 0.0:
        flooded = "1 UDP port" if round(spread) == 1 else f"{spread:.0f} UDP ports"
        yield Clue("flood", f"{names} flooded {flooded} (score {score:.0f} of 100)", score)
    lost, sent = (
        float(np.nansum(of[flood.node, flood.tenant][span])) if (flood.node, flood.tenant) in of else 0.0
        for of in (known.drops, known.packets)
    )
    if lost >= HEEDLESS * sent > 0.0:
        part = min(1.0, lost / sent)
        yield Clue(
            "heedless", f"{flood.tenant} sent on while {numbers.percent(part)} of it was dropped", part
        )
    elif (part := _own_loss(known, flood, span)) >= HEEDLESS:
        text = f"{flood.tenant} sent on while {numbers.percent(part)} of its probes were lost"
        yield Clue("heedless", text, part)
    if limits:
        yield Clue("limit", f"limited to {numbers.bits_per_second(8 * min(limits))}", float(min(limits)))
    if flood.guarantee is not None and not flood.within:
        yield Clue("contract", _too_much(flood.rate, flood.guarantee), flood.rate - flood.guarantee)


def _own_loss(known: Facts, flood: Flood, span: slice) -> float:
    """Return the largest share of its own probes that a flooding tenant lost meanwhile."""
    of = [v[span] for (src, _, t), v in known.loss.items() if (src, t) == (flood.node, flood.tenant)]
    return max((float(np.nan_to_num(v).max(initial=0.0)) for v in of), default=0.0)


def _shares(look: _Look, flood: Flood, tenant: str, span: slice) -> tuple[float, float]:
    """Return the parts of a flood and of a tenant in what went beyond contracts on the flood's node."""
    beyond = _beyond(look.known, {flood.node}, span)
    lasted = (flood.last + 1 - flood.first) / max(1, span.stop - span.start)
    others = {t: b * lasted for t, b in beyond.items() if t != flood.tenant}
    for f in look.floods:
        if f.node == flood.node and f.tenant != flood.tenant and f.first < span.stop and f.last >= span.start:
            others[f.tenant] = max(others.get(f.tenant, 0.0), f.beyond)
    total = flood.beyond + sum(others.values())
    if total <= 0.0:
        return 0.0, 0.0
    return flood.beyond / total, others.get(tenant, 0.0) / total


def _beyond(known: Facts, nodes: Iterable[str], span: slice | Mask) -> dict[str, float]:
    """Return the bytes that each tenant sent on some nodes beyond its contract; without one, its usual."""
    return {t: float(v[span].sum()) * STEP for t, v in _excesses(known, nodes).items()}


def _p_value(known: Facts, key: Key, harm: Harm, flood: Flood) -> float | None:
    """Return how likely harm and flood fall together by chance, corrected for all senders of the nodes."""
    mask = np.zeros(known.grid.count, dtype=bool)
    for port in flood.ports:
        mask |= flooding(known, port)
    causes = {
        t: v for t, v in _loads(known, harm.nodes | {flood.node}).items() if t not in (flood.tenant, key[1])
    }
    causes["\0"] = widened(mask).astype(float)
    return _rotated(known, key, harm, causes, "\0")


def _loads(known: Facts, nodes: Iterable[str]) -> dict[str, Floats]:
    where = set(nodes)
    out: dict[str, Floats] = {}
    for (node, tenant, _), values in known.sent.items():
        if node in where and not tenant.startswith("_"):
            out[tenant] = out.get(tenant, np.zeros(values.size)) + np.nan_to_num(values)
    return out


def _rotated(known: Facts, key: Key, harm: Harm, causes: Mapping[str, Floats], name: str) -> float | None:
    """Return the p-value of one cause of a harm among all; None with too few steps."""
    span = _watched(known, key[0])
    severity = harm.severity[span]
    ranked = rank(severity, {n: v[span] for n, v in causes.items()}, rank_correlation)
    return next((c.p_value for c in ranked if c.name == name), None)


def _by_contract(look: _Look, key: Key, harm: Harm) -> Blamed | None:
    """Return that a tenant beyond its contract hurt another on a full element, where nobody flooded."""
    known, (node, tenant) = look.known, key
    span = widened(harm.severity > 0.0)
    if look.at_fault(tenant, span):
        return None
    contracts = {p for p in known.guarantee if p[0] in harm.nodes}
    beyond = {t: b for t, b in _beyond(known, harm.nodes, span).items() if b > 0.0}
    total, own = sum(beyond.values()), beyond.pop(tenant, 0.0)
    offender = max(beyond, key=lambda t: (beyond[t], t), default=None)
    if offender is None or beyond[offender] < MOST_OF * total:
        return None
    ports = [
        p
        for p in known.sent
        if p[1] == offender and p[0] in harm.nodes and beyond_contract(known, p)[span].any()
    ]
    if not all(p in contracts for p in ports):
        return None  # what is not known to be beyond a contract is left to statistics
    source = ports[0][0]
    places = np.flatnonzero(span)
    whole = slice(int(places[0]), int(places[-1]) + 1)
    full = list(_full(known, source, whole))
    dropped = known.drops.get((source, tenant))
    lost = float(np.nansum(dropped[span])) * STEP if dropped is not None else 0.0
    if not full and lost < LEAST_DROPS:
        return None
    p = _rotated(known, key, harm, _excesses(known, harm.nodes), offender)
    certain = p is not None and p <= ALPHA
    if not certain and (p is not None or lost < LEAST_DROPS):
        return None
    clues = [_contract_clue(known, ports, span), *full]
    if p is not None:
        clues += _coincidence(p, "load")
    begin, end = _when(known, harm, slice(0, known.grid.count))
    names = [port[2] for port in ports]
    share = beyond[offender] / total
    return Blamed(
        node, tenant, offender, source, names, harm.measure, begin, end, share, own / total, p, certain, clues
    )


def _excesses(known: Facts, nodes: Iterable[str]) -> dict[str, Floats]:
    """Return what each tenant sends on some nodes beyond its contracts, by step."""
    where = set(nodes)
    out: dict[str, Floats] = {}
    for port in known.sent:
        if port[0] in where and not port[1].startswith("_"):
            out[port[1]] = out.get(port[1], np.zeros(known.grid.count)) + beyond_contract(known, port)
    return out


def _contract_clue(known: Facts, ports: Sequence[Port], span: Mask) -> Clue:
    sent = sum(float(np.nan_to_num(known.sent[p][span]).max(initial=0.0)) for p in ports)
    bought = sum(contract_of(known, p) or 0.0 for p in ports)
    return Clue("contract", _too_much(sent, bought), sent - bought)


def _too_much(sent: float, bought: float) -> str:
    offered, contract = (numbers.bits_per_second(8 * v) for v in (sent, bought))
    return f"sent {offered} where its contract is {contract}"
