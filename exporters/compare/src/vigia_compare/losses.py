"""Loss pinned to a counter: which drop counter on the path counted when probes were lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vigia_compare.coincidence import rank, rank_correlation
from vigia_compare.limits import LEAST_WINDOWS
from vigia_compare.paths import Known, PathAttributes
from vigia_compare.source import Source
from vigia_compare.windows import Grid, counted, grown
from vigia_statistics.samples import Floats

__all__ = ["COUNTERS", "VERDICTS", "Counter", "Pinned", "find", "pin"]

VERDICTS = PINNED, UNCLEAR, UNSEEN, ELSEWHERE = (
    "pinned",
    "insufficient evidence",
    "no counter",
    "not on these hosts",
)

_KEY = ("src", "dst", "path", "tenant")

_SOCKETS = {"send_error": "src", "local_overflow": "src", "reflector_overflow": "dst"}
"""Causes of loss that the probe itself knows, and at which end that is; no network loses these."""

SOCKETS = "vigia_probe_lost_total"
"""The counter of these."""

PROBES = (
    f"sum by (src, dst, path, tenant, cause) ({counted('vigia_probe_lost_total', 'vigia-probe')}) "
    f"or sum by (src, dst, path, tenant) ({grown('vigia_probe_sent_total')})"
)
"""Those that were lost, by cause; and without a cause those that were sent."""

_EXPORTER, _ENFORCER, _PROBE = "vigia-exporter", "vigia-enforcer", "vigia-probe"

_PLACES: Mapping[str, tuple[str, str]] = {
    # where it counts, at most one label beside node and tenant; and who exports it, if only once it counts
    "vigia_port_drops_total": ("node, tenant, reason", _EXPORTER),
    "vigia_isolation_policed_packets_total": ("node, tenant", _ENFORCER),
    "vigia_isolation_refused_packets_total": ("node, tenant", _ENFORCER),
    "vigia_openflow_meter_drops_total": ("node, meter", _EXPORTER),
    "vigia_openflow_queue_drops_total": ("node, device", _EXPORTER),
    "vigia_qdisc_drops_total": ("node, device", _EXPORTER),
    "vigia_ovs_port_drops_total": ("node, device", _EXPORTER),
    'vigia_ovs_datapath_lookups_total{result="lost"}': ("node, result", _EXPORTER),
    'vigia_ovs_coverage_events_total{event=~"(datapath_drop|drop_action)_.+"}': ("node, event", _EXPORTER),
    "vigia_reflector_overflow_total": ("node", _PROBE),
    "node_softnet_dropped_total": ("node", ""),
    "node_qdisc_drops_total": ("node, device", ""),
    "node_network_receive_drop_total": ("node, device", ""),
    "node_network_transmit_drop_total": ("node, device", ""),
}

_MISSED = (
    f"sum by (node, table) ({grown('vigia_openflow_table_lookups_total')}) "
    f"- sum by (node, table) ({grown('vigia_openflow_table_matched_total')})"
)

COUNTERS: Mapping[str, str] = {
    **{
        counter.partition("{")[0]: f"sum by ({place}) ({counted(counter, job) if job else grown(counter)})"
        for counter, (place, job) in _PLACES.items()
    },
    "vigia_openflow_table_lookups_total": _MISSED,  # that matched no flow
}
"""Drop counters, with the labels that tell where: at most one beside the node and the tenant."""

_DETAILS = ("reason", "device", "result", "event", "meter", "table")

_OF_TENANTS = {counter for counter, (place, _) in _PLACES.items() if "tenant" in place}
"""Counters that know whose packets they count: these go before what all share, where both fit alike."""

_REMAINDER = "unattributed"
"""The reason of drops whose cause is not known: named causes that fit alike go before it."""

_SWITCH = ("vigia_openflow_", "vigia_ovs_")
_NOT_BY_SWITCH = ("linuxbridge", "bridge", "macvlan")
"""Counters of Open vSwitch, and words of data planes that do not cross it."""

_BLIND = {
    "vigia_qdisc_drops_total",
    "vigia_ovs_port_drops_total",
    "node_qdisc_drops_total",
    "node_softnet_dropped_total",
    "node_network_receive_drop_total",
    "node_network_transmit_drop_total",
}
"""Counters of what drops whatever comes when it is full: all that goes through it loses alike."""

_QUEUE_FULL = "vigia_port_drops_total", "queue_full"
"""One more, where it has counted nothing of the tenant's own ports."""

COLLECTORS = ("bpf", "kerneldrops", "netdev", "openflow", "ovs", "packetsockets", "qdisc")
"""Parts of vigia-exporter that count drops; those of Open vSwitch run where it does."""

_COUNTING = "|".join(COLLECTORS)

SEEN = (
    f'min by (node) (vigia_exporter_collector_success{{collector=~"{_COUNTING}"}}) '
    'and on (node) vigia_exporter_collector_success{collector="kerneldrops"}'
)
"""1 where everything that a host drops is counted."""

LEAST_CORRELATION = 0.3

LEAST_LOST = 5.0
"""Probes that must be lost: whatever counts now and then has counted as much as fewer."""

ENOUGH = 30.0
"""Probes that another path must have sent meanwhile to say anything of a path."""

RARE = 3.0
"""Probes: of a path that lost none, so many more may have been expected to be lost (95 %, Poisson)."""

LEAST_COVERED, COVERED = 0.5, 0.9
"""Share of the losses that a counter must have counted: beside statistics, and without."""

Place = tuple[str, str, str]
"""Node, counter, and its detail."""


@dataclass(frozen=True)
class Counter:
    """One drop counter and how it fits."""

    node: str
    """Empty for a counter of the whole site."""
    name: str
    detail: str
    """Reason, device, cause, table, meter, or result of a look-up."""
    coincidence: float
    p_value: float
    """1 with too few windows to tell."""
    packets: float
    """What it counted in the lossy windows."""
    covered: float = 1.0
    """Share of the losses that it can have counted: what it counted then beyond its usual."""
    alone: bool = False
    """Whether it counted when probes were lost and hardly at any other time; not of a few probes."""
    most: float = 1.0
    """Share of the losses that it, and all others that are below 1, can have counted together."""

    @property
    def fits(self) -> bool:
        """Whether the losses are pinned to it."""
        together = self.p_value <= 0.05 and self.coincidence >= LEAST_CORRELATION
        return (together and self.covered >= LEAST_COVERED) or (self.alone and self.covered >= COVERED)


@dataclass(frozen=True)
class Pinned:
    """What is known of one lossy path."""

    src: str
    dst: str
    path: str
    tenant: str
    lost: float
    lossy_windows: int
    counters: Sequence[Counter]
    known: int = LEAST_WINDOWS
    """Windows from the first to the last that the path's losses are known of."""
    seen: bool = False
    """Whether all that both hosts drop was counted while probes were lost."""
    fresh: float = 0.0
    """Share of the losses in the newest window: a counter that is new may show only after it."""

    @property
    def verdict(self) -> str:
        """Pinned; not on these hosts, whose counters were all there and too small; or what lacks."""
        if self.counters and self.counters[0].fits:
            return PINNED
        if self.seen and self._covered() + self.fresh < LEAST_COVERED:
            return ELSEWHERE
        return UNSEEN if not self.counters and self.known >= LEAST_WINDOWS else UNCLEAR

    def _covered(self) -> float:
        bounded = [c for c in self.counters if c.most < 1.0]
        shared = min(sum(c.covered for c in bounded), max((c.most for c in bounded), default=0.0))
        return shared + sum(c.covered for c in self.counters if c.most >= 1.0)


def find(source: Source, grid: Grid, known: Known) -> list[Pinned]:
    """Look at every path that lost probes, known for what it is. Raises PrometheusError."""
    lossy: dict[tuple[str, ...], dict[str, Floats]] = {}
    sent: dict[frozenset[str], dict[tuple[str, ...], Floats]] = {}
    for s in source.windows(PROBES, grid):
        key = tuple(s.labels.get(k, "") for k in _KEY)
        if cause := s.labels.get("cause", ""):
            lossy.setdefault(key, {})[cause] = s.values
        else:
            sent.setdefault(frozenset(key[:2]), {})[key] = s.values
    lossy = {k: causes for k, causes in lossy.items() if sum(np.nansum(v) for v in causes.values()) >= 1.0}
    if not lossy:
        return []
    by_network = {k: _by_network(causes, grid.count) for k, causes in lossy.items()}
    counters = list(_counters(source, grid))
    seen = {s.labels.get("node", ""): _throughout(s.values == 1.0) for s in source.windows(SEEN, grid)}
    out = []
    for (src, dst, path, tenant), causes in sorted(lossy.items()):
        key = src, dst, path, tenant
        near: dict[Place, Floats] = {}
        blind: set[Place] = set()
        owned: set[Place] = set()
        for place, owner, values in counters:
            # What others lose at their own ports is theirs, whenever that is.
            theirs = owner in ("", tenant) or owner.startswith("_")
            if place[0] in (src, dst, "") and theirs and _crosses(known.of(src, path), place[1]):
                near[place] = near.get(place, 0.0) + values
                if owner == tenant:
                    owned.add(place)
                if place[1] in _BLIND or place[1:] == _QUEUE_FULL:
                    blind.add(place)
        sockets = {c: np.nan_to_num(v) for c, v in causes.items() if c in _SOCKETS}
        lost = by_network[key]
        hosts = [seen.get(host, np.zeros(grid.count, dtype=bool)) for host in {src, dst}]
        everywhere = bool(np.logical_and.reduce(hosts)[lost > 0.0].all())
        between = sent.get(frozenset((src, dst)), {})
        most = _most(key, blind - owned if everywhere else set(), by_network, between, known)
        out.append(pin(*key, lost, near, sockets, everywhere, most))
    return out


def _most(
    key: tuple[str, ...],
    places: Collection[Place],
    lost: Mapping[tuple[str, ...], Floats],
    between: Mapping[tuple[str, ...], Floats],
    known: Known,
) -> dict[Place, float]:
    """Return the most that may be said of a path's losses at places that others use as well, by place.

    All counters of a kind are crossed by the same paths. ``between`` is what was sent between its hosts.
    """
    by_kind: dict[str, float] = {}
    for kind in {place[1] for place in places}:
        through = {k: v for k, v in between.items() if _crosses(known.of(k[0], k[2]), kind)}
        by_kind[kind] = _alike(key, lost, through)
    return {place: by_kind[place[1]] for place in places}


def _by_network(causes: Mapping[str, Floats], count: int) -> Floats:
    return _together([v for c, v in causes.items() if c not in _SOCKETS], count)


def _alike(
    key: tuple[str, ...], lost: Mapping[tuple[str, ...], Floats], sent: Mapping[tuple[str, ...], Floats]
) -> float:
    """Return the share of a path's losses that it would have if it had lost as another between its hosts did.

    As the one that lost most meanwhile, of those that sent enough: of those of the same prober, whose losses
    are scraped with its own, or else of those back, which may be counted a window later. 1 where there is
    none, or where this path's probes are not known.
    ``sent`` is of the paths between its hosts, either way.
    """
    own = np.nan_to_num(lost[key])
    then = own > 0.0
    probes = float(np.nansum(sent[key][then])) if key in sent else 0.0
    if not probes or not own.any():
        return 1.0
    for same, meanwhile in ((True, then), (False, _widened(then))):
        others = [
            ((float(np.nansum(lost[k][meanwhile])) if k in lost else 0.0) + RARE) / n
            for k, values in sent.items()
            if k[2:] != key[2:]
            and (k[0] == key[0]) is same
            and (n := float(np.nansum(values[then]))) >= ENOUGH
        ]
        if others:
            return min(1.0, max(others) * probes / float(own.sum()))
    return 1.0


def _throughout(at_end: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the windows at whose beginning it was so as well: growth needs a sample near both ends."""
    out = at_end.copy()
    out[1:] &= at_end[:-1]
    return out


def _widened(windows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return windows and those beside them.

    A program is scraped up to 15 s after another: what is lost in one window may be counted in the next.
    """
    wide = windows.copy()
    wide[1:] |= windows[:-1]
    wide[:-1] |= windows[1:]
    return wide


def _crosses(path: PathAttributes, counter: str) -> bool:
    """Whether a counter can be one of what a path goes through, as far as is known of it."""
    words = path.dataplane.lower().replace("_", "-").split("-")
    return not counter.startswith(_SWITCH) or not any(w in _NOT_BY_SWITCH for w in words)


def _together(values: Sequence[Floats], count: int) -> Floats:
    """Return sums of what is known; NaN where nothing is."""
    known = np.array(values).reshape(-1, count)
    return np.where(np.isfinite(known).any(axis=0), np.nansum(known, axis=0), np.nan)


def _counters(source: Source, grid: Grid) -> Iterator[tuple[Place, str, Floats]]:
    """Yield the counters that counted, with the tenant that owns the place, if any."""
    for name, expression in COUNTERS.items():
        for s in source.windows(expression, grid):
            values = np.nan_to_num(s.values)
            if values.sum() > 0.0:
                detail = next((s.labels[k] for k in _DETAILS if s.labels.get(k)), "")
                yield (s.labels.get("node", ""), name, detail), s.labels.get("tenant", ""), values


def pin(  # noqa: PLR0913
    src: str,
    dst: str,
    path: str,
    tenant: str,
    lost: Floats,
    near: Mapping[Place, Floats],
    sockets: Mapping[str, Floats] | None = None,
    seen: bool = False,
    most: Mapping[Place, float] | None = None,
) -> Pinned:
    """Rank the counters near a path by how they fit its losses, shape (windows,) each.

    ``sockets`` are losses that the probe itself knows the socket of, by cause; ``most`` is the share of the
    losses that a counter can have seen at most, by what other paths through it lost. Windows before the path
    was measured do not count: nothing was lost and nothing counted then, which alone would look like a
    coincidence.
    """
    newest = float(np.nan_to_num(lost[-1])) if lost.size else 0.0
    known = np.flatnonzero(np.isfinite(lost))
    span = slice(int(known[0]), int(known[-1]) + 1) if known.size else slice(0)
    lost = np.nan_to_num(lost[span])
    at_sockets = {c: v for c, v in (sockets or {}).items() if v.sum() > 0.0}
    total = float(lost.sum()) + sum(float(v.sum()) for v in at_sockets.values())
    bad = int((lost > 0.0).sum())
    if at_sockets and sum(float(v.sum()) for v in at_sockets.values()) >= LEAST_COVERED * total:
        lossy = int((np.sum(list(at_sockets.values()), axis=0) > 0.0).sum())
        return Pinned(
            src, dst, path, tenant, total, max(bad, lossy), _at(at_sockets, src, dst), known.size, seen
        )
    spans = {place: values[span] for place, values in near.items()}
    counters = [] if not bad else _ranked(lost, spans, most or {})
    fresh = newest / total if total else 0.0
    return Pinned(src, dst, path, tenant, total, bad, counters, lost.size, seen, fresh)


def _at(sockets: Mapping[str, Floats], src: str, dst: str) -> list[Counter]:
    """Return the counters of sockets, which count nothing but the losses themselves."""
    ends = {"src": src, "dst": dst}
    found = [
        Counter(ends[_SOCKETS[cause]], SOCKETS, cause, 1.0, 1.0, float(values.sum()), 1.0, True)
        for cause, values in sockets.items()
    ]
    return sorted(found, key=lambda c: -c.packets)


def _ranked(lost: Floats, near: Mapping[Place, Floats], most: Mapping[Place, float]) -> list[Counter]:
    coincidences = _coincidences(lost, near)
    bad = lost > 0.0
    wide = _widened(bad)
    out = []
    for place, values in near.items():
        coincidence, p = coincidences.get(place, (0.0, 1.0))
        usual = float(np.median(values[~wide])) if (~wide).any() else 0.0
        surplus = float(np.maximum(values[wide] - usual, 0.0).sum())
        with_it = float(values[wide].sum()) / max(float(values.sum()), 1e-9)
        every = float(lost[bad & (_nearby(values) > 0.0)].sum()) / float(lost.sum())
        rare = with_it >= COVERED and every >= COVERED and not wide.all()
        bound = most.get(place, 1.0)
        covered = min(bound, surplus / float(lost.sum()))
        alone = rare and lost.sum() >= LEAST_LOST
        out.append(Counter(*place, coincidence, p, float(values[bad].sum()), covered, bool(alone), bound))
    total = float(lost.sum())
    return sorted(
        out,
        key=lambda c: (
            not c.fits,
            -c.coincidence,
            c.name not in _OF_TENANTS,
            c.detail == _REMAINDER,
            abs(np.log(max(c.packets, 0.5) / total)),
            *_name(c),
        ),
    )


def _name(c: Counter) -> tuple[str, str, str]:
    return c.name, c.node, c.detail


def _nearby(values: Floats) -> Floats:
    out = values.copy()
    out[1:] = np.maximum(out[1:], values[:-1])
    out[:-1] = np.maximum(out[:-1], values[1:])
    return out


def _coincidences(lost: Floats, near: Mapping[Place, Floats]) -> dict[Place, tuple[float, float]]:
    """Return each counter's rank correlation with the losses, and its p-value."""
    out = {}
    for candidate in rank(lost, {"\0".join(p): v for p, v in near.items()}, rank_correlation):
        node, name, detail = candidate.name.split("\0")
        out[(node, name, detail)] = (candidate.share, candidate.p_value)
    return out
