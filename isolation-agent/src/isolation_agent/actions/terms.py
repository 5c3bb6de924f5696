"""The fencing term of each node: what commands carry, so that no leader commands after its successor.

The database counts the leaders: its term grows by one with each. An enforcer
remembers the highest term that it has seen and refuses lower ones. The two can
part: a database is lost or restored from a backup, a node was commanded by
another agent, a machine is started again and its enforcer begins at 0. The
leader, and the database says who that is, then adds to its term what the node
needs, for this node alone: nothing that one node says can keep the leader from
commanding another one, or make its term grow there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from isolation_agent.enforcers.fleet import Fleet
from isolation_agent.storage.journal import Journal
from isolation_agent.storage.terms import all_ahead, put_ahead

__all__ = ["LAST", "STEP", "Terms"]

STEP = 1 << 20
"""How far a term may be above the highest that an enforcer has seen; enforcers refuse more."""

LAST = 1 << 62
"""Terms from here on are followed no more: an enforcer forgets such a one when it starts."""

_WAIT = 2.0
_WAIT_MOST = 300.0
"""Seconds between two steps at one node, at first and at most: two agents must not race each other."""

_log = logging.getLogger(__name__)


@dataclass
class _Followed:
    """When a node's term was followed last, on the monotonic clock, and how long the next has to wait."""

    at: float
    wait: float = _WAIT


class Terms:
    """What the leader's commands carry. For the controller's thread; ``of`` also for the fleet's."""

    def __init__(self, journal: Journal) -> None:
        """journal has to be fenced by the lease: only the leader that the database names may follow."""
        self._journal = journal
        self._term = 0
        self._ahead: dict[str, int] = {}
        self._followed: dict[str, _Followed] = {}
        self._lost: set[str] = set()

    def begin(self, term: int) -> None:
        """Lead with a term of the database."""
        if term != self._term:
            with self._journal.store.read() as session:
                self._ahead = all_ahead(session)
            self._term = term

    def of(self, node: str) -> int:
        """Return the term for a command to a node."""
        return self._term + self._ahead.get(node, 0)

    def follow(self, fleet: Fleet) -> None:
        """Take up the terms that nodes have seen. Raises NotLeader if the database names another leader."""
        for node, seen in fleet.terms().items():
            if seen <= self.of(node) <= seen + STEP:
                self._lost.discard(node)
            elif seen >= LAST:
                self._give_up(node, seen)
            elif self._may_follow(node):
                self._follow(node, seen)

    def _may_follow(self, node: str) -> bool:
        """Tell whether it is time; somebody else who raises the term of the same node makes that slower."""
        now, last = self._journal.clock.monotonic(), self._followed.get(node)
        if last is None or now - last.at > 2 * _WAIT_MOST:
            self._followed[node] = _Followed(now)
        elif now - last.at < last.wait:
            return False
        else:
            self._followed[node] = _Followed(now, min(2 * last.wait, _WAIT_MOST))
        return True

    def _follow(self, node: str, seen: int) -> None:
        before, ahead = self.of(node), seen + 1 - self._term
        with self._journal.writer.write() as session:
            put_ahead(session, node, ahead)
            self._journal.note("term.followed", "controller", node=node, seen=seen, before=before)
        self._ahead[node] = ahead
        _log.warning(
            "a node has seen another term than this leader's: the database was lost or restored, the node "
            "started again, or another agent commands it",
            extra={"node": node, "seen": seen, "before": before, "term": self.of(node)},
        )

    def _give_up(self, node: str, seen: int) -> None:
        if node not in self._lost:
            self._lost.add(node)
            _log.error(
                "cannot command a node: its term is beyond what a leader can follow; restart its enforcer",
                extra={"node": node, "seen": seen},
            )
