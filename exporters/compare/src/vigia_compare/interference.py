"""Who hurts whom: by what is known of floods and contracts; where that says nothing, by what moves together.

Statistics hold a tenant's bad windows against its own load and that of its node's other tenants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vigia_compare.blame import Blamed, blame, restrained
from vigia_compare.coincidence import Candidate, explained_shares, left_by, rank
from vigia_compare.facts import Facts, Key, Mask, gather, grid_at
from vigia_compare.source import Source
from vigia_compare.windows import Grid, Windowed, counted, grown
from vigia_statistics.samples import Floats
from vigia_statistics.selection import Indices

__all__ = [
    "ATTRIBUTED",
    "INSUFFICIENT",
    "LIKELY",
    "OWN",
    "Interference",
    "MinuteHarm",
    "at_limit",
    "attribute",
    "excess",
    "find",
    "loads",
    "renewed",
]

ATTRIBUTED = "attributed"
LIKELY = "likely"
OWN = "own traffic"
INSUFFICIENT = "insufficient evidence"

LEAST_SHARE = 0.1
"""An offender, or the tenant's own load, explains at least this share of the excess."""

LEAST_BAD = 3
"""Bad windows below which nobody is named: one or two coincide with anything."""

SURGE = 2.0
"""An offender's load in the bad windows is at least this many times its usual."""

_TENANTS = 'tenant!~"_.*"'
_LOST = counted(
    f'vigia_probe_lost_total{{{_TENANTS},cause!~"send_error|local_overflow|reflector_overflow"}}',
    "vigia-probe",
)
_PROBES = grown(f"vigia_probe_sent_total{{{_TENANTS}}}")

LOSS = f"sum by (src, tenant) ({_LOST}) / (sum by (src, tenant) ({_PROBES}) > 0)"
DELAY = (
    f"max by (src, tenant) (avg_over_time(path:vigia_probe_rtt_seconds:p99_rate1m{{{_TENANTS}}}[$within]))"
)
"""Of a tenant's worst path. The grid is the rule's: a window is what the record was made of."""


def _bytes(direction: str) -> str:
    ports = grown(f'vigia_port_bytes_total{{direction="{direction}",{_TENANTS}}}')
    return f"sum by (node, tenant) ({ports})"


SENT, RECEIVED = _bytes("from_tenant"), _bytes("to_tenant")
POLICED = f"sum by (node, tenant) ({grown('vigia_isolation_policed_bytes_total')})"
"""Bytes in a window."""
COMMON = tuple(
    f"sum by (node) ({grown(counter)})"
    for counter in ('vigia_port_bytes_total{tenant=~"_.*"}', "vigia_bulk_transferred_bytes_total")
)
"""Load that is no tenant's: the operator's own ports, and the probe's bulk tests."""

_OFFERED = grown(f'vigia_port_bytes_total{{direction="from_tenant",{_TENANTS}}}')
_CONTRACT = (
    'max by (node, port, tenant) (vigia_isolation_guarantee_bytes_per_second{direction="from_tenant"})'
)
_BEYOND = f"{_OFFERED} - on (node, port, tenant) group_left () $seconds * {_CONTRACT}"
BEYOND = f"sum by (node, tenant) (clamp_min({_BEYOND}, 0))"
"""Bytes in a window beyond the contracts of a tenant's ports; there is none where no contract is known."""

POLICED_SHARE = 0.1
"""Share of what a tenant sends that is policed where it is limited; less is the end of a loan."""

APART = 3
"""Windows that may be good within one stretch of bad ones."""


@dataclass(frozen=True)
class MinuteHarm:
    """What a tenant suffered, by windows of a minute."""

    measure: str
    grid: Grid
    above: Floats
    """Excess by window, shape (grid.count,); 0 where there is none."""


@dataclass(frozen=True)
class Interference:
    """What is known of one tenant on one node that had bad windows."""

    node: str
    tenant: str
    measure: str
    """loss or delay: what was bad."""
    bad_windows: int
    own: Candidate | None
    """What the tenant's own load explains beyond everybody else's; None if that is not known."""
    offenders: Sequence[Candidate]
    """Co-tenants by the share of the excess that they explain beyond own and common load, best first."""
    suspect: Candidate | None = None
    """The best of them whose load rose in the bad windows."""
    distinct: Candidate | None = None
    """The suspect again: what it explains beyond the other co-tenants as well."""
    at_fault: bool = False
    """Whether it flooded, or was limited, in all its stretches of bad windows."""
    known: Blamed | None = None
    """Who hurt it by what is known; goes before all of the above."""
    harm: MinuteHarm | None = None

    def offender(self, alpha: float = 0.05) -> Candidate | None:
        """The co-tenant that the excess is attributed to: it must stand out from all others."""
        if self.suspect is None or self.distinct is None or self.bad_windows < LEAST_BAD:
            return None
        stands_out = _convincing(self.suspect, alpha) and _convincing(self.distinct, alpha)
        return self.suspect if stands_out else None

    def verdict(self, alpha: float = 0.05) -> tuple[str, str]:
        """The answer, and the offender's name where it is ATTRIBUTED or LIKELY."""
        if self.known is not None:
            return ATTRIBUTED if self.known.certain else LIKELY, self.known.offender
        if self.at_fault:
            return OWN, ""
        offender = self.offender(alpha)
        if offender is not None:
            return ATTRIBUTED, offender.name
        if self.own is not None and self.bad_windows >= LEAST_BAD and _convincing(self.own, alpha):
            return OWN, ""
        return INSUFFICIENT, ""


def _convincing(candidate: Candidate, alpha: float) -> bool:
    return candidate.p_value <= alpha and candidate.share >= LEAST_SHARE


def find(source: Source, grid: Grid, now: float | None = None) -> list[Interference]:
    """Look at every tenant on every node, at the end of a grid or later. Raises PrometheusError."""
    loss, delay = (_by(source.windows(e, grid), "src") for e in (LOSS, DELAY))
    harms = dict(_harms(grid, loss, delay))
    known = _gathered(source, grid.end if now is None else now, grid, harms)
    found = _statistics(source, grid, loss, delay, _on_grid(known, grid))
    with_harm = [replace(i, harm=harms.get((i.node, i.tenant))) for i in found]
    return _merged(with_harm, blame(known, _by_step(harms, known.grid)))


def renewed(found: Sequence[Interference], source: Source, now: float, grid: Grid) -> list[Interference]:
    """Return what ``find`` returned with what is known by now; statistics stay. Raises PrometheusError."""
    harms = {(i.node, i.tenant): i.harm for i in found if i.harm is not None}
    known = _gathered(source, now, grid, harms)
    return _merged([i for i in found if i.bad_windows], blame(known, _by_step(harms, known.grid)))


def _gathered(source: Source, now: float, grid: Grid, harms: Mapping[Key, object]) -> Facts:
    steps = grid_at(max(now, grid.end), grid.count * grid.window)
    return gather(source, steps, [node for node, _ in harms])


def _harms(
    grid: Grid, loss: Mapping[Key, Floats], delay: Mapping[Key, Floats]
) -> Iterator[tuple[Key, MinuteHarm]]:
    """Yield what tenants suffered by windows of a minute; loss goes first."""
    for key in sorted(set(loss) | set(delay)):
        for measure, values, least in _measures(loss.get(key), delay.get(key)):
            above = excess(values, least)
            if above.any():
                yield key, MinuteHarm(measure, grid, above)
                break


def _by_step(harms: Mapping[Key, MinuteHarm], steps: Grid) -> dict[Key, tuple[str, Floats]]:
    out = {}
    for key, harm in harms.items():
        window = _windows(steps, np.arange(steps.count), harm.grid)
        inside = (window >= 0) & (window < harm.grid.count)
        severity = harm.above[np.clip(window, 0, harm.grid.count - 1)]
        out[key] = harm.measure, np.where(inside, severity, 0.0)
    return out


def _windows(steps: Grid, at: Indices, grid: Grid) -> Indices:
    """Return which windows of a grid steps are in; negative, or too large, for none."""
    ends = steps.start + at * steps.window
    return np.asarray(np.ceil((ends - grid.start) / grid.window - 1e-9), dtype=np.intp)


def _merged(found: Sequence[Interference], blamed: Sequence[Blamed]) -> list[Interference]:
    """Return the statistics' answers with what is known, and those that only the latter has."""
    known = {(b.node, b.tenant): b for b in blamed}
    out = {(i.node, i.tenant): replace(i, known=known.get((i.node, i.tenant))) for i in found}
    for key, b in known.items():
        if key not in out:
            out[key] = Interference(b.node, b.tenant, b.measure, 0, None, [], known=b)
    return [out[key] for key in sorted(out)]


def _on_grid(known: Facts, grid: Grid) -> dict[Key, Mask]:
    """Return the windows of a grid in which tenants flooded or were limited."""
    out = {}
    for key, mask in restrained(known).items():
        window = _windows(known.grid, np.flatnonzero(mask), grid)
        within = np.zeros(grid.count, dtype=bool)
        within[window[(window >= 0) & (window < grid.count)]] = True
        out[key] = within
    return out


def _statistics(
    source: Source,
    grid: Grid,
    loss: Mapping[Key, Floats],
    delay: Mapping[Key, Floats],
    faults: Mapping[Key, Mask],
) -> list[Interference]:
    sent, received, policed = (_rates(source, e, grid) for e in (SENT, RECEIVED, POLICED))
    beyond = _by(source.windows(BEYOND, grid), "node")
    load = loads(sent, received, policed)
    common = [_rates(source, e, grid) for e in COMMON]
    out = []
    for node, tenant in sorted(set(loss) | set(delay)):
        here = {t: v for (n, t), v in load.items() if n == node}
        own = here.pop(tenant, None)
        shared = [c[(node, "")] for c in common if (node, "") in c]
        found = attribute(
            node,
            tenant,
            loss.get((node, tenant)),
            delay.get((node, tenant)),
            here,
            own,
            shared,
            within={t for t in here if _within(beyond.get((node, t)))},
            at_fault=_own_doing((node, tenant), sent, policed, faults, grid.count),
        )
        if found is not None:
            out.append(found)
    return out


def _within(beyond: Floats | None) -> bool:
    """Whether a tenant is known never to have sent beyond its contract."""
    return beyond is not None and bool(np.isfinite(beyond).any()) and not np.nan_to_num(beyond).any()


def _own_doing(
    key: Key,
    sent: Mapping[Key, Floats],
    policed: Mapping[Key, Floats],
    faults: Mapping[Key, Mask],
    count: int,
) -> Mask:
    """Return the windows in which a tenant flooded, or much of what it sent was policed, on whatever node."""
    out = np.zeros(count, dtype=bool)
    for (_, tenant), mask in faults.items():
        if tenant == key[1]:
            out |= mask
    for (node, tenant), dropped in policed.items():
        if tenant == key[1]:
            out |= at_limit(_known(sent, (node, tenant)), dropped)
    return out


def at_limit(sent: Floats, policed: Floats) -> Mask:
    """Return the windows in which a limit dropped much of what a tenant sent, shape of both."""
    dropped = np.nan_to_num(policed)
    return np.asarray((dropped > 0.0) & (dropped >= POLICED_SHARE * np.nan_to_num(sent)))


def loads(
    sent: Mapping[Key, Floats], received: Mapping[Key, Floats], policed: Mapping[Key, Floats]
) -> dict[Key, Floats]:
    """Return the load that each tenant puts on each node, bytes per second by window; NaN where unknown.

    What it sends there past its limits, and what it receives there of its own
    sending elsewhere. What others send to it is theirs, not its own.
    """
    out = {}
    for node, tenant in sorted(set(sent) | set(received)):
        key = (node, tenant)
        here = _known(sent, key) - _known(policed, key)
        elsewhere = sum(
            (np.nan_to_num(v) for (n, t), v in sent.items() if t == tenant and n != node),
            start=np.zeros(here.size),
        )
        known = np.isfinite(sent.get(key, np.nan)) | np.isfinite(received.get(key, np.nan))
        load = np.maximum(here, 0.0) + np.minimum(_known(received, key), elsewhere)
        out[key] = np.where(known, load, np.nan)
    return out


def _known(series: Mapping[Key, Floats], key: Key) -> Floats:
    return np.asarray(np.nan_to_num(series.get(key, np.zeros(1))))


def _measures(loss: Floats | None, delay: Floats | None) -> list[tuple[str, Floats, float]]:
    """Return what is measured, with the least that is bad; loss first."""
    both = (("loss", loss, 0.01), ("delay", delay, 0.002))
    return [(name, values, least) for name, values, least in both if values is not None]


def attribute(  # noqa: PLR0913
    node: str,
    tenant: str,
    loss: Floats | None,
    delay: Floats | None,
    others: Mapping[str, Floats],
    own: Floats | None = None,
    common: Sequence[Floats] = (),
    within: Collection[str] = (),
    at_fault: Mask | None = None,
) -> Interference | None:
    """Attribute a tenant's excess to its co-tenants; None while nothing is bad.

    Loss goes first: while probes are lost, the delay of those that arrive says
    little. Only windows in which both the tenant's probes and the node's traffic
    were known count: before that nothing moved, harm and traffic alike, and that
    alone would look like a coincidence. Co-tenants ``within`` their contracts
    explain what they explain and are never named. Stretches of bad windows in
    which the tenant was ``at_fault`` itself are its own doing.
    """
    for measure, values, least in _measures(loss, delay):
        span = _usable(values, [*others.values(), *([] if own is None else [own])])
        above = excess(values[span], least)
        bad = int((above > 0.0).sum())
        if bad and at_fault is not None:
            above = np.where(_stretches(above > 0.0, at_fault[span]), 0.0, above)
            if not above.any():
                return Interference(node, tenant, measure, bad, None, [], at_fault=True)
            bad = int((above > 0.0).sum())
        if bad:
            loads_known = {t: np.nan_to_num(v[span]) for t, v in others.items()}
            mine = [] if own is None else [np.nan_to_num(own[span])]
            shared = [np.nan_to_num(v[span]) for v in common]
            return Interference(
                node, tenant, measure, bad, *_explain(above, loads_known, mine, shared, within)
            )
    return None


def _stretches(bad: Mask, at_fault: Mask) -> Mask:
    """Return the stretches of bad windows, nearer than APART to each other, of which one is at fault."""
    out = np.zeros(bad.size, dtype=bool)
    at = np.flatnonzero(bad)
    for run in np.split(at, np.flatnonzero(np.diff(at) > APART) + 1) if at.size else []:
        stretch = slice(int(run[0]), int(run[-1]) + 1)
        out[stretch] = bad[stretch] & at_fault[stretch].any()
    return out


def _usable(values: Floats, traffic: Sequence[Floats]) -> Indices:
    """Windows in which the node's traffic is known, from the first to the last with probes of the tenant."""
    known = np.isfinite(np.array(traffic)).any(axis=0) if traffic else np.ones(values.size, dtype=bool)
    probed = np.flatnonzero(np.isfinite(values))
    between = np.zeros(values.size, dtype=bool)
    if probed.size:
        between[probed[0] : probed[-1] + 1] = True
    return np.flatnonzero(known & between)


def _explain(
    above: Floats,
    others: Mapping[str, Floats],
    mine: Sequence[Floats],
    shared: Sequence[Floats],
    within: Collection[str],
) -> tuple[Candidate | None, list[Candidate], Candidate | None, Candidate | None]:
    """Return own load beyond others', the co-tenants ranked, the suspect, and it beyond the rest."""
    ranked = _beyond([*mine, *shared], above, others)
    own = _beyond([*others.values(), *shared], above, dict(zip(["own"], mine, strict=False)))
    suspect = next((c for c in ranked if c.name not in within and _surges(others[c.name], above)), None)
    distinct: list[Candidate] = []
    if suspect is not None:
        rivals = [v for t, v in others.items() if t != suspect.name]
        distinct = _beyond([*mine, *shared, *rivals], above, {suspect.name: others[suspect.name]})
    return own[0] if own else None, ranked, suspect, distinct[0] if distinct else None


def _surges(load: Floats, above: Floats) -> bool:
    """Whether a load rises with the harm: its mean in the bad windows, by how bad they are."""
    return float(load @ above / above.sum()) >= max(SURGE * float(np.median(load)), 1.0)


def _beyond(covariates: Iterable[Floats], above: Floats, causes: Mapping[str, Floats]) -> list[Candidate]:
    """Rank causes by the share of the excess that they explain of what covariates leave (Kennedy 1995).

    Both the excess and the causes are freed of the covariates before one is
    rotated against the other, so that a load that only follows a covariate
    explains nothing. Covariates go with their squares: the harm of a load grows
    faster than the load.
    """
    known = np.array([f for v in covariates for f in (v, v * v)])
    left = left_by(known, above)
    remaining = float((left**2).sum())
    ranked = rank(left, {t: left_by(known, v) for t, v in causes.items()}, explained_shares)
    return [replace(c, share=c.share * remaining) for c in ranked]


def excess(values: Floats, least: float) -> Floats:
    """Return by how much windows exceed what is usual, 0 where they do not.

    Bad is a window above ``least`` and above five times the median of all; what
    is missing counts as usual.
    """
    known = values[np.isfinite(values)]
    if known.size == 0:
        return np.zeros(values.size)
    usual = float(np.median(known))
    filled = np.where(np.isfinite(values), values, usual)
    return np.where(filled > max(least, 5.0 * usual), filled - usual, 0.0)


def _rates(source: Source, expression: str, grid: Grid) -> dict[Key, Floats]:
    """Return what counters of nodes grew by, per second."""
    return {key: grew / grid.window for key, grew in _by(source.windows(expression, grid), "node").items()}


def _by(series: Sequence[Windowed], node: str) -> dict[Key, Floats]:
    return {(s.labels.get(node, ""), s.labels.get("tenant", "")): s.values for s in series}
