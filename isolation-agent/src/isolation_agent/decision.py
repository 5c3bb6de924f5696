"""What is to be done about a target: the inventory check and the chain of guards.

Everything here is a pure function of a Situation, so that the controller and
``simulate`` decide alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from isolation_agent.alerts import Target
from isolation_agent.clock import rfc3339
from isolation_agent.enforcer import PortState
from isolation_agent.fleet import View
from isolation_agent.policy import Guards, Policy

__all__ = [
    "GUARDS",
    "Situation",
    "Verdict",
    "effective_level",
    "evidence_of",
    "flooding",
    "judge",
    "offered_load",
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
    cooldown_left: float = 0.0  # seconds
    active: int = 0  # other limits in force, everywhere
    active_of_tenant: int = 0  # other limits in force, of this tenant

    @property
    def port(self) -> PortState | None:
        """The target's port as the enforcer reports it."""
        return self.view.state.find(self.target.port) if self.view.state else None

    @property
    def rate(self) -> int:
        """The limit of level L2: the tenant's guarantee, in bytes per second."""
        return self.port.guarantee if self.port else 0


@dataclass(frozen=True)
class Verdict:
    """The decision: what stops the action, if anything, and what the action is."""

    level: str
    rate: int | None  # bytes per second; None for L0
    guard: str | None  # the first guard that stops it
    reason: str
    also: Mapping[str, str] = field(default_factory=dict)  # further guards that would stop it

    @property
    def allowed(self) -> bool:
        """True if no guard stops the action."""
        return self.guard is None


def effective_level(policy: Policy, labels: Mapping[str, str]) -> str:
    """Return the policy's level; L0 if the alert asks for a person's approval, which this version has not."""
    return policy.level if labels.get("isolate") == "auto" else "L0"


def judge(s: Situation) -> Verdict:
    """Decide. The first objection in order is the reason, later ones are named too."""
    level = effective_level(s.policy, s.labels)
    objections = {name: text for name, guard in GUARDS if (text := guard(s))}
    if level == "L0":
        objections = {k: v for k, v in objections.items() if k == "inventory"}
    rate = s.rate if level == "L2" else None
    if objections:
        first = next(iter(objections))
        also = {k: v for k, v in objections.items() if k != first}
        return Verdict(level, rate, first, objections[first], also)
    if rate is None:
        return Verdict(level, None, None, "level L0: recorded, nothing is limited")
    return Verdict(level, rate, None, f"cap UDP of {s.target.port} at the guarantee of {rate} bytes/s")


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
    if not (s.dry_run or s.policy.dry_run):
        return ""
    whose = "the agent" if s.dry_run else f"policy {s.policy.name}"
    return f"{whose} is in dry run; it would cap UDP of {s.target.port} at {s.rate} bytes/s"


def _allow_list(s: Situation) -> str:
    for entry in s.guards.allow:
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
    if s.port is not None and s.rate <= 0:
        return f"tenant {s.target.tenant} has no guarantee at {s.target.port}, so a cap would take everything"
    return ""


def _cooldown(s: Situation) -> str:
    if s.cooldown_left > 0:
        return (
            f"the last action of this policy on this target ended too recently; {s.cooldown_left:.0f}s to go"
        )
    return ""


def _max_per_tenant(s: Situation) -> str:
    if s.active_of_tenant >= s.guards.max_per_tenant:
        return f"tenant {s.target.tenant} has {s.active_of_tenant} limits already, the most allowed"
    return ""


def _max_active(s: Situation) -> str:
    return f"{s.active} limits are in force, the most allowed" if s.active >= s.guards.max_active else ""


GUARDS: tuple[tuple[str, Callable[[Situation], str]], ...] = (
    ("inventory", _inventory),
    ("other_limit", _other_limit),
    ("policy", _policy),
    ("kill_switch", _kill_switch),
    ("dry_run", _dry_run),
    ("allow_list", _allow_list),
    ("infrastructure", _infrastructure),
    ("floor", _floor),
    ("cooldown", _cooldown),
    ("max_per_tenant", _max_per_tenant),
    ("max_active", _max_active),
)
"""The chain, in order. Each returns why it stops the action, or nothing."""

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
