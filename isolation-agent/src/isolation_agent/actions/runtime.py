"""What the steps of an action's life share."""

from __future__ import annotations

from dataclasses import dataclass, field

from isolation_agent.actions.memory import Cooldowns, Watch
from isolation_agent.actions.tick import Tick
from isolation_agent.clock import Clock
from isolation_agent.decision.situation import Situation
from isolation_agent.metrics import Metrics
from isolation_agent.model.states import ENFORCING
from isolation_agent.policy import MANUAL_POLICY, MAX_TTL, Policy
from isolation_agent.storage import actions
from isolation_agent.storage.journal import Journal
from isolation_agent.storage.tables import Action

__all__ = ["Runtime"]


@dataclass
class Runtime:
    """Records, metrics and memory, shared by all steps of all actions."""

    journal: Journal
    metrics: Metrics
    cooldowns: Cooldowns
    term: int = 0
    watches: dict[int, Watch] = field(default_factory=dict)

    @property
    def clock(self) -> Clock:
        """The agent's clock."""
        return self.journal.clock

    def watch(self, action: Action) -> Watch:
        """Return what is remembered of an action; after a restart, that its limit may last a whole TTL."""
        if action.seq not in self.watches:
            self.renew(action, action.params["ttl"])
        return self.watches[action.seq]

    @staticmethod
    def policy_of(action: Action, tick: Tick) -> Policy | None:
        """Return the action's policy; a person's own action has one that only exists with it."""
        if action.policy != MANUAL_POLICY:
            return tick.settings.policies.named(action.policy)
        return Policy.model_construct(
            name=MANUAL_POLICY,
            match={},
            level=action.level,
            ttl=MAX_TTL,  # who ordered it wants it over a restart of the agent, too
            cooldown=0.0,
        )

    def repeats(self, action: Action, policy: Policy) -> int:
        """Return how often a limit of this policy on this target has ended within repeat_within."""
        within = actions.Span.before(self.clock.now(), policy.repeat_within)
        with self.journal.store.read() as session:
            return actions.repeats(session, action.policy, action.target, within)

    def expires(self, action: Action, expires_in: float) -> None:
        """Note when the kernel ends the limit by itself, as of now."""
        self.watch(action).expires = self.clock.monotonic() + expires_in

    def renew(self, action: Action, expires_in: float) -> None:
        """Start afresh with a limit that ends by itself after so many seconds."""
        self.watches[action.seq] = Watch(self.clock.monotonic() + expires_in)

    def may_try(self, action: Action) -> bool:
        """Tell whether the back-off after the last failure is over."""
        return self.clock.monotonic() >= self.watch(action).retry_at

    def failed(self, action: Action, tick: Tick) -> int:
        """Count a failure, back off, and return how many there were."""
        watch = self.watch(action)
        watch.failures += 1
        wait = min(tick.loop.backoff * 2 ** min(watch.failures - 1, 16), tick.loop.backoff_max)
        watch.retry_at = self.clock.monotonic() + wait
        return watch.failures

    def situation(self, action: Action, tick: Tick) -> Situation:
        """Put together what a decision about the action depends on."""
        policy = self.policy_of(action, tick)
        held = tick.held.get((action.node, action.port))
        own = held is not None and held.seq == action.seq
        counted = [a for a in tick.held.values() if a.seq != action.seq and a.params.get("verified", True)]
        reasons = tick.firing(action) or tick.reasons[action.seq]
        return Situation(
            policy=policy or Policy.model_construct(name=action.policy, match={}, level=action.level),
            held=held is not None and not own,
            retired=policy is None,
            guards=tick.settings.policies.guards,
            target=action.target,
            labels=reasons[0][1].labels if reasons else {},
            view=tick.views[action.node],
            action_id=action.id,
            dry_run=tick.settings.config.dry_run,
            kill_switch=tick.kill_switch,
            level=action.level if action.state in ENFORCING or action.policy == MANUAL_POLICY else None,
            approved_by=action.approved_by,
            allowed_since=tick.allowed,
            cooldown_left=self.cooldowns.left(action.key, action.params["cooldown"]),
            active=len(counted),
            active_on_node=sum(a.node == action.node for a in counted),
            active_of_tenant=sum(a.tenant == action.tenant for a in counted) + tick.recent[action.tenant],
            tenants=tick.tenants,
            breaker=tick.breaker,
        )
