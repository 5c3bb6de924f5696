"""Limits found on enforcers, compared with what is on record."""

from __future__ import annotations

import logging

from isolation_agent.actions.tick import Tick
from isolation_agent.enforcers.client import EnforcerError
from isolation_agent.errors import AgentError
from isolation_agent.metrics import Metrics
from isolation_agent.model.node import Limit, PortState
from isolation_agent.model.states import Cause, State
from isolation_agent.policy import UNKNOWN_POLICY
from isolation_agent.storage import actions
from isolation_agent.storage.journal import Entry, Journal
from isolation_agent.storage.tables import Action

__all__ = ["MOST_COMPARED", "MOST_RECORDED", "Reconciler"]

_log = logging.getLogger(__name__)

MOST_COMPARED = 256
"""Limits of a node that no open action knows, looked up in one round: it names as many as it likes."""

MOST_RECORDED = 64
"""Limits of unknown origin of a node that are put on record within an hour; more are left alone as well."""

_HOUR = 3600.0


class Reconciler:
    """Removes limits of actions that are over, and records limits of unknown origin."""

    def __init__(self, journal: Journal, metrics: Metrics) -> None:
        self._journal = journal
        self._metrics = metrics
        self._recorded: dict[str, tuple[float, int]] = {}
        """When a node's hour began, and how many records it has made since."""

    def reconcile(self, tick: Tick) -> None:
        """Compare every node that answers. Limits of open actions are the business of their steps."""
        now = self._journal.clock.monotonic()
        self._recorded = {
            n: (began, count) for n, (began, count) in self._recorded.items() if now - began < _HOUR
        }
        seen: set[tuple[str, str, str]] = set()
        held = {action.id for action in tick.held.values()}
        for node, view in tick.views.items():
            limited = [(port, port.limit) for port in (view.state.ports if view.state else ()) if port.limit]
            seen.update((node, port.port, limit.id) for port, limit in limited)
            unknown = [(port, limit) for port, limit in limited if limit.id not in held]
            for port, limit in unknown[:MOST_COMPARED]:
                self._find(node, port, limit, tick)
        self._settle_orphans(seen, tick)

    def _find(self, node: str, port: PortState, limit: Limit, tick: Tick) -> None:
        """Handle one limit; what cannot be handled, whatever its node says of it, stops no other one."""
        try:
            self._found(node, port, limit, tick)
        except AgentError:
            raise
        except Exception:
            _log.exception("cannot compare a limit with the record", extra={"node": node})

    def _found(self, node: str, port: PortState, limit: Limit, tick: Tick) -> None:
        with self._journal.store.read() as session:
            action = actions.find(session, limit.id[:64])
        if action is None:
            self._note_orphan(node, port, limit)
        elif action.ended_at is not None and (action.node, action.port) == (node, port.port):
            if action.state is State.ORPHANED:
                self._reopen(action)
            else:
                self._remove_late(action, tick)

    def _remove_late(self, action: Action, tick: Tick) -> None:
        """Remove a limit of ours whose action is over: its request took effect after all."""
        try:
            removed = tick.fleet.remove(action.node, action.port, action.id)
        except EnforcerError:
            return  # found again in the next round, unless its time ends first
        entry = Entry("removed_late", self._journal.clock.now(), {"removed": removed.removed})
        with self._journal.change(action, "action.removed_late", entry, detail=entry.detail):
            pass

    def _may_record(self, node: str) -> bool:
        """Tell whether a node may have one more record: the audit log is kept for ever."""
        began, count = self._recorded.get(node, (self._journal.clock.monotonic(), 0))
        self._recorded[node] = began, count + 1
        if count == MOST_RECORDED:
            _log.warning(
                "a node has more limits of unknown origin than are put on record within an hour",
                extra={"node": node, "most": MOST_RECORDED},
            )
        return count < MOST_RECORDED

    def _note_orphan(self, node: str, port: PortState, limit: Limit) -> None:
        """Put a limit of unknown origin on record. It is not ours to remove, and ends by its TTL."""
        if not self._may_record(node):
            return
        now = self._journal.clock.now()
        reason = "found on the enforcer, not on record here; left to its TTL"
        with self._journal.writer.write() as session:
            row = Action(
                id=limit.id[:64],
                policy=UNKNOWN_POLICY,
                policy_version="",
                node=node,
                port=port.port[:256],
                tenant=port.tenant[:256],
                level="L2",
                state=State.ORPHANED,
                reason=reason,
                params={},
                rate=limit.rate_bytes_per_second,
                limit_after=limit.model_dump(),
                created_at=now,
                updated_at=now,
            )
            session.add(row)
        with self._journal.change(
            row, "limit.orphaned", Entry("orphan_found", now, {"limit": limit.model_dump()})
        ):
            pass

    def _reopen(self, action: Action) -> None:
        if not self._may_record(action.node):
            return
        now = self._journal.clock.now()
        with self._journal.change(action, "limit.orphaned", Entry("orphan_found", now)) as row:
            row.ended_at = row.cause = None

    def _settle_orphans(self, seen: set[tuple[str, str, str]], tick: Tick) -> None:
        """Close the records of orphans that are gone from nodes that answered."""
        with self._journal.store.read() as session:
            orphans = actions.orphans(session)
        left = len(orphans)
        for orphan in orphans:
            view = tick.views.get(orphan.node)
            if view is None or view.state is None or (orphan.node, orphan.port, orphan.id) in seen:
                continue
            entry = Entry("orphan_gone", self._journal.clock.now())
            with self._journal.change(orphan, "limit.orphan_gone", entry) as row:
                row.ended_at, row.cause = entry.at, Cause.TTL.value
            left -= 1
        self._metrics.orphans.set(left)
