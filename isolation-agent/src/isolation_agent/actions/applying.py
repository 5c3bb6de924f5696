"""From a decision to a limit that was read back from the kernel."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from isolation_agent.actions.ending import Ending
from isolation_agent.actions.runtime import Runtime
from isolation_agent.actions.tick import Tick
from isolation_agent.decision.evidence import evidence_of, verified
from isolation_agent.decision.levels import LimitSpec
from isolation_agent.decision.situation import Situation
from isolation_agent.decision.verdict import Verdict, judge
from isolation_agent.enforcers.client import Applied, EnforcerError, LimitRequest, Refused
from isolation_agent.model.node import PortState
from isolation_agent.model.states import Cause, State
from isolation_agent.policy import MAX_TTL
from isolation_agent.storage.actions import FOLLOWS_UNTIL
from isolation_agent.storage.journal import Entry, move
from isolation_agent.storage.tables import Action

__all__ = ["Applying", "mismatch"]

_log = logging.getLogger(__name__)

_FINAL = frozenset({"unknown_port", "tenant_mismatch", "no_contract", "other_limit"})
"""Refusals that trying again would not change."""


class Applying:
    """Stores the intent, sets the limit, checks it."""

    def __init__(self, runtime: Runtime, ending: Ending) -> None:
        self._runtime = runtime
        self._ending = ending

    def intend(self, action: Action, verdict: Verdict, situation: Situation, tick: Tick) -> None:
        """Store the intent, then apply: a crash in between is completed after a restart."""
        port = situation.port
        evidence = evidence_of(situation.view, port)
        decided = Entry(
            "decided",
            self._runtime.clock.now(),
            {"level": verdict.level, "rate_bytes_per_second": verdict.rate, "reason": verdict.reason},
        )
        repeats = self._runtime.repeats(action, situation.policy)
        entries = [*_detected(port), decided]
        with self._runtime.journal.change(
            action, "action.intent", *entries, detail={"rate": verdict.rate, "evidence": evidence}
        ) as row:
            move(row, State.APPLYING)
            row.guard, row.reason, row.level, row.term = (
                None,
                verdict.reason,
                verdict.level,
                self._runtime.term,
            )
            row.evidence, row.decided_at = evidence, decided.at
            row.params = situation.policy.params(repeats) | {"verified": situation.verified}
            _want(row, verdict.spec)
            row.policy_version = tick.settings.policies.version
            row.limit_before = port.limit.model_dump() if port and port.limit else None
        tick.held[row.node, row.port] = row
        self._runtime.renew(row, row.params["ttl"])
        self.apply(row, tick)

    def applying(self, action: Action, tick: Tick) -> None:
        """Go on with an intent whose limit is not known to be in the kernel."""
        objection = self._ending.objection(action, tick)
        if objection:
            self._ending.begin_release(action, Cause.OPERATOR, objection, tick)
            return
        view = tick.views[action.node]
        if view.state is None:
            if view.asked:
                self._ending.failed_attempt(action, view.error, tick)
            return
        situation = self._runtime.situation(action, tick)
        port = situation.port
        if port is not None and port.limit is not None and port.limit.id == action.id:
            self._settle(action, Applied(port=port.port, limit=port.limit, verified=True), tick, "adopted")
            return
        verdict = judge(situation)
        if not verdict.allowed:
            self._ending.begin_release(action, Cause.FAILURE, verdict.reason, tick)
        elif tick.is_old(action.decided_at or action.created_at) and not verified(
            view, action.port, action.params["offered_below"]
        ):
            self._ending.fail(action, "the intent is old and the source shows no flood", tick)
        elif self._runtime.may_try(action):
            with self._runtime.journal.change(action, "action.intent", detail={"rate": verdict.rate}) as row:
                row.term = self._runtime.term
                _want(row, verdict.spec)
            self.apply(row, tick)

    def put(
        self, action: Action, wanted: Mapping[str, Any], ttl: float, tick: Tick
    ) -> Applied | EnforcerError:
        """Ask the enforcer for the limit. The same id again extends or changes it."""
        below_floor = wanted["rate_bytes_per_second"] == 0
        request = LimitRequest(
            id=action.id,
            tenant=action.tenant,
            ttl_seconds=int(min(ttl, MAX_TTL)),
            approved_by=action.approved_by if below_floor else None,
            **wanted,
        )
        try:
            return tick.fleet.apply(action.node, action.port, request)
        except EnforcerError as e:
            return e

    def apply(self, action: Action, tick: Tick) -> None:
        """Ask for the limit of an intent that is stored, and check it."""
        seconds = self._seconds(action)
        if seconds < 1:
            self._ending.fail(
                action, "its time was over before it was in force where the workload is now", tick
            )
            return
        applied = self.put(action, action.limit_wanted or {}, seconds, tick)
        if isinstance(applied, Applied):
            self._settle(action, applied, tick, "limit_applied")
        elif isinstance(applied, Refused) and (applied.code in _FINAL or applied.status == 400):
            self._ending.fail(action, f"the enforcer refused: {applied}", tick)
        else:
            self._ending.failed_attempt(action, str(applied), tick)

    def _seconds(self, action: Action) -> float:
        """Return how long the limit lasts at first: what follows another one has what is left of that."""
        ttl = float(action.params["ttl"])
        until = action.params.get(FOLLOWS_UNTIL)
        if until is None:
            return ttl
        return min(ttl, (datetime.fromisoformat(until) - self._runtime.clock.now()).total_seconds())

    def _settle(self, action: Action, applied: Applied, tick: Tick, event: str) -> None:
        """Check what was read back from the kernel; only then is the action active."""
        at = self._runtime.clock.now()
        problem = mismatch(action.limit_wanted or {}, action, applied, action.params["ttl"])
        if problem:
            self._ending.begin_release(
                action, Cause.FAILURE, f"the limit read back is wrong: {problem}", tick
            )
            return
        verified_at = self._runtime.clock.now()
        limit = applied.limit.model_dump()
        entries = [Entry(event, at, {"limit": limit}), Entry("limit_verified", verified_at)]
        with self._runtime.journal.change(
            action, "action.active", *entries, detail={"limit": limit, "verified": True}
        ) as row:
            move(row, State.ACTIVE)
            row.limit_after, row.applied_at = limit, at
            row.expires_at = at + timedelta(seconds=applied.limit.expires_in_seconds)
        self._runtime.renew(row, applied.limit.expires_in_seconds)
        self._observe_reaction(row, tick, at, verified_at)
        _log.info("limit in force", extra={"action": action.id, "node": action.node, "port": action.port})

    def _observe_reaction(
        self, action: Action, tick: Tick, applied_at: datetime, verified_at: datetime
    ) -> None:
        """Record how long each stage took; an old alert says nothing about the first two."""
        since = action.decided_at or applied_at
        firing = tick.firing(action)
        if firing and not action.needs_evidence:
            episode = firing[0][1]
            since = episode.received_at
            detected = ((action.evidence or {}).get("signals") or {}).get("flood_detected_at")
            if detected:
                self._stage("detect", episode.starts_at - datetime.fromisoformat(detected))
            self._stage("notify", episode.received_at - episode.starts_at)
        self._stage("apply", applied_at - since)
        self._stage("verify", verified_at - applied_at)

    def _stage(self, stage: str, took: timedelta) -> None:
        """Observe a duration; clocks of different machines may make it negative, which counts as nothing."""
        self._runtime.metrics.reaction.labels(stage).observe(max(0.0, took.total_seconds()))


def _want(row: Action, spec: LimitSpec | None) -> None:
    """Store what the enforcer is to be asked for."""
    if spec is None:
        raise ValueError(f"level {row.level} has no limit")
    row.rate, row.limit_wanted = spec.rate, spec.fields()


def mismatch(wanted: Mapping[str, Any], action: Action, applied: Applied, ttl: float) -> str:
    """Return what differs between the limit that was asked for and the one read back."""
    limit = applied.limit
    pairs = [
        ("verified", applied.verified, True),
        ("port", applied.port, action.port),
        ("id", limit.id, action.id),
        *((name, getattr(limit, name), value) for name, value in wanted.items()),
        ("expires_in_seconds", 0 < limit.expires_in_seconds <= ttl + 1, True),
    ]
    return "; ".join(f"{name} is {str(got)[:64]}, not {want}" for name, got, want in pairs if got != want)


def _detected(port: PortState | None) -> list[Entry]:
    """Return the timeline's line for the kernel's own detection, if there was one."""
    if port is None or port.signals is None or port.signals.flood_detected_at is None:
        return []
    detail = {"flood_score": port.signals.flood_score}
    return [Entry("kernel_detected", port.signals.flood_detected_at, detail)]
