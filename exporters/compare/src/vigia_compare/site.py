"""What a site is like at a moment, by Prometheus: what fires, floods, is limited; tenants, paths, mesh.

Three sets of questions. ``Alarms`` are few and cheap; ``State`` and ``Mesh`` are larger, but bounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vigia_prometheus import Sample

__all__ = [
    "FLOOD_SCORE",
    "MOST",
    "Alarms",
    "Alert",
    "Ask",
    "Flood",
    "Harm",
    "Limit",
    "Mesh",
    "PathState",
    "State",
    "TenantState",
    "alarms",
    "mesh",
    "state",
]

MOST = 200
"""Rows of one kind: the worst of them."""

MOST_NODES = 100
"""Nodes of the matrix: those with the worst pairs."""

FLOOD_SCORE = 70.0
"""From which the alert VigiaUdpFlood fires."""

BAD_LOSS, SOME_LOSS = 0.01, 0.001
"""Shares of probes lost that are bad, and that are worth a look."""

SLOW = 2.0
"""Times its usual p99 from which a path is slow."""


class Ask(Protocol):
    """A server that is asked at a moment."""

    def __call__(self, expression: str, /) -> list[Sample]:
        """Evaluate an expression. Raises PrometheusError."""


@dataclass(frozen=True)
class Alert:
    """An alert that fires; several series of one name, severity, tenant, node and path are one."""

    name: str
    severity: str
    tenant: str
    node: str
    path: str
    series: int
    since: float
    """Unix time since which its condition holds; 0 where that is not known."""


@dataclass(frozen=True)
class Flood:
    """A port that looks like a flood."""

    node: str
    port: str
    tenant: str
    score: float


@dataclass(frozen=True)
class Limit:
    """A limit that was read back from the kernel."""

    node: str
    port: str
    tenant: str
    direction: str
    protocol: str
    rate: float
    """Bytes per second."""


@dataclass(frozen=True)
class Harm:
    """A tenant that another one hurt, by what was seen."""

    tenant: str
    node: str
    offender: str
    verdict: str
    begin: float
    end: float
    """Unix times; 0 where statistics alone say so."""
    share: float


@dataclass(frozen=True)
class Alarms:
    """What is wrong at a moment."""

    at: float
    alerts: Sequence[Alert] = ()
    floods: Sequence[Flood] = ()
    limits: Sequence[Limit] = ()
    harms: Sequence[Harm] = ()
    waiting: int = 0
    """Actions that wait for a person's approval."""
    kill_switch: bool = False
    silent: int = 0
    """Targets of probes that do not answer."""
    down: int = 0
    """Programs whose last scrape failed."""

    @property
    def involved(self) -> frozenset[tuple[str, ...]]:
        """Which tenants flood, are limited, or are hurt and by whom."""
        floods = (("floods", f.tenant) for f in self.floods)
        limits = (("limited", x.tenant) for x in self.limits)
        harms = (("hurt", h.tenant, h.offender, h.verdict) for h in self.harms)
        return frozenset((*floods, *limits, *harms))


@dataclass
class TenantState:
    """What a tenant bought and gets, over the last minute. Rates in bytes per second; NaN is not known."""

    tenant: str
    bought: float = math.nan
    """Guarantees of its ports together, of what it sends."""
    bought_to_receive: float = math.nan
    sent: float = math.nan
    received: float = math.nan
    policed: float = 0.0
    """What limits dropped of it."""
    loss: float = math.nan
    """Share of probes lost, on its worst path."""
    p99: float = math.nan
    """Seconds, on its worst path."""
    drops: dict[str, float] = field(default_factory=dict)
    """Packets of it that were dropped in the last five minutes, by reason. 0: the first ones were seen just
    now, and the next scrapes count them: a counter begins with zeros."""
    limited: bool = False
    floods: bool = False
    hurt_by: list[str] = field(default_factory=list)
    """Who hurts it, as words: red (likely)."""

    @property
    def operator(self) -> bool:
        """Whether these are the operator's own ports, which buy nothing."""
        return self.tenant.startswith("_")

    @property
    def above(self) -> bool:
        """Whether it sends more than it bought."""
        return not self.operator and self.sent > self.bought > 0.0

    @property
    def words(self) -> list[str]:
        """What is the matter with it, the worst first."""
        loses = self.loss >= SOME_LOSS
        return [
            *(["floods"] if self.floods else []),
            *(["limited"] if self.limited else []),
            *(f"hurt by {who}" for who in self.hurt_by),
            *(["loses probes"] if loses else []),
            *(["above guarantee"] if self.above else []),
        ]

    @property
    def badness(self) -> tuple[float, ...]:
        """What tenants are ordered by: the largest first."""
        lost = self.loss if math.isfinite(self.loss) else 0.0
        return (
            float(bool(self.hurt_by)),
            float(self.floods) + float(self.limited),
            lost if lost >= SOME_LOSS else 0.0,
            sum(self.drops.values()),
            self.sent if math.isfinite(self.sent) else 0.0,
        )


@dataclass(frozen=True)
class PathState:
    """A path between two nodes for a tenant's probes, over the last minute."""

    src: str
    dst: str
    path: str
    tenant: str
    probe: str
    loss: float
    p99: float
    """Seconds."""
    times_usual: float
    """p99 over its median of ten minutes."""

    @property
    def words(self) -> str:
        """What is the matter with it."""
        if self.loss >= SOME_LOSS:
            return "loses probes"
        return "slow" if self.times_usual >= SLOW else ""

    @property
    def badness(self) -> tuple[float, float]:
        """What paths are ordered by: the largest first."""
        lost = self.loss if self.loss >= SOME_LOSS else 0.0
        return lost, self.times_usual if math.isfinite(self.times_usual) else 0.0


@dataclass(frozen=True)
class State:
    """Tenants and paths, the worst first."""

    at: float
    tenants: Sequence[TenantState]
    paths: Sequence[PathState]
    more_tenants: int = 0
    """Tenants that are left out."""


@dataclass(frozen=True)
class Mesh:
    """The worst of the paths between each two nodes, over the last minute."""

    at: float
    nodes: Sequence[str]
    pairs: Mapping[tuple[str, str], tuple[float, float]]
    """Share of probes lost, and p99 in seconds, by source and destination; NaN is not known."""
    more_nodes: int = 0


_ALERT = "alertname, severity, tenant, node, path"
_LOSS, _P99 = "path:vigia_probe_loss:ratio_rate1m", "path:vigia_probe_rtt_seconds:p99_rate1m"
_USUAL = f"{_P99} / path:vigia_probe_rtt_seconds:p99_median10m"
_FLOOD = "max by (node, port, tenant) (vigia_port_flood_score)"
_LIMIT = "max by (node, port, tenant, direction, protocol) (vigia_isolation_limit_bytes_per_second)"
_HARM = "vigia_compare_interference"
_HARMED = f'max by (node, tenant, offender, verdict) ({_HARM}_verdict{{verdict=~"attributed|likely"}})'
_LED = "max without (instance)"

ALARMS: Mapping[str, str] = {
    "alerts": f'topk({MOST}, count by ({_ALERT}) (ALERTS{{alertstate="firing"}}))',
    "since": f"bottomk({MOST}, min by ({_ALERT}) (ALERTS_FOR_STATE and ignoring (alertstate) "
    'ALERTS{alertstate="firing"}))',
    "floods": f"topk({MOST}, {_FLOOD} >= {FLOOD_SCORE:g})",
    "limits": f"topk({MOST}, {_LIMIT} > 0)",
    "harms": f"topk({MOST}, {_HARMED})",
    "begin": f"max by (node, tenant, offender) ({_HARM}_begin_timestamp_seconds)",
    "end": f"max by (node, tenant, offender) ({_HARM}_end_timestamp_seconds)",
    "share": f"max by (node, tenant, offender) ({_HARM}_share_ratio)",
    "waiting": f'sum({_LED} (vigia_isolation_actions{{state="pending_approval"}}))',
    "kill_switch": "max(vigia_agent_kill_switch)",
    "silent": "sum(1 - vigia_probe_target_up)",
    "down": "count(up == 0)",
}

STATE: Mapping[str, str] = {
    "bought": "sum by (tenant, direction) "
    "(max by (node, port, tenant, direction) (vigia_isolation_guarantee_bytes_per_second))",
    "rate": "sum by (tenant, direction) (rate(vigia_port_bytes_total[1m]))",
    "policed": "sum by (tenant) (rate(vigia_isolation_policed_bytes_total[1m])) > 0",
    "loss": f"max by (tenant) ({_LOSS})",
    "p99": f"max by (tenant) ({_P99})",
    "drops": "round(sum by (tenant, reason) (increase(vigia_port_drops_total[5m]))) > 0 or "
    "sum by (tenant, reason) (vigia_port_drops_total == 0 "
    "unless count_over_time(vigia_port_drops_total[1m] offset 1m))",
    "lossy paths": f"topk({MOST // 4}, {_LOSS} > 0)",
    "slow paths": f"topk({MOST // 4}, {_USUAL})",
    "delays": f"{_P99} and (topk({MOST // 4}, {_LOSS} > 0) or topk({MOST // 4}, {_USUAL}))",
}


def _key(sample: Sample, *names: str) -> tuple[str, ...]:
    return tuple(sample.labels.get(n, "") for n in names)


def _number(samples: Iterable[Sample]) -> float:
    return next((s.value for s in samples if math.isfinite(s.value)), 0.0)


_BY_ALERT = ("alertname", "severity", "tenant", "node", "path")
_OF_HARM = ("node", "tenant", "offender")


def _alert(s: Sample, since: Mapping[tuple[str, ...], float]) -> Alert:
    name, severity, tenant, node, path = key = _key(s, *_BY_ALERT)
    return Alert(name, severity, tenant, node, path, int(s.value), since.get(key, 0.0))


def _flood(s: Sample) -> Flood:
    node, port, tenant = _key(s, "node", "port", "tenant")
    return Flood(node, port, tenant, s.value)


def _limit(s: Sample) -> Limit:
    node, port, tenant, direction, protocol = _key(s, "node", "port", "tenant", "direction", "protocol")
    return Limit(node, port, tenant, direction, protocol, s.value)


def _harm(
    s: Sample,
    begin: Mapping[tuple[str, ...], float],
    end: Mapping[tuple[str, ...], float],
    share: Mapping[tuple[str, ...], float],
) -> Harm:
    node, tenant, offender = key = _key(s, *_OF_HARM)
    verdict = s.labels.get("verdict", "")
    known = (begin.get(key, 0.0), end.get(key, 0.0), share.get(key, math.nan))
    return Harm(tenant, node, offender, verdict, *known)


def alarms(ask: Ask, at: float) -> Alarms:
    """Return what is wrong. Raises PrometheusError."""
    found = {name: ask(expression) for name, expression in ALARMS.items()}
    since = {_key(s, *_BY_ALERT): s.value for s in found["since"]}
    alerts = [_alert(s, since) for s in found["alerts"]]
    times = [{_key(s, *_OF_HARM): s.value for s in found[name]} for name in ("begin", "end", "share")]
    harms = [_harm(s, *times) for s in found["harms"]]
    rank = {"critical": 0, "warning": 1}
    return Alarms(
        at=at,
        alerts=sorted(alerts, key=lambda a: (rank.get(a.severity, 2), a.name, a.tenant, a.node, a.path)),
        floods=sorted(map(_flood, found["floods"]), key=lambda f: (-f.score, f.node, f.port)),
        limits=sorted(
            map(_limit, found["limits"]),
            key=lambda x: (x.tenant, x.node, x.port, x.direction, x.protocol),
        ),
        harms=sorted(harms, key=lambda h: (-h.end, h.tenant, h.node, h.offender)),
        waiting=int(_number(found["waiting"])),
        kill_switch=_number(found["kill_switch"]) > 0.0,
        silent=int(_number(found["silent"])),
        down=int(_number(found["down"])),
    )


def state(ask: Ask, wrong: Alarms) -> State:
    """Return tenants and paths at the moment of what is wrong. Raises PrometheusError."""
    found = {name: ask(expression) for name, expression in STATE.items()}
    tenants: dict[str, TenantState] = {}

    def of(sample: Sample) -> TenantState:
        name = sample.labels.get("tenant", "")
        return tenants.setdefault(name, TenantState(name))

    _traffic(found, of)
    for s in found["loss"]:
        of(s).loss = s.value
    for s in found["p99"]:
        of(s).p99 = s.value
    for s in found["drops"]:
        of(s).drops[s.labels.get("reason", "")] = s.value
    tenants.pop("", None)
    _accuse(tenants, wrong)
    ordered = sorted(tenants.values(), key=lambda t: ([-b for b in t.badness], t.tenant))
    return State(wrong.at, ordered[:MOST], _paths(found), max(0, len(ordered) - MOST))


def _traffic(found: Mapping[str, Sequence[Sample]], of: _Of) -> None:
    for s in found["bought"]:
        name = "bought" if s.labels.get("direction") == "from_tenant" else "bought_to_receive"
        setattr(of(s), name, s.value)
    for s in found["rate"]:
        setattr(of(s), "sent" if s.labels.get("direction") == "from_tenant" else "received", s.value)
    for s in found["policed"]:
        of(s).policed = s.value


class _Of(Protocol):
    def __call__(self, sample: Sample, /) -> TenantState: ...


def _accuse(tenants: Mapping[str, TenantState], wrong: Alarms) -> None:
    for flood in wrong.floods:
        if flood.tenant in tenants:
            tenants[flood.tenant].floods = True
    for limit in wrong.limits:
        if limit.tenant in tenants:
            tenants[limit.tenant].limited = True
    for harm in wrong.harms:
        who = harm.offender if harm.verdict == "attributed" else f"{harm.offender} ({harm.verdict})"
        if harm.tenant in tenants and who not in tenants[harm.tenant].hurt_by:
            tenants[harm.tenant].hurt_by.append(who)


def _paths(found: Mapping[str, Sequence[Sample]]) -> list[PathState]:
    names = ("src", "dst", "path", "tenant", "probe")
    lost, slow, p99 = (
        {_key(s, *names): s.value for s in found[name]} for name in ("lossy paths", "slow paths", "delays")
    )
    paths = []
    for key in lost.keys() | slow.keys():
        src, dst, path, tenant, probe = key
        known = (lost.get(key, 0.0), p99.get(key, math.nan), slow.get(key, math.nan))
        paths.append(PathState(src, dst, path, tenant, probe, *known))
    return sorted(paths, key=lambda p: ([-b for b in p.badness], p.src, p.dst, p.path, p.tenant, p.probe))


def mesh(ask: Ask, at: float, path: str = "") -> Mesh:
    """Return the matrix of one path, or of the worst of all. Raises PrometheusError."""
    chosen = f"{{path={json.dumps(path, ensure_ascii=False)}}}" if path else ""
    lost, slow = (
        {_key(s, "src", "dst"): s.value for s in ask(f"max by (src, dst) ({record}{chosen})")}
        for record in (_LOSS, _P99)
    )
    pairs = {
        (src, dst): (lost.get((src, dst), math.nan), slow.get((src, dst), math.nan))
        for src, dst in lost.keys() | slow.keys()
    }
    worst: dict[str, tuple[float, float]] = {}
    for ends, (loss, delay) in pairs.items():
        bad = (loss if loss >= SOME_LOSS else 0.0, delay if math.isfinite(delay) else 0.0)
        for node in ends:
            worst[node] = max(worst.get(node, (0.0, 0.0)), bad)
    kept = sorted(worst, key=lambda n: ([-b for b in worst[n]], n))[:MOST_NODES]
    inside = set(kept)
    shown = {k: v for k, v in pairs.items() if inside.issuperset(k)}
    return Mesh(at, sorted(kept), shown, len(worst) - len(kept))
