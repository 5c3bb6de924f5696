"""One action's way through the state machine, one step per tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from isolation_agent.actions.applying import Applying
from isolation_agent.actions.ending import Ending
from isolation_agent.actions.following import Following
from isolation_agent.actions.in_force import InForce
from isolation_agent.actions.runtime import Runtime
from isolation_agent.actions.tick import Tick
from isolation_agent.decision.evidence import evidence_of, verified
from isolation_agent.decision.situation import Situation
from isolation_agent.decision.verdict import Verdict, judge
from isolation_agent.model.states import Cause, State
from isolation_agent.policy import MANUAL_POLICY
from isolation_agent.storage.actions import hand_over_reasons
from isolation_agent.storage.journal import Entry, move
from isolation_agent.storage.tables import Action

__all__ = ["Lifecycle"]


class Lifecycle:
    """Decides about actions and hands them to the step that their state asks for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ending = Ending(runtime)
        self._applying = Applying(runtime, self._ending)
        self.following = Following(runtime, self._applying)
        in_force = InForce(runtime, self._applying, self._ending)
        self._steps: Mapping[State, Callable[[Action, Tick], None]] = {
            State.RECEIVED: self._undecided,
            State.SUPPRESSED: self._undecided,
            State.OBSERVING: self._observing,
            State.PENDING_APPROVAL: self._pending,
            State.APPROVED: self._approved,
            State.APPLYING: self._applying.applying,
            State.ACTIVE: in_force.follow,
            State.STEPPED_UP: in_force.follow,
            State.STEPPED_DOWN: in_force.follow,
            State.RELEASING: self._ending.releasing,
        }

    def step(self, action: Action, tick: Tick) -> None:
        """Take the action as far as it goes in this tick."""
        step = self._steps.get(action.state)
        if step is not None:
            step(action, tick)

    def _undecided(self, action: Action, tick: Tick) -> None:
        if action.revert_by:
            self._ending.close(action, Cause.OPERATOR, f"reverted by {action.revert_by}")
            return
        if not tick.firing(action):
            self._ending.close(action, Cause.RESOLVED, "the alert ended")
            return
        view = tick.views[action.node]
        if view.state is None:
            if view.asked and action.state is State.RECEIVED:
                self._ending.failed_attempt(action, view.error, tick)
            return
        situation = self._runtime.situation(action, tick)
        verdict = judge(situation)
        if verdict.guard == "other_limit" and not verdict.also and situation.held:
            self._merge(action, tick.held[action.node, action.port])
        elif not verdict.allowed:
            self._suppress(action, verdict, situation)
        elif verdict.level == "L0":
            self._observe(action, verdict, situation)
        elif self._must_show(action, tick) and not situation.verified:
            return
        elif verdict.approval:
            self._ask(action, verdict, situation)
        else:
            self._applying.intend(action, verdict, situation, tick)

    def _ask(self, action: Action, verdict: Verdict, situation: Situation) -> None:
        """Let a person decide."""
        detail = {"level": verdict.level, "why": verdict.approval, "would": verdict.reason}
        evidence = evidence_of(situation.view, situation.port)
        entry = Entry("approval_requested", self._runtime.clock.now(), detail)
        with self._runtime.journal.change(
            action, "action.pending_approval", entry, detail=detail | {"evidence": evidence}
        ) as row:
            move(row, State.PENDING_APPROVAL)
            row.guard, row.level = verdict.asked_by or None, verdict.level
            row.reason = f"{verdict.reason}; {verdict.approval}"
            row.rate, row.evidence, row.decided_at = verdict.rate, evidence, entry.at
        self._runtime.metrics.approvals.labels("requested").inc()
        if verdict.asked_by:
            self._runtime.metrics.suppressed.labels(verdict.asked_by).inc()

    def _pending(self, action: Action, tick: Tick) -> None:
        watch, now = self._runtime.watch(action), self._runtime.clock.monotonic()
        if watch.waiting_since is None:
            watch.waiting_since = now
        policy = self._runtime.policy_of(action, tick)
        if action.revert_by:
            self._ending.close(action, Cause.REJECTED, f"rejected by {action.revert_by}")
        elif not tick.wanted(action):
            self._ending.close(action, Cause.RESOLVED, "the alert ended before anybody decided")
        elif policy is None:
            self._ending.close(
                action, Cause.OPERATOR, f"policy {action.policy} is no longer in the policy file"
            )
        elif now - watch.waiting_since >= policy.approval_timeout:
            reason = f"nobody approved it within {policy.approval_timeout:g}s"
            self._runtime.metrics.approvals.labels("unanswered").inc()
            self._ending.close(action, Cause.UNANSWERED, reason)
        elif action.guard == "evidence":
            self._look_again(action, tick)

    def _look_again(self, action: Action, tick: Tick) -> None:
        """Go on with an alert that waits for a person because nothing bore it out, once something does."""
        view = tick.views[action.node]
        if not verified(view, action.port, action.params["offered_below"]):
            return
        situation = self._runtime.situation(action, tick)
        verdict = judge(situation)
        if verdict.guard == "other_limit" and not verdict.also and situation.held:
            self._merge(action, tick.held[action.node, action.port])
        elif not verdict.allowed:
            self._suppress(action, verdict, situation)
        elif not verdict.approval:
            self._applying.intend(action, verdict, situation, tick)
        else:
            entry = Entry("approval_requested", self._runtime.clock.now(), {"why": verdict.approval})
            with self._runtime.journal.change(
                action, "action.pending_approval", entry, detail=entry.detail
            ) as row:
                row.guard, row.reason = verdict.asked_by or None, f"{verdict.reason}; {verdict.approval}"

    def _approved(self, action: Action, tick: Tick) -> None:
        """Ask the guards once more: what a person approved may have changed since."""
        if action.revert_by:
            self._ending.close(action, Cause.OPERATOR, f"reverted by {action.revert_by}")
            return
        view = tick.views[action.node]
        if view.state is None:
            if view.asked:
                self._ending.failed_attempt(action, view.error, tick)
            return
        situation = self._runtime.situation(action, tick)
        verdict = judge(situation)
        if verdict.allowed:
            self._applying.intend(action, verdict, situation, tick)
        elif action.policy == MANUAL_POLICY:
            self._ending.fail(action, verdict.reason, tick)
        else:
            self._suppress(action, verdict, situation)

    @staticmethod
    def _must_show(action: Action, tick: Tick) -> bool:
        """Tell whether the source has to show the flood, since the alert alone is too old."""
        return action.needs_evidence or action.state is State.SUPPRESSED or tick.is_old(action.created_at)

    def _merge(self, action: Action, holder: Action) -> None:
        """Add the reasons of an action to the one that limits the target already."""
        reason = f"action {holder.id} limits {action.port} already and takes over the reasons"
        entry = Entry("merged", self._runtime.clock.now(), {"into": holder.id})
        with self._runtime.journal.change(action, "action.merged", entry, detail=entry.detail) as row:
            row.cause, row.reason, row.ended_at = Cause.MERGED.value, reason, entry.at
            hand_over_reasons(row, holder)

    def _suppress(self, action: Action, verdict: Verdict, situation: Situation) -> None:
        """Record which guard stopped the action, once for each guard."""
        if action.state is State.SUPPRESSED and action.guard == verdict.guard:
            return
        guard = verdict.guard or ""
        detail = {"guard": guard, "reason": verdict.reason, "also": dict(verdict.also)}
        evidence = evidence_of(situation.view, situation.port)
        entry = Entry("suppressed", self._runtime.clock.now(), detail)
        with self._runtime.journal.change(
            action, "action.suppressed", entry, detail={"guard": guard, "evidence": evidence}
        ) as row:
            move(row, State.SUPPRESSED)
            row.guard, row.reason, row.rate, row.evidence = guard, verdict.reason, verdict.rate, evidence
            row.approved_by = None  # a person has to look again
        self._runtime.metrics.suppressed.labels(guard).inc()

    def _observe(self, action: Action, verdict: Verdict, situation: Situation) -> None:
        evidence = evidence_of(situation.view, situation.port)
        entry = Entry("decided", self._runtime.clock.now(), {"level": "L0", "reason": verdict.reason})
        with self._runtime.journal.change(
            action, "action.observing", entry, detail={"evidence": evidence}
        ) as row:
            move(row, State.OBSERVING)
            row.guard, row.reason, row.level, row.evidence = None, verdict.reason, "L0", evidence
            row.decided_at = entry.at

    def _observing(self, action: Action, tick: Tick) -> None:
        if action.revert_by:
            self._ending.close(action, Cause.OPERATOR, f"ended by {action.revert_by}")
        elif not tick.firing(action):
            self._ending.close(action, Cause.RESOLVED, "the alert ended")
