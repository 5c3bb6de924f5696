"""The guards: each may stop an action, in the order of the table.

To add one, write a module with a function ``objection`` and a row here. The
first guard that objects is the reason on record; later ones are named too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isolation_agent.decision.guards import (
    allow_list,
    breaker,
    cooldown,
    dry_run,
    evidence,
    floor,
    infrastructure,
    inventory,
    kill_switch,
    max_active,
    max_per_node,
    max_per_tenant,
    other_limit,
    retired_policy,
    unsupported,
)
from isolation_agent.decision.situation import Situation

__all__ = ["GUARDS", "Guard"]


@dataclass(frozen=True)
class Guard:
    """One guard of the chain."""

    name: str
    """as it is in the API, in the metrics and in the audit log"""
    objection: Callable[[Situation], str]
    """why the guard stops the action; nothing if it does not"""
    lifts: bool = False
    """a limit in force ends when the guard begins to object"""
    for_automation: bool = False
    """holds back automation only: a person who approves an action has decided about it"""
    for_observing: bool = False
    """is asked about level L0 as well, which limits nothing"""
    asks_a_person: bool = False
    """stops nothing, but lets a person decide"""


GUARDS: tuple[Guard, ...] = (
    Guard("inventory", inventory.objection, for_observing=True),
    Guard("unsupported", unsupported.objection),
    Guard("other_limit", other_limit.objection),
    Guard("policy", retired_policy.objection, lifts=True),
    Guard("kill_switch", kill_switch.objection, lifts=True),
    Guard("dry_run", dry_run.objection, lifts=True),
    Guard("allow_list", allow_list.objection, lifts=True),
    Guard("infrastructure", infrastructure.objection, lifts=True),
    Guard("floor", floor.objection),
    Guard("cooldown", cooldown.objection, for_automation=True),
    Guard("max_per_tenant", max_per_tenant.objection, for_automation=True),
    Guard("max_per_node", max_per_node.objection, for_automation=True),
    Guard("max_active", max_active.objection, for_automation=True),
    Guard("evidence", evidence.objection, for_automation=True, asks_a_person=True),
    Guard("breaker", breaker.objection, for_automation=True, asks_a_person=True),
)
"""The chain, in order."""
