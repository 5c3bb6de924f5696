"""A limit in force: extended while the flood lasts, stepped up while it harms, relaxed and then released."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from isolation_agent.actions.applying import Applying, mismatch
from isolation_agent.actions.ending import Ending
from isolation_agent.actions.following import left_of
from isolation_agent.actions.orders import MAX_EXTENSION
from isolation_agent.actions.runtime import Runtime
from isolation_agent.actions.tick import Tick
from isolation_agent.decision.evidence import offered_load
from isolation_agent.decision.levels import LimitSpec, relaxed, spec_of
from isolation_agent.decision.verdict import judge
from isolation_agent.enforcers.client import Applied
from isolation_agent.model.node import Limit, PortState
from isolation_agent.model.states import Cause, State
from isolation_agent.policy import LEVELS, Level
from isolation_agent.storage.journal import Entry, move
from isolation_agent.storage.tables import Action
from vigia_text.numbers import quantity

__all__ = ["MAX_EXTENSION_ENTRIES", "MAX_REAPPLY", "InForce"]

_log = logging.getLogger(__name__)

MAX_REAPPLY = 3
"""Times that a limit which ended by itself is set again while the flood goes on."""

_CLOCKS_DIFFER = timedelta(minutes=5)
"""What a clock may be set back by without an order that a person has just given being lost."""

MAX_EXTENSION_ENTRIES = 500
"""Extensions that get a line in the timeline; later ones are counted and audited only."""


@dataclass(frozen=True)
class _Change:
    """What a limit in force becomes."""

    event: str
    spec: LimitSpec
    state: State
    level: str
    ttl: float


class InForce:
    """Watches the offered load at the source, which alone decides."""

    def __init__(self, runtime: Runtime, applying: Applying, ending: Ending) -> None:
        self._runtime = runtime
        self._applying = applying
        self._ending = ending

    def follow(self, action: Action, tick: Tick) -> None:
        """Follow a limit for one tick."""
        objection = self._ending.objection(action, tick)
        if objection:
            self._ending.begin_release(action, Cause.OPERATOR, objection, tick)
            return
        view = tick.views[action.node]
        if view.state is None:
            self._blind(action, view.error, tick)
            return
        port = view.state.find(action.port)
        if port is None and not view.state.complete:
            self._blind(action, "the enforcer cannot read all it knows ports from", tick)
        elif port is not None and not port.attached:
            # A program that has not been taken over after a restart still limits; nothing tells what.
            self._blind(action, f"nothing is known of port {action.port}: no program is attached to it", tick)
        elif port is None:
            self._ending.port_gone(action, left_of(action, self._runtime.clock.now()), tick)
        elif port.tenant != action.tenant:
            self._ending.begin_release(action, Cause.GONE, f"port {action.port} has another tenant", tick)
        elif port.limit is None or port.limit.id != action.id:
            self._lost(action, port, tick)
        elif port.guarantee <= 0 and action.level != "L4":
            reason = "the tenant has no guarantee here any more"
            self._ending.begin_release(action, Cause.OPERATOR, reason, tick)
        else:
            self._runtime.expires(action, port.limit.expires_in_seconds)
            self._follow_load(action, port, port.limit, tick)

    def _blind(self, action: Action, error: str, tick: Tick) -> None:
        """Without fresh evidence nothing is extended or released: the limit ends by its TTL."""
        self._runtime.watch(action).reset_hold()
        self._ending.outlived(action, tick, error)

    def _follow_load(self, action: Action, port: PortState, limit: Limit, tick: Tick) -> None:
        """Extend while the source offers a flood; relax and release when it has not for the whole hold."""
        watch, now = self._runtime.watch(action), self._runtime.clock.monotonic()
        offered, kept = offered_load(port), self._kept_by_a_person(action, tick)
        if offered is None:  # nothing counts it: a limit that nobody has ordered ends by its TTL
            watch.reset_hold()
            if kept and not self._step_if_due(action, port, tick):
                self._extend_if_due(action, port, limit, tick)
            return
        fraction, hold = self._release_rule(action, tick)
        flood = offered >= fraction * port.guarantee
        if action.state is State.STEPPED_DOWN:
            if kept and not flood:
                self._set_again(action, port, "kept", action.params["ttl"], tick)
            else:
                self._watch_relaxed(action, port, limit, tick, flood=flood)
            return
        if flood or kept:
            watch.reset_hold()
            if not self._step_if_due(action, port, tick):
                self._extend_if_due(action, port, limit, tick)
            return
        watch.harm_since = None
        if watch.below_since is None:
            watch.below_since, watch.below_at = now, self._runtime.clock.now()
        if now - watch.below_since >= hold:
            rate = quantity(offered, "bytes_per_second")
            reason = f"offered {rate}, below {fraction:g} of the guarantee, for {hold:g}s"
            self._relax_or_release(action, port, reason, tick)

    @staticmethod
    def _kept_by_a_person(action: Action, tick: Tick) -> bool:
        """Whether somebody wants the limit still; a clock that was set back far does not make that longer."""
        longest = tick.now + timedelta(seconds=MAX_EXTENSION) + _CLOCKS_DIFFER
        return action.extend_until is not None and tick.now < action.extend_until <= longest

    def _relax_or_release(self, action: Action, port: PortState, reason: str, tick: Tick) -> None:
        """Take the limit out of the tenant's way for a moment, and look whether the flood comes back."""
        if action.params.get("probe", 0.0) <= 0:
            self._ending.begin_release(action, Cause.EVIDENCE, reason, tick, self._below(action))
        elif self._runtime.may_try(action):
            spec = relaxed(LimitSpec("udp", port.guarantee), port)
            ttl = action.params["ttl"]
            change = _Change("relaxed", spec, State.STEPPED_DOWN, action.level, ttl)
            if self._put(action, port, change, tick):
                self._runtime.watch(action).relaxed_since = self._runtime.clock.monotonic()

    def _below(self, action: Action) -> Entry:
        """Return the timeline's line for the beginning of the hold."""
        at = self._runtime.watch(action).below_at or self._runtime.clock.now()
        return Entry("offered_below", at, {"hold_seconds": action.params["hold"]})

    def _watch_relaxed(
        self, action: Action, port: PortState, limit: Limit, tick: Tick, *, flood: bool
    ) -> None:
        """Release for good, unless the relaxed limit brought the flood back."""
        watch, now = self._runtime.watch(action), self._runtime.clock.monotonic()
        if watch.relaxed_since is None:
            watch.relaxed_since = now  # after a restart: watch it for the whole time
        if flood:
            self._clamp_again(action, port, tick)
        elif now - watch.relaxed_since >= action.params["probe"]:
            reason = f"no flood for {action.params['probe']:g}s after the limit was relaxed"
            self._ending.begin_release(action, Cause.EVIDENCE, reason, tick, self._below(action))
        else:
            self._extend_if_due(action, port, limit, tick)

    def _clamp_again(self, action: Action, port: PortState, tick: Tick) -> None:
        """Set the limit as it was, for twice as long."""
        policy = self._runtime.policy_of(action, tick)
        longest = policy.ttl_max if policy else action.params["ttl"]
        ttl = min(2 * action.params["ttl"], max(longest, action.params["ttl"]))
        if self._set_again(action, port, "flood_returned", ttl, tick):
            self._runtime.metrics.relapses.inc()

    def _set_again(self, action: Action, port: PortState, event: str, ttl: float, tick: Tick) -> bool:
        """End the trial of a relaxed limit: it is as it was before."""
        if not self._runtime.may_try(action):
            return False
        change = _Change(event, spec_of(action.level, port), State.ACTIVE, action.level, ttl)
        done = self._put(action, port, change, tick)
        if done:
            self._runtime.watch(action).relaxed_since = None
            self._runtime.watch(action).reset_hold()
        return done

    @staticmethod
    def _release_rule(action: Action, tick: Tick) -> tuple[float, float]:
        """Return the strictest (offered_below, hold) over the policies that still ask for the limit."""
        rules = [(action.params["offered_below"], action.params["hold"])]
        for name, _ in tick.firing(action):
            policy = tick.settings.policies.named(name)
            if policy is not None and name != action.policy:
                rules.append((policy.release.offered_below, policy.release.hold))
        # A hold longer than half of the TTL would only let the limit lapse before its release.
        return min(r[0] for r in rules), min(max(r[1] for r in rules), action.params["ttl"] / 2)

    def _step_if_due(self, action: Action, port: PortState, tick: Tick) -> bool:
        """Change the level if a person asks for it, or one up while others are still harmed."""
        if action.wanted_level is not None and action.wanted_level != action.level:
            return self._step(action, action.wanted_level, port, tick)
        policy, watch = self._runtime.policy_of(action, tick), self._runtime.watch(action)
        step = policy.step if policy else None
        harmed = step is not None and any(
            e.labels.get("node") == action.node and step.shows_harm(e.labels) for e in tick.harm
        )
        if step is None or not harmed:
            watch.harm_since = None
            return False
        now = self._runtime.clock.monotonic()
        if watch.harm_since is None:
            watch.harm_since = now
        higher = _next_level(action.level)
        if now - watch.harm_since < step.after or higher is None or higher not in _up_to(step.up_to):
            return False
        return self._step(action, higher, port, tick)

    def _step(self, action: Action, level: str, port: PortState, tick: Tick) -> bool:
        """Go to another level, if the guards let it; what stops it is said once, and to who asks for it."""
        if not self._runtime.may_try(action):
            return False
        person = action.wanted_level is not None
        situation = replace(self._runtime.situation(action, tick), level=level, cooldown_left=0.0, breaker="")
        verdict = judge(replace(situation, approved_by=situation.approved_by if person else None))
        stopped = verdict.reason if not verdict.allowed else verdict.approval if not person else ""
        if stopped:
            entry = Entry("step_refused", tick.now, {"level": level, "reason": stopped})
            self._refuse(action, entry, again=person)
            return False
        higher = LEVELS.index(_level(level)) > LEVELS.index(_level(action.level))
        event, state = ("stepped_up", State.STEPPED_UP) if higher else ("stepped_to", State.ACTIVE)
        change = _Change(event, spec_of(level, port), state, level, action.params["ttl"])
        done = self._put(action, port, change, tick)
        if done:
            self._runtime.watch(action).harm_since = None
        return done

    def _refuse(self, action: Action, entry: Entry, *, again: bool) -> None:
        """Answer a wish for another level, which is over with it; again also if that was said before."""
        watch, key = self._runtime.watch(action), f"{entry.event}:{entry.detail['level']}"
        if key in watch.reported and not again:
            return
        watch.reported.add(key)
        with self._runtime.journal.change(action, f"action.{entry.event}", entry, detail=entry.detail) as row:
            row.wanted_level = None

    def _extend_if_due(self, action: Action, port: PortState, limit: Limit, tick: Tick) -> None:
        down = action.state is State.STEPPED_DOWN
        spec = relaxed(LimitSpec("udp", port.guarantee), port) if down else spec_of(action.level, port)
        due = limit.expires_in_seconds <= action.params["ttl"] * 2 / 3
        if (due or _differs(limit, spec.fields())) and self._runtime.may_try(action):
            change = _Change("extended", spec, action.state, action.level, action.params["ttl"])
            if self._put(action, port, change, tick):
                self._runtime.metrics.extensions.inc()

    def _put(self, action: Action, port: PortState, change: _Change, tick: Tick) -> bool:
        """Set the limit anew under the same id; returns whether it is in force as asked for."""
        wanted = change.spec.fields()
        applied = self._applying.put(action, wanted, change.ttl, tick)
        if not isinstance(applied, Applied):
            self._runtime.failed(action, tick)
            _log.warning("cannot renew a limit", extra={"action": action.id, "err": str(applied)})
            return False
        at, limit = self._runtime.clock.now(), applied.limit.model_dump(exclude_none=True)
        entry = Entry(change.event, at, {"offered_bytes_per_second": offered_load(port), "limit": limit})
        shown = [entry] if change.event != "extended" or action.extensions < MAX_EXTENSION_ENTRIES else []
        with self._runtime.journal.change(
            action, f"action.{change.event}", *shown, detail=entry.detail
        ) as row:
            if row.state is not change.state:
                move(row, change.state)
            row.rate, row.limit_wanted, row.limit_after = change.spec.rate, wanted, limit
            row.level, row.params = change.level, {**row.params, "ttl": change.ttl}
            row.expires_at = at + timedelta(seconds=applied.limit.expires_in_seconds)
            row.extensions += change.event == "extended"
            row.reapplied += change.event == "reapplied"
            row.relapses += change.event == "flood_returned"
            if row.wanted_level == change.level:
                row.wanted_level = None
        watch = self._runtime.watch(row)
        watch.failures, watch.retry_at = 0, 0.0
        self._runtime.expires(row, applied.limit.expires_in_seconds)
        problem = mismatch(wanted, row, applied, change.ttl)
        if problem:
            self._ending.begin_release(row, Cause.FAILURE, f"the limit read back is wrong: {problem}", tick)
        return not problem

    def _lost(self, action: Action, port: PortState, tick: Tick) -> None:
        """The limit ended in the kernel: set it again if the flood goes on, else the action is over."""
        if port.limit is not None:
            self._ending.expire(
                action, Cause.TTL, f"ended by itself; limit {port.limit.id[:64]} is in force now", tick
            )
            return
        offered, (fraction, _) = offered_load(port), self._release_rule(action, tick)
        goes_on = offered is not None and offered >= fraction * port.guarantee
        exhausted = (
            action.reapplied >= MAX_REAPPLY or self._runtime.watch(action).failures >= tick.loop.attempts
        )
        if not goes_on or exhausted or not judge(self._runtime.situation(action, tick)).allowed:
            self._ending.expire(action, Cause.TTL, "ended by itself in the kernel", tick)
        elif self._runtime.may_try(action):
            spec = spec_of(action.level, port)
            change = _Change("reapplied", spec, State.ACTIVE, action.level, action.params["ttl"])
            self._put(action, port, change, tick)


def _differs(limit: Limit, wanted: Mapping[str, Any]) -> bool:
    """Tell whether the kernel's limit is another one than is wanted now."""
    return any(getattr(limit, name) != value for name, value in wanted.items())


def _level(name: str) -> Level:
    return next(level for level in LEVELS if level == name)


def _next_level(name: str) -> Level | None:
    rest = LEVELS[LEVELS.index(_level(name)) + 1 :]
    return rest[0] if rest else None


def _up_to(name: str) -> tuple[Level, ...]:
    return LEVELS[: LEVELS.index(_level(name)) + 1]
