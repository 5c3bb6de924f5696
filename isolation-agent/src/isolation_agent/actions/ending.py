"""The end of an action: removal, verified, or the limit's own expiry."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from isolation_agent.actions.runtime import Runtime
from isolation_agent.actions.tick import Tick
from isolation_agent.decision.verdict import standing_objection
from isolation_agent.enforcers.client import EnforcerError, Refused, Removed
from isolation_agent.model.states import Cause, State
from isolation_agent.storage.actions import LEFT
from isolation_agent.storage.journal import Entry, move
from isolation_agent.storage.tables import Action

__all__ = ["Ending"]

_log = logging.getLogger(__name__)

_GONE = frozenset({"unknown_port", "other_limit"})
"""Refusals of a removal that mean that the limit is not there."""

_SLACK = 1.0
"""Seconds after its expiry at which a limit is taken to have ended in the kernel."""


@dataclass(frozen=True)
class _Outcome:
    state: State
    cause: Cause
    reason: str
    verified: bool = False
    left: Mapping[str, str] | None = None  # what following needs to know of a port that is gone


class Ending:
    """Releases limits and closes actions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def objection(self, action: Action, tick: Tick) -> str:
        """Return why an operator wants the limit gone, if one does."""
        if action.revert_by:
            return f"reverted by {action.revert_by}"
        return standing_objection(self._runtime.situation(action, tick))

    def begin_release(self, action: Action, cause: Cause, reason: str, tick: Tick, *entries: Entry) -> None:
        """Decide that the limit has to go, and remove it."""
        decided = Entry(
            "release_decided", self._runtime.clock.now(), {"cause": cause.value, "reason": reason}
        )
        with self._runtime.journal.change(action, "action.releasing", *entries, decided) as row:
            move(row, State.RELEASING)
            row.cause, row.reason = cause.value, reason
        watch = self._runtime.watch(action)
        watch.failures, watch.retry_at = 0, 0.0
        if self._cleared(row, tick):
            released = Entry("released", self._runtime.clock.now(), {"removed": True, "with_all": True})
            self._end_released(row, tick, released)
        else:
            self.releasing(row, tick)

    @staticmethod
    def _cleared(action: Action, tick: Tick) -> bool:
        """Tell whether all limits of the node were removed in this turn, and this one is seen to be gone."""
        view = tick.cleared.get(action.node)
        port = view.state.find(action.port) if view and view.state else None
        return view is not None and view.state is not None and (port is None or port.limit is None)

    def _end_released(self, action: Action, tick: Tick, released: Entry) -> None:
        state = State.FAILED if action.cause == Cause.FAILURE else State.REVERTED
        self._end(action, _Outcome(state, _cause(action), action.reason, verified=True), tick, released)

    def releasing(self, action: Action, tick: Tick) -> None:
        """Remove the limit, look whether it is gone, and end the action."""
        if not self._runtime.may_try(action):
            return
        removed = self._remove(action, tick)
        if isinstance(removed, EnforcerError):
            self._later(action, str(removed), tick)
            return
        released = Entry("released", self._runtime.clock.now(), {"removed": removed.removed})
        view = tick.fleet.read(action.node)
        port = view.state.find(action.port) if view.state else None
        if view.state is None or (port and port.limit and port.limit.id == action.id):
            self._later(action, view.error or "the limit is still there after its removal", tick)
            return
        self._end_released(action, tick, released)

    @staticmethod
    def _remove(action: Action, tick: Tick) -> Removed | EnforcerError:
        try:
            return tick.fleet.remove(action.node, action.port, action.id)
        except Refused as e:
            return Removed(port=action.port, removed=False, verified=False) if e.code in _GONE else e
        except EnforcerError as e:
            return e

    def _later(self, action: Action, error: str, tick: Tick) -> None:
        """Try the removal again; once the limit's own time is over it has ended by itself."""
        if self._runtime.clock.monotonic() <= self._runtime.watch(action).expires + _SLACK:
            self._runtime.failed(action, tick)
            return
        reason = f"{action.reason}; the removal failed until the limit's own time ended: {error}"
        state = State.FAILED if action.cause == Cause.FAILURE else State.EXPIRED
        self._end(action, _Outcome(state, _cause(action), reason), tick)

    def outlived(self, action: Action, tick: Tick, error: str) -> None:
        """End the action if its limit must have ended by itself while nothing could be read."""
        if self._runtime.clock.monotonic() > self._runtime.watch(action).expires + _SLACK:
            self.expire(
                action, Cause.TTL, f"its time ended while the enforcer gave no usable answer: {error}", tick
            )

    def expire(self, action: Action, cause: Cause, reason: str, tick: Tick) -> None:
        """Record that the limit ended by itself."""
        self._end(action, _Outcome(State.EXPIRED, cause, reason), tick)

    def port_gone(self, action: Action, left: Mapping[str, str] | None, tick: Tick) -> None:
        """Record that the port is gone, and the limit with it; left tells how long it may be followed."""
        reason = f"port {action.port} is gone, and the limit with it"
        self._end(action, _Outcome(State.EXPIRED, Cause.GONE, reason, left=left), tick)

    def fail(self, action: Action, reason: str, tick: Tick) -> None:
        """Give up. What may be in the kernel nevertheless ends by its TTL, or is removed when it is found."""
        self._end(action, _Outcome(State.FAILED, Cause.FAILURE, reason), tick)

    def failed_attempt(self, action: Action, error: str, tick: Tick) -> None:
        """Record a failure to reach or use the enforcer; give up after the configured number."""
        failures = self._runtime.failed(action, tick)
        if failures >= tick.loop.attempts:
            self.fail(action, f"gave up after {failures} attempts: {error}", tick)
            return
        entry = Entry("attempt_failed", self._runtime.clock.now(), {"attempt": failures, "error": error})
        with self._runtime.journal.change(action, "action.attempt_failed", entry, detail=entry.detail) as row:
            if row.state in (State.RECEIVED, State.APPROVED):
                row.reason = f"not decided yet: {error}"

    def close(self, action: Action, cause: Cause, reason: str) -> None:
        """End an action that enforces nothing, in the state in which it is."""
        entry = Entry("closed", self._runtime.clock.now(), {"cause": cause.value, "reason": reason})
        with self._runtime.journal.change(action, "action.closed", entry, detail=entry.detail) as row:
            row.cause, row.ended_at = cause.value, entry.at
        self._runtime.watches.pop(action.seq, None)

    def _end(self, action: Action, outcome: _Outcome, tick: Tick, *entries: Entry) -> None:
        state, cause = outcome.state.value, outcome.cause.value
        event = "removal_verified" if outcome.verified else state
        last = Entry(event, self._runtime.clock.now(), {"cause": cause, "reason": outcome.reason})
        detail = {"cause": cause, "verified": outcome.verified}
        with self._runtime.journal.change(action, f"action.{state}", *entries, last, detail=detail) as row:
            move(row, outcome.state)
            row.cause, row.reason, row.ended_at, row.expires_at = cause, outcome.reason, last.at, None
            if outcome.left is not None:
                row.params = {**row.params, LEFT: dict(outcome.left)}
        held = tick.held.get((action.node, action.port))
        if held is not None and held.seq == action.seq:
            del tick.held[action.node, action.port]
        self._runtime.watches.pop(action.seq, None)
        self._runtime.cooldowns.ended(action.key)
        self._runtime.metrics.reverts.labels(cause).inc()
        _log.info(
            "action over",
            extra={"action": action.id, "node": action.node, "port": action.port, "cause": cause},
        )


def _cause(action: Action) -> Cause:
    return Cause(action.cause or Cause.OPERATOR)
