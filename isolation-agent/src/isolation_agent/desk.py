"""What the steps of an action's life share: records, memory between ticks, and the tick itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select

from isolation_agent.clock import Clock
from isolation_agent.config import Loop, Settings
from isolation_agent.decision import Situation
from isolation_agent.fleet import Fleet, View
from isolation_agent.journal import Journal
from isolation_agent.metrics import Metrics
from isolation_agent.model import Action, Episode
from isolation_agent.policy import AllowEntry, Policy
from isolation_agent.states import ENFORCING, Cause

__all__ = ["MANUAL", "Cooldowns", "Desk", "Tick", "Watch"]

MANUAL = "_manual"
"""Policy of actions that a person began."""

_BY_ITSELF = (Cause.EVIDENCE.value, Cause.TTL.value)
"""Ends after which a new flood is a repetition."""

Key = tuple[str, str, str, str]


@dataclass
class Tick:
    """What one turn of the controller knows."""

    settings: Settings
    fleet: Fleet
    kill_switch: bool
    now: datetime
    views: Mapping[str, View]
    reasons: defaultdict[int, list[tuple[str, Episode]]]  # by action: policy and episode
    held: dict[tuple[str, str], Action]  # actions with a limit in force or under way, by node and port
    recent: Counter[str] = field(default_factory=Counter)  # limits that ended lately, by tenant
    tenants: int = 0  # known to the enforcers
    breaker: str = ""  # why the breaker has tripped, if it has
    allowed: Sequence[AllowEntry] = ()  # entries of the allow list that were added at run time
    cleared: Mapping[str, View] = field(default_factory=dict)  # nodes whose limits were all removed just now
    harm: Sequence[Episode] = ()  # firing alerts that show harm to others

    @property
    def active(self) -> Counter[str]:
        """Limits in force or under way, by tenant."""
        return Counter(action.tenant for action in self.held.values())

    def active_on(self, node: str) -> int:
        """Limits in force or under way on a node."""
        return sum(held_on == node for held_on, _ in self.held)

    @property
    def loop(self) -> Loop:
        """Timing of the controller."""
        return self.settings.config.controller

    def wanted(self, action: Action) -> bool:
        """Tell whether somebody still asks for the action: an alert that fires, or a person."""
        return action.policy == MANUAL or bool(self.firing(action))

    def firing(self, action: Action) -> list[tuple[str, Episode]]:
        """Return the policies and episodes that still speak for the action."""
        return [(p, e) for p, e in self.reasons[action.seq] if self.speaks(e)]

    def speaks(self, episode: Episode) -> bool:
        """Tell whether an episode still counts: firing, and heard of lately."""
        timeout = timedelta(seconds=self.loop.episode_timeout)
        return episode.status == "firing" and self.now - episode.last_seen < timeout

    def is_old(self, instant: datetime) -> bool:
        """Tell whether something that was news then is no longer news, whichever way the clock was set."""
        return abs(self.now - instant) > timedelta(seconds=self.loop.max_alert_age)


@dataclass
class Watch:
    """What is remembered of an action between ticks, on the monotonic clock."""

    expires: float  # when the kernel ends the limit by itself, at the latest
    failures: int = 0
    retry_at: float = 0.0
    below_since: float | None = None
    below_at: datetime | None = None
    relaxed_since: float | None = None
    harm_since: float | None = None
    waiting_since: float | None = None  # for a person
    told: set[str] = field(default_factory=set)  # what the timeline need not be told again

    def reset_hold(self) -> None:
        """Forget since when the load has been low."""
        self.below_since = self.below_at = None


class Cooldowns:
    """When actions ended, on the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: dict[Key, float] = {}

    def ended(self, key: Key, seconds_ago: float = 0.0) -> None:
        """Remember that an action of that key ended; an end in the future counts as now."""
        self._ended[key] = self._clock.monotonic() - max(0.0, seconds_ago)

    def left(self, key: Key, cooldown: float) -> float:
        """Return how many seconds of the cooldown are left."""
        ended = self._ended.get(key)
        return 0.0 if ended is None else max(0.0, ended + cooldown - self._clock.monotonic())

    def forget(self, older_than: float) -> None:
        """Drop ends that no cooldown reaches back to."""
        limit = self._clock.monotonic() - older_than
        self._ended = {k: t for k, t in self._ended.items() if t >= limit}


@dataclass
class Desk:
    """Shared by all steps."""

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
        if action.policy != MANUAL:
            return tick.settings.policies.named(action.policy)
        return Policy.model_construct(name=MANUAL, match={}, level=action.level)

    def repeats(self, action: Action, policy: Policy) -> int:
        """Return how often a limit of this policy on this target has ended within repeat_within."""
        since = self.clock.now() - timedelta(seconds=policy.repeat_within)
        with self.journal.store.read() as session:
            return (
                session.scalar(
                    select(func.count()).where(
                        Action.policy == action.policy,
                        Action.node == action.node,
                        Action.port == action.port,
                        Action.tenant == action.tenant,
                        Action.applied_at.is_not(None),
                        Action.ended_at > since,
                        Action.cause.in_(_BY_ITSELF),
                    )
                )
                or 0
            )

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
        own = int(held is not None and held.seq == action.seq)
        active = tick.active
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
            level=action.level if action.state in ENFORCING or action.policy == MANUAL else None,
            approved_by=action.approved_by,
            allowed_since=tick.allowed,
            cooldown_left=self.cooldowns.left(action.key, action.params["cooldown"]),
            active=active.total() - own,
            active_on_node=tick.active_on(action.node) - own,
            active_of_tenant=active[action.tenant] + tick.recent[action.tenant] - own,
            tenants=tick.tenants,
            breaker=tick.breaker,
        )
