"""What is to be done about a target: the inventory check and the chain of guards.

Everything here is a pure function of a Situation, so that the controller and
``simulate`` decide alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from isolation_agent.alerts import Target
from isolation_agent.clock import rfc3339
from isolation_agent.enforcer import PortState
from isolation_agent.fleet import View
from isolation_agent.policy import AllowEntry, Guards, Policy

__all__ = [
    "GUARDS",
    "Situation",
    "Spec",
    "Verdict",
    "effective_level",
    "evidence_of",
    "flooding",
    "judge",
    "offered_load",
    "relaxed",
    "spec_of",
    "standing_objection",
]


_FRESH = timedelta(seconds=5)
"""Age up to which the last sign of a flood in the kernel is evidence that it goes on."""


@dataclass(frozen=True)
class Situation:
    """All that a decision depends on."""

    policy: Policy
    guards: Guards
    target: Target
    labels: Mapping[str, str]
    view: View
    action_id: str = ""
    held: bool = False  # another action limits the target already
    retired: bool = False  # the policy is no longer in the policy file
    dry_run: bool = False
    kill_switch: bool = False
    level: str | None = None  # of an action that stands at another level than its policy begins with
    approved_by: str | None = None
    allowed_since: Sequence[AllowEntry] = ()  # entries added at run time
    cooldown_left: float = 0.0  # seconds
    active: int = 0  # other limits in force, everywhere
    active_on_node: int = 0  # other limits in force, on this node
    active_of_tenant: int = 0  # other limits in force or set within per_tenant_within, of this tenant
    tenants: int = 0  # known to the enforcers
    breaker: str = ""  # why the breaker has tripped, if it has

    @property
    def port(self) -> PortState | None:
        """The target's port as the enforcer reports it."""
        return self.view.state.find(self.target.port) if self.view.state else None

    @property
    def rate(self) -> int:
        """The tenant's guarantee, in bytes per second."""
        return self.port.guarantee if self.port else 0

    @property
    def at_level(self) -> str:
        """The level that is judged."""
        return self.level or effective_level(self.policy, self.labels)

    @property
    def spec(self) -> Spec:
        """What the enforcer would be asked for."""
        return spec_of(self.at_level, self.port)


@dataclass(frozen=True)
class Spec:
    """A limit as a level asks for it. Rates in bytes per second, packets and new flows in 1/s."""

    protocol: str
    rate: int
    packets: int | None = None
    new_flows: int | None = None
    needs: tuple[str, ...] = ()  # what the enforcer has to support

    def fields(self) -> dict[str, Any]:
        """Return the fields of the enforcer's contract, those that are set."""
        named = {
            "protocol": self.protocol,
            "rate_bytes_per_second": self.rate,
            "packets_per_second": self.packets,
            "new_flows_per_second": self.new_flows,
        }
        return {k: v for k, v in named.items() if v is not None}

    def said(self, port: str) -> str:
        """Say what the limit does to a port."""
        if self.rate == 0:
            return f"drop UDP of {port}"
        what = f"shape everything of {port}" if self.protocol == "all" else f"cap UDP of {port}"
        caps = [(self.rate, "bytes/s"), (self.packets, "packets/s"), (self.new_flows, "new flows/s")]
        return f"{what} at the guarantee of {' and '.join(f'{n} {unit}' for n, unit in caps if n)}"


def spec_of(level: str, port: PortState | None) -> Spec:
    """Return the limit of a level from L1 on, at what the tenant bought."""
    guarantee = port.guarantee if port else 0
    if level == "L1":
        return Spec("all", guarantee, needs=("all",))
    if level == "L3":
        packets = port.pps_guarantee if port else None
        flows = port.new_flows_guarantee if port else None
        return Spec("udp", guarantee, packets, flows, needs=("packets",))
    if level == "L4":
        return Spec("udp", 0, needs=("below_floor",))
    return Spec("udp", guarantee)


def relaxed(spec: Spec, port: PortState) -> Spec:
    """Return a limit that the tenant would not feel unless the flood came back."""
    room = max(port.ceiling_bytes_per_second or 0, 2 * port.guarantee, 1)
    return replace(spec, rate=room, packets=None, new_flows=None, needs=())


@dataclass(frozen=True)
class Verdict:
    """The decision: what stops the action, if anything, and what the action is."""

    level: str
    spec: Spec | None  # None for L0
    guard: str | None  # the first guard that stops it
    reason: str
    also: Mapping[str, str] = field(default_factory=dict)  # further guards that would stop it
    approval: str = ""  # why a person has to decide, if nothing stops it

    @property
    def allowed(self) -> bool:
        """True if no guard stops the action."""
        return self.guard is None

    @property
    def rate(self) -> int | None:
        """The limit in bytes per second."""
        return self.spec.rate if self.spec else None


def effective_level(policy: Policy, labels: Mapping[str, str]) -> str:
    """Return the policy's level; L0 unless the alert asks for an action or for a person's approval of one."""
    return policy.level if labels.get("isolate") in ("auto", "approve") else "L0"


def judge(s: Situation) -> Verdict:
    """Decide. The first objection in order is the reason, later ones are named too."""
    level = s.at_level
    objections = {name: text for name, guard in GUARDS if (text := guard(s))}
    if level == "L0":
        objections = {k: v for k, v in objections.items() if k == "inventory"}
    elif s.approved_by:
        objections = {k: v for k, v in objections.items() if k not in _FOR_MACHINES}
    spec = None if level == "L0" else s.spec
    breaker = objections.pop("breaker", "")
    if objections:
        first = next(iter(objections))
        also = {k: v for k, v in objections.items() if k != first}
        return Verdict(level, spec, first, objections[first], also)
    if spec is None:
        return Verdict(level, None, None, "level L0: recorded, nothing is limited")
    return Verdict(level, spec, None, spec.said(s.target.port), approval=breaker or _approval(s, level))


def _approval(s: Situation, level: str) -> str:
    """Return why a person has to decide."""
    if s.approved_by:
        return ""
    if level == "L4":
        return "level L4 goes below what the tenant bought"
    if s.labels.get("isolate") == "approve":
        return "the alert asks for a person's approval"
    return f"policy {s.policy.name} asks for a person's approval" if s.policy.approval else ""


def _inventory(s: Situation) -> str:
    port, target = s.port, s.target
    if s.view.state is None:
        return s.view.error
    if port is None:
        return f"node {target.node} has no port {target.port}"
    if port.tenant != target.tenant:
        return f"port {target.port} belongs to tenant {port.tenant[:64]}, not to {target.tenant}"
    if not port.attached:
        return f"port {target.port} has no program attached, so nothing can be limited there"
    return ""


def _unsupported(s: Situation) -> str:
    state, level = s.view.state, s.at_level
    missing = [] if state is None or level == "L0" else [n for n in s.spec.needs if n not in state.supports]
    if missing:
        return f"the enforcer of {s.target.node} cannot do level {level}; it lacks: {', '.join(missing)}"
    return ""


def _other_limit(s: Situation) -> str:
    if s.held:
        return f"another action limits port {s.target.port} already"
    limit = s.port.limit if s.port else None
    if limit is not None and limit.id != s.action_id:
        return f"port {s.target.port} has limit {limit.id[:64]} in force, which is not this action's"
    return ""


def standing_objection(s: Situation) -> str:
    """Return why a limit in force has to end: what an operator has switched on since it was decided."""
    return next((text for _, guard in _STANDING if (text := guard(s))), "")


def _kill_switch(s: Situation) -> str:
    return "the kill switch is on" if s.kill_switch or s.guards.kill_switch else ""


def _policy(s: Situation) -> str:
    return f"policy {s.policy.name} is no longer in the policy file" if s.retired else ""


def _dry_run(s: Situation) -> str:
    whose = (
        "the agent"
        if s.dry_run
        else f"policy {s.policy.name}"
        if s.policy.dry_run
        else f"tenant {s.target.tenant}"
        if s.target.tenant in s.guards.dry_run_tenants
        else ""
    )
    return f"{whose} is in dry run; it would {s.spec.said(s.target.port)}" if whose else ""


def _allow_list(s: Situation) -> str:
    for entry in (*s.guards.allow, *s.allowed_since):
        if entry.shields_source(s.target.tenant, s.target.port):
            return f"the allow list shields {s.target.tenant}/{s.target.port} as a source: {entry.reason}"
        if "victim" in s.labels and entry.shields_victim(s.labels["victim"]):
            return f"the allow list shields {entry.tenant} as a victim: {entry.reason}"
    return ""


def _infrastructure(s: Situation) -> str:
    if s.target.tenant in s.guards.protected_tenants:
        return f"tenant {s.target.tenant} is infrastructure, which is never acted upon"
    return ""


def _floor(s: Situation) -> str:
    if s.port is None or s.at_level == "L4":
        return ""  # L4 is below the floor by design, which is why a person has to approve it
    if s.rate <= 0:
        return f"tenant {s.target.tenant} has no guarantee at {s.target.port}, so a cap would take everything"
    if s.at_level == "L3" and not (s.port.pps_guarantee or s.port.new_flows_guarantee):
        return f"tenant {s.target.tenant} has no guarantee of packets or new flows at {s.target.port}"
    return ""


def _cooldown(s: Situation) -> str:
    if s.cooldown_left > 0:
        return (
            f"the last action of this policy on this target ended too recently; {s.cooldown_left:.0f}s to go"
        )
    return ""


def _max_per_tenant(s: Situation) -> str:
    if s.active_of_tenant >= s.guards.max_per_tenant:
        within = f"within {s.guards.per_tenant_within:g}s"
        return f"tenant {s.target.tenant} had {s.active_of_tenant} limits {within}, the most allowed"
    return ""


def _max_per_node(s: Situation) -> str:
    if s.active_on_node >= s.guards.max_per_node:
        return f"{s.active_on_node} limits are in force on node {s.target.node}, the most allowed"
    return ""


def _max_active(s: Situation) -> str:
    most = s.guards.most_active(s.tenants)
    return f"{s.active} limits are in force, the most allowed" if s.active >= most else ""


def _breaker(s: Situation) -> str:
    return f"the blast-radius breaker has tripped: {s.breaker}" if s.breaker and not s.approved_by else ""


GUARDS: tuple[tuple[str, Callable[[Situation], str]], ...] = (
    ("inventory", _inventory),
    ("unsupported", _unsupported),
    ("other_limit", _other_limit),
    ("policy", _policy),
    ("kill_switch", _kill_switch),
    ("dry_run", _dry_run),
    ("allow_list", _allow_list),
    ("infrastructure", _infrastructure),
    ("floor", _floor),
    ("cooldown", _cooldown),
    ("max_per_tenant", _max_per_tenant),
    ("max_per_node", _max_per_node),
    ("max_active", _max_active),
    ("breaker", _breaker),
)
"""The chain, in order. Each returns why it stops the action, or nothing; the breaker hands it to a person."""

_FOR_MACHINES = frozenset({"cooldown", "max_per_tenant", "max_per_node", "max_active", "breaker"})
"""Guards that hold back what is automatic. A person who approves an action has decided about them."""

_STANDING = tuple(
    g for g in GUARDS if g[0] in ("policy", "kill_switch", "dry_run", "allow_list", "infrastructure")
)


def offered_load(port: PortState | None) -> float | None:
    """Return the UDP load that the tenant offers, in bytes per second; None if it is not known."""
    return port.offered.udp_bytes_per_second if port and port.attached and port.offered else None


def flooding(view: View | None, port_id: str, offered_below: float) -> bool:
    """Tell whether the source shows a flood: the kernel sees one now, and the load would keep a limit."""
    state = view.state if view else None
    port = state.find(port_id) if state else None
    offered = offered_load(port)
    if state is None or port is None or port.signals is None or not offered:
        return False
    since, last = port.signals.flood_detected_at, port.signals.flood_last_seen_at
    if since is None or (last is not None and state.time - last > _FRESH):  # one clock, the node's
        return False
    return offered >= offered_below * port.guarantee


def evidence_of(view: View, port: PortState | None) -> dict[str, Any]:
    """Return what the enforcer shows of the port, for the record."""
    if view.state is None or port is None:
        return {"error": view.error or "the port is not in the enforcer's inventory"}
    shown = port.model_dump(mode="json", exclude={"limit"})
    if port.signals is not None:
        for name in ("flood_detected_at", "flood_last_seen_at"):
            shown["signals"][name] = rfc3339(getattr(port.signals, name))
    return {"node_time": rfc3339(view.state.time), **shown}
