"""A limit in force: extended while the flood lasts, released once it has stopped."""

from __future__ import annotations

import logging
from datetime import timedelta

from isolation_agent.applying import Applying, mismatch
from isolation_agent.decision import judge, offered_load
from isolation_agent.desk import Desk, Tick
from isolation_agent.ending import Ending
from isolation_agent.enforcer import Applied, Limit, PortState
from isolation_agent.journal import Entry
from isolation_agent.model import Action
from isolation_agent.states import Cause

__all__ = ["MAX_EXTENSION_ENTRIES", "MAX_REAPPLY", "Keeping"]

_log = logging.getLogger(__name__)

MAX_REAPPLY = 3
"""Times that a limit which ended by itself is set again while the flood goes on."""

MAX_EXTENSION_ENTRIES = 500
"""Extensions that get a line in the timeline; later ones are counted and audited only."""


class Keeping:
    """Watches the offered load at the source, which alone decides."""

    def __init__(self, desk: Desk, applying: Applying, ending: Ending) -> None:
        self._desk = desk
        self._applying = applying
        self._ending = ending

    def active(self, action: Action, tick: Tick) -> None:
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
        if port is None:
            self._ending.expire(
                action, Cause.GONE, f"port {action.port} is gone, and the limit with it", tick
            )
        elif port.tenant != action.tenant:
            self._ending.begin_release(action, Cause.GONE, f"port {action.port} has another tenant", tick)
        elif port.limit is None or port.limit.id != action.id:
            self._lost(action, port, tick)
        else:
            watch = self._desk.watch(action)
            watch.expires = self._desk.clock.monotonic() + port.limit.expires_in_seconds
            self._follow_load(action, port, port.limit, tick)

    def _blind(self, action: Action, error: str, tick: Tick) -> None:
        """Without fresh evidence nothing is extended or released: the limit ends by its TTL."""
        self._desk.watch(action).reset_hold()
        self._ending.outlived(action, tick, error)

    def _follow_load(self, action: Action, port: PortState, limit: Limit, tick: Tick) -> None:
        """Extend while the source offers a flood; release when it has not for the whole hold."""
        watch, now = self._desk.watch(action), self._desk.clock.monotonic()
        offered = offered_load(port)
        if offered is None:
            watch.reset_hold()
            return
        fraction, hold = self._release_rule(action, tick)
        if offered >= fraction * (action.rate or 0):
            watch.reset_hold()
            self._extend_if_due(action, port, limit, tick)
            return
        if watch.below_since is None:
            watch.below_since, watch.below_at = now, self._desk.clock.now()
        if now - watch.below_since >= hold:
            reason = f"offered {offered:.0f} bytes/s, below {fraction:g} of the limit, for {hold:g}s"
            below = Entry("offered_below", watch.below_at or self._desk.clock.now(), {"hold_seconds": hold})
            self._ending.begin_release(action, Cause.EVIDENCE, reason, tick, below)

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

    def _extend_if_due(self, action: Action, port: PortState, limit: Limit, tick: Tick) -> None:
        rate = port.guarantee
        if rate <= 0:
            self._ending.begin_release(
                action, Cause.OPERATOR, "the tenant has no guarantee here any more", tick
            )
            return
        due = limit.expires_in_seconds <= action.params["ttl"] * 2 / 3
        if (due or limit.rate_bytes_per_second < rate) and self._desk.may_try(action):
            self._put_again(action, port, tick, "extended")

    def _put_again(self, action: Action, port: PortState, tick: Tick, event: str) -> None:
        """Set the limit anew under the same id, at the guarantee as it is now."""
        applied = self._applying.put(action, port.guarantee, tick)
        if not isinstance(applied, Applied):
            self._desk.failed(action, tick)
            _log.warning("limit not renewed", extra={"action": action.id, "err": str(applied)})
            return
        at, limit = self._desk.clock.now(), applied.limit.model_dump()
        entry = Entry(event, at, {"offered_bytes_per_second": offered_load(port), "limit": limit})
        shown = [entry] if action.extensions < MAX_EXTENSION_ENTRIES else []
        with self._desk.journal.change(action, f"action.{event}", *shown, detail=entry.detail) as row:
            row.rate, row.limit_after = port.guarantee, limit
            row.expires_at = at + timedelta(seconds=applied.limit.expires_in_seconds)
            row.extensions += event == "extended"
            row.reapplied += event == "reapplied"
        self._desk.renew(row, applied.limit.expires_in_seconds)
        problem = mismatch(row, applied)
        if problem:
            self._ending.begin_release(row, Cause.FAILURE, f"the limit read back is wrong: {problem}", tick)
        elif event == "extended":
            self._desk.metrics.extensions.inc()

    def _lost(self, action: Action, port: PortState, tick: Tick) -> None:
        """The limit ended in the kernel: set it again if the flood goes on, else the action is over."""
        if port.limit is not None:
            self._ending.expire(
                action, Cause.TTL, f"ended by itself; limit {port.limit.id[:64]} is in force now", tick
            )
            return
        offered, (fraction, _) = offered_load(port), self._release_rule(action, tick)
        goes_on = offered is not None and offered >= fraction * (action.rate or 0)
        exhausted = action.reapplied >= MAX_REAPPLY or self._desk.watch(action).failures >= tick.loop.attempts
        if not goes_on or exhausted or not judge(self._desk.situation(action, tick)).allowed:
            self._ending.expire(action, Cause.TTL, "ended by itself in the kernel", tick)
        elif self._desk.may_try(action):
            self._put_again(action, port, tick, "reapplied")
