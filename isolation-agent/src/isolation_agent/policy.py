"""The policy file: which alerts lead to which action, and what may never be acted upon."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from vigia_config import Seconds, Strict, fault, load

__all__ = [
    "INFRASTRUCTURE",
    "LEVELS",
    "MANUAL_POLICY",
    "MAX_TTL",
    "NAME_PATTERN",
    "UNKNOWN_POLICY",
    "AllowEntry",
    "Breaker",
    "Guards",
    "Level",
    "Name",
    "Policy",
    "PolicyFile",
    "PolicySet",
    "Release",
    "Step",
    "load_policies",
    "policy_set",
]

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,252}$"
"""Nodes, ports, tenants and policies: ids that are safe in URLs, logs and metrics."""

INFRASTRUCTURE = ("_infra", "_unresolved")
"""Tenants that are never acted upon: the operator's own, and those not known yet."""

MANUAL_POLICY = "_manual"
"""Policy of actions that a person began."""

UNKNOWN_POLICY = "_unknown"
"""Policy of the records of limits of unknown origin."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Level = Literal["L0", "L1", "L2", "L3", "L4"]

MAX_TTL = 60.0
"""Seconds after which any limit has ended in the kernel unless the agent has renewed it."""

LEVELS: tuple[Level, ...] = ("L0", "L1", "L2", "L3", "L4")
"""The ladder: observe, shape the port, cap all but TCP, cap packets and new flows too, drop all but TCP."""


def _level(value: object) -> object:
    if value == "L5":
        raise PydanticCustomError(
            "vigia",
            "L5 (filter upstream) needs a BGP speaker, which this version does not talk to; write L0 to L4",
        )
    return value


def _ttl(value: float) -> float:
    if value != int(value) or not 2 <= value <= MAX_TTL:
        raise PydanticCustomError(
            "vigia",
            "must be whole seconds from 2s to {most}s, so that no limit outlives the agent by more; "
            "write for example 30s",
            {"most": int(MAX_TTL)},
        )
    return value


class Release(Strict):
    """When a limit is lifted: offered load below a fraction of the limit, for a time, also when relaxed."""

    hold: Seconds = 10.0
    """For how long the offered load has to be low; at most half of `ttl`."""
    probe: Seconds = 5.0
    """For how long the limit is then relaxed to the ceiling and watched; `0s` leaves that out."""
    offered_below: float = Field(default=0.8, gt=0, le=1)
    """What is low: this fraction of the guarantee."""


class Step(Strict):
    """When a limit goes one level up: while others on the node are still harmed."""

    up_to: Annotated[Level, BeforeValidator(_level)]
    """The highest level."""
    harm: dict[str, str]
    """Labels of the alert that shows harm; it has to name the same node."""
    after: Seconds = 10.0
    """For how long that alert has to fire."""

    @model_validator(mode="after")
    def _names_an_alert(self) -> Self:
        if not self.harm.get("alertname"):
            raise fault(("harm",), "has no alertname", "name the alert that shows harm to other tenants")
        return self

    def shows_harm(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an alert with these labels says that others are harmed."""
        return all(labels.get(k) == v for k, v in self.harm.items())


class Policy(Strict):
    """One rule: alerts with these labels lead to this level."""

    name: Name
    """Shown everywhere."""
    match: dict[str, str]
    """Labels that have to be equal; `alertname` has to be among them."""
    level: Annotated[Level, BeforeValidator(_level)]
    """The first level: `L0` records only, `L1` shapes the whole port to the guarantee, `L2` caps all but TCP
    and address resolution at the guarantee, `L3` caps packets and new flows at the contract too, `L4` drops
    all but TCP and always needs approval."""
    ttl: Annotated[Seconds, AfterValidator(_ttl)] = 30.0
    """Whole seconds, at most `60s`, after which the limit expires; it is extended when a third has passed and
    the flood continues."""
    ttl_max: Annotated[Seconds, AfterValidator(_ttl)] = MAX_TTL
    """The longest TTL of a target that floods again and again."""
    repeat_within: Seconds = 3600.0
    """A target that floods again within this time gets twice the TTL, each time, up to `ttl_max`."""
    release: Release = Release()
    """When a limit is lifted."""
    step: Step | None = None
    """When a limit goes one level up; never without."""
    cooldown: Seconds = 30.0
    """Pause after an action before the next one of the same policy on the same target."""
    approval: bool = False
    """A person has to approve each action."""
    approval_timeout: Seconds = 900.0
    """After which an action that nobody approved is over."""
    dry_run: bool = False
    """Decide and record, limit nothing, for this policy."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.match.get("alertname"):
            raise fault(("match",), "has no alertname", "name the alert that this policy answers")
        if self.release.hold * 2 > self.ttl:
            raise fault(
                ("release", "hold"),
                f"{self.release.hold:g}s is more than half of ttl, so the limit would end before the release",
                "write a longer ttl or a shorter hold",
            )
        if self.ttl_max < self.ttl:
            raise fault(("ttl_max",), f"{self.ttl_max:g}s is less than ttl", "write a longer ttl_max")
        if self.step is not None and LEVELS.index(self.step.up_to) <= LEVELS.index(self.level):
            raise fault(
                ("step", "up_to"),
                f'"{self.step.up_to}" is not above level {self.level}',
                "write a higher level",
            )
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an alert with these labels falls under this policy.

        An alert that names a policy in its label ``policy`` falls under no other.
        """
        return labels.get("policy", self.name) == self.name and all(
            labels.get(k) == v for k, v in self.match.items()
        )

    def params(self, repeats: int = 0) -> dict[str, float]:
        """Return what an action keeps of its policy: all in seconds, but for the fraction offered_below.

        The TTL doubles with every repetition, up to ttl_max.
        """
        return {
            "ttl": min(self.ttl * 2 ** min(repeats, 16), self.ttl_max),
            "hold": self.release.hold,
            "probe": self.release.probe,
            "offered_below": self.release.offered_below,
            "cooldown": self.cooldown,
        }


class AllowEntry(Strict):
    """A tenant or port that no automatic action touches, in a role.

    source: it may send what looks like a flood. victim: what is sent to it is
    wanted, so nobody is limited on its behalf. either: both.
    """

    tenant: Name | None = None
    """Whom it is about."""
    port: Name | None = None
    """The one port it is about; all of the tenant without."""
    role: Literal["source", "victim", "either"]
    """`source`: it may send what looks like a flood; `victim`: it wants what it is sent; `either`: both."""
    reason: str = Field(min_length=1, max_length=200)
    """For the audit log."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.tenant is None and self.port is None:
            raise fault((), "names neither tenant nor port", "add tenant, port or both")
        if self.role != "source" and self.tenant is None:
            raise fault(("role",), f'"{self.role}" needs a tenant', "add tenant, or write role: source")
        return self

    def shields_source(self, tenant: str, port: str) -> bool:
        """Tell whether the entry keeps this sender from being limited."""
        return (
            self.role in ("source", "either") and self.tenant in (None, tenant) and self.port in (None, port)
        )

    def shields_victim(self, tenant: str) -> bool:
        """Tell whether the entry says that this victim wants the traffic."""
        return self.role in ("victim", "either") and self.tenant == tenant


class Breaker(Strict):
    """More actions than this within the time, and every further one waits for a person."""

    actions: int = Field(default=50, ge=1)
    """Actions after which every further one waits for a person."""
    within: Annotated[Seconds, Field(gt=0)] = 60.0
    """In which they began."""


class Guards(Strict):
    """What holds for every policy."""

    kill_switch: bool = False
    """No new limits, none extended, those in force released."""
    dry_run_tenants: list[Name] = []
    """Tenants for whom it is decided and recorded, and nothing is limited."""
    allow: list[AllowEntry] = []
    """Tenants and ports that no automatic action touches."""
    infrastructure: list[Name] = []
    """Tenants of the operator, beside `_infra` and `_unresolved`: never limited."""
    max_per_tenant: int = Field(default=3, ge=1)
    """Limits of one tenant within `per_tenant_within`."""
    per_tenant_within: Seconds = 600.0
    """The time for `max_per_tenant`."""
    max_per_node: int = Field(default=10, ge=1)
    """Limits in force on one node."""
    max_active: int | None = Field(default=None, ge=1)
    """Limits in force in all; 20 without, or 5 % of the tenants if that is more."""
    breaker: Breaker = Breaker()
    """When everything waits for a person."""

    def most_active(self, tenants: int) -> int:
        """Return how many limits may be in force: as set, or 20, or 5% of the tenants if that is more."""
        return self.max_active or max(20, math.ceil(tenants / 20))

    @property
    def protected_tenants(self) -> tuple[str, ...]:
        """Tenants that are never acted upon."""
        return (*INFRASTRUCTURE, *self.infrastructure)


class PolicyFile(Strict):
    """The whole file. Policies are tried in order; the first that matches decides."""

    version: Literal[1]
    """Of the format."""
    policies: list[Policy] = Field(min_length=1)
    """Tried in order; the first that matches decides."""
    guards: Guards = Guards()
    """What holds for every policy."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names: set[str] = set()
        for i, policy in enumerate(self.policies):
            if policy.name in names:
                raise fault(("policies", i, "name"), f'"{policy.name}" appears twice', "rename one")
            names.add(policy.name)
        return self


@dataclass(frozen=True)
class PolicySet:
    """A policy file with the version that audit records refer to."""

    policies: tuple[Policy, ...]
    guards: Guards
    version: str

    def find(self, labels: Mapping[str, str]) -> Policy | None:
        """Return the policy for an alert with these labels."""
        return next((p for p in self.policies if p.matches(labels)), None)

    def shows_harm(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a policy takes an alert with these labels as a sign that others are harmed."""
        return any(p.step is not None and p.step.shows_harm(labels) for p in self.policies)

    def named(self, name: str) -> Policy | None:
        """Return the policy of that name."""
        return next((p for p in self.policies if p.name == name), None)


def load_policies(path: Path) -> PolicySet:
    """Read the policy file at path. Raises vigia_config.ConfigError."""
    return policy_set(load(path, PolicyFile))


def policy_set(file: PolicyFile) -> PolicySet:
    """Return the policies of a file with the version that its meaning has."""
    digest = hashlib.sha256(file.model_dump_json().encode()).hexdigest()
    return PolicySet(tuple(file.policies), file.guards, digest[:12])
