"""A limit whose port is gone follows its workload: the pod that is on another node, the guest that moved.

What is left of the limit's time is set at the port that the workload has now. From
there on it stands or falls by what that port offers, as every limit does.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from isolation_agent.actions.applying import Applying
from isolation_agent.actions.orders import MAX_EXTENSION
from isolation_agent.actions.runtime import Runtime
from isolation_agent.actions.tick import Tick
from isolation_agent.clock import instant
from isolation_agent.decision.evidence import evidence_of
from isolation_agent.decision.situation import Situation
from isolation_agent.decision.verdict import Verdict, judge, standing_objection
from isolation_agent.errors import AgentError
from isolation_agent.model.node import PortState
from isolation_agent.model.states import ENFORCING, State
from isolation_agent.model.target import Target
from isolation_agent.policy import MAX_TTL
from isolation_agent.storage import actions
from isolation_agent.storage.actions import FOLLOWS_UNTIL, LEFT
from isolation_agent.storage.journal import Entry, about, add_entries, move
from isolation_agent.storage.tables import Action, Episode

__all__ = ["Following", "left_of"]

_log = logging.getLogger(__name__)


def left_of(action: Action, now: datetime) -> Mapping[str, str] | None:
    """Return what a limit leaves to be followed by when its port goes; None if nothing is to follow it.

    A relaxed limit had no evidence any more, and below what was bought nobody is held without a person
    who said so of that very port.
    """
    if action.state not in (State.ACTIVE, State.STEPPED_UP) or action.level == "L4" or action.revert_by:
        return None
    until = min(action.expires_at or now, now + timedelta(seconds=action.params["ttl"]))
    if action.extend_until is not None:  # a person wants it until then, whatever is offered
        until = max(until, min(action.extend_until, now + timedelta(seconds=MAX_EXTENSION)))
    if until <= now:
        return None
    return {"until": instant(until), "workload": str((action.evidence or {}).get("workload") or "")}


class Following:
    """Finds where workloads went whose ports are gone, and sets there what is left of their limits."""

    def __init__(self, runtime: Runtime, applying: Applying) -> None:
        self._runtime = runtime
        self._applying = applying

    def waiting(self) -> list[Action]:
        """Return the actions whose port went and whose limit may still follow."""
        now = self._runtime.clock.now()
        with self._runtime.journal.store.read() as session:
            found = actions.left_since(session, now - timedelta(seconds=MAX_EXTENSION))
        return [a for a in found if _until(a) > now]

    def hurries(self, waiting: Iterable[Action]) -> bool:
        """Tell whether all nodes have to be looked at in this turn: a workload may have come back anywhere.

        What a person ordered for an hour is looked for once in a while after that.
        """
        since = self._runtime.clock.now() - timedelta(seconds=MAX_TTL)
        return any(a.ended_at is not None and a.ended_at > since for a in waiting)

    def follow(self, waiting: Iterable[Action], tick: Tick) -> None:
        """Go on with each limit whose workload has a port again; one that breaks stops no other."""
        for action in waiting:
            try:
                self._follow(action, tick)
            except AgentError:
                raise
            except Exception:
                _log.exception("cannot follow a workload in this turn", extra={"action": action.id})

    def _follow(self, gone: Action, tick: Tick) -> None:
        if tick.kill_switch or tick.settings.policies.guards.kill_switch:
            self._give_up(gone, "the kill switch is on")
            return
        target = _where(gone, tick)
        if target is None:
            return
        with self._runtime.journal.store.read() as session:
            there = [a for a in actions.open_on(session, [target.port]) if a.target == target]
            reasons = actions.reasons_of(session, gone.seq)
        holder = next((a for a in there if a.state in ENFORCING), None)
        if holder is not None:
            self._give_up(gone, f"action {holder.id} limits {target.port} already", by=holder.id)
            return
        if any(a.policy == gone.policy for a in there):
            return  # an alert of its own, to be decided in this turn; if it is not, it may be followed yet
        row = _row(gone, target, self._runtime.clock.now())
        situation = self._situation(row, gone, reasons, tick)
        objection = standing_objection(situation)
        verdict = judge(situation)
        if objection:
            self._give_up(gone, objection)
        elif verdict.allowed and not verdict.approval:
            self._decide(row, gone, verdict, situation)
            row.policy_version = tick.settings.policies.version
            self._go_on(gone, row, reasons, tick)

    def _situation(
        self, row: Action, gone: Action, reasons: Sequence[tuple[str, Episode]], tick: Tick
    ) -> Situation:
        """Put together what it depends on, but for the pause after and the count of what it goes on with."""
        found = self._runtime.situation(row, tick)
        counted = gone.applied_at is not None and gone.params.get("verified", True)
        return replace(
            found,
            level=gone.level,
            labels=reasons[0][1].labels if reasons else {},
            follows=True,
            cooldown_left=0.0,
            active_of_tenant=max(0, found.active_of_tenant - bool(counted)),
        )

    def _decide(self, row: Action, gone: Action, verdict: Verdict, situation: Situation) -> None:
        """Write down what is decided, and what was seen."""
        if verdict.spec is None:
            raise ValueError(f"level {row.level} has no limit")
        row.rate, row.limit_wanted = verdict.rate, verdict.spec.fields()
        row.evidence, row.decided_at = evidence_of(situation.view, situation.port), row.created_at
        row.reason = f"follows action {gone.id} from {gone.node}, whose port is gone; {verdict.reason}"
        row.term = self._runtime.term

    def _go_on(
        self,
        gone: Action,
        row: Action,
        reasons: Sequence[tuple[str, Episode]],
        tick: Tick,
    ) -> None:
        """Store the intent at the new port and the end of the old one's wait together, then apply."""
        journal, now = self._runtime.journal, self._runtime.clock.now()
        with journal.writer.write() as session:
            old = session.get_one(Action, gone.seq)
            session.add(row)
            move(row, State.APPLYING)
            session.flush()
            actions.forget_left(old)
            old.updated_at = now
            to = {"action": row.id, "node": row.node, "port": row.port}
            whence = {
                "action": old.id,
                "node": old.node,
                "port": old.port,
                "until": row.params[FOLLOWS_UNTIL],
            }
            add_entries(session, (old, [Entry("followed", now, to)]), (row, [Entry("follows", now, whence)]))
            actions.add_reasons(session, *((row, episode, policy) for policy, episode in reasons))
            session.flush()
            journal.audit.append(
                about(old, "action.followed", "controller", to),
                about(row, "action.intent", "controller", {"follows": whence, "evidence": row.evidence}),
            )
        tick.held[row.node, row.port] = row
        tick.reasons[row.seq] = list(reasons)
        self._runtime.renew(row, row.params["ttl"])
        _log.info(
            "a limit follows its workload", extra={"action": row.id, "node": row.node, "port": row.port}
        )
        self._applying.apply(row, tick)

    def _give_up(self, gone: Action, reason: str, by: str | None = None) -> None:
        """Let nothing follow: somebody objects, or it is limited there already."""
        detail = {"reason": reason} | ({"action": by} if by else {})
        entry = Entry("followed" if by else "not_followed", self._runtime.clock.now(), detail)
        with self._runtime.journal.change(gone, f"action.{entry.event}", entry, detail=detail) as row:
            actions.forget_left(row)


def _until(action: Action) -> datetime:
    return datetime.fromisoformat(action.params[LEFT]["until"])


def _row(gone: Action, target: Target, now: datetime) -> Action:
    """Return the action that goes on at another port, not stored yet."""
    params = {k: v for k, v in gone.params.items() if k != LEFT}
    return Action(
        id=str(uuid.uuid4()),
        policy=gone.policy,
        policy_version=gone.policy_version,
        node=target.node,
        port=target.port,
        tenant=target.tenant,
        level=gone.level,
        state=State.RECEIVED,
        approved_by=gone.approved_by,
        extend_until=gone.extend_until,
        needs_evidence=True,  # its alert is of before: it says nothing of how soon this began
        params=params | {FOLLOWS_UNTIL: gone.params[LEFT]["until"]},
        created_at=now,
        updated_at=now,
    )


def _where(gone: Action, tick: Tick) -> Target | None:
    """Return the port that the workload has now; None while it has none, or nobody can say which."""
    found = [
        Target(node, port.port, port.tenant)
        for node, view in tick.views.items()
        for port in (view.state.ports if view.state else ())
        if _is_of(port, gone)
    ]
    return found[0] if len(found) == 1 else None


def _is_of(port: PortState, gone: Action) -> bool:
    """Tell whether a port is the one that is gone, back or on another node, or its workload's new one."""
    if port.tenant != gone.tenant:
        return False
    if port.port == gone.port:
        return True
    workload, interface = gone.params[LEFT]["workload"], _interface(gone.port)
    return bool(workload and interface) and (port.workload, _interface(port.port)) == (workload, interface)


def _interface(port: str) -> str:
    """Return the interface that a pod's port is named after, which is UID/INTERFACE; empty for others."""
    return port.partition("/")[2]
