"""All that a decision depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isolation_agent.decision.evidence import verified
from isolation_agent.decision.levels import LimitSpec, effective_level, spec_of
from isolation_agent.model.node import PortState, View
from isolation_agent.model.target import Target
from isolation_agent.policy import AllowEntry, Guards, Policy

__all__ = ["Situation"]


@dataclass(frozen=True)
class Situation:
    """A target, what is asked for it, what its node shows, and how things stand elsewhere."""

    policy: Policy
    guards: Guards
    target: Target
    labels: Mapping[str, str]
    view: View
    action_id: str = ""
    follows: bool = False  # it goes on with a limit of the same workload, which had its evidence elsewhere
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
    def verified(self) -> bool:
        """True if an enforcer bears the alert out."""
        return verified(self.view, self.target.port, self.policy.release.offered_below)

    @property
    def rate(self) -> int:
        """The tenant's guarantee, in bytes per second."""
        return self.port.guarantee if self.port else 0

    @property
    def at_level(self) -> str:
        """The level that is judged."""
        return self.level or effective_level(self.policy, self.labels)

    @property
    def spec(self) -> LimitSpec:
        """What the enforcer would be asked for."""
        return spec_of(self.at_level, self.port)
