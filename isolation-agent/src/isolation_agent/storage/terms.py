"""How far the fencing term of each node is ahead of the leader's own."""

from __future__ import annotations

from sqlalchemy import select

from isolation_agent.storage.store import Transaction
from isolation_agent.storage.tables import NodeTerm

__all__ = ["all_ahead", "put_ahead"]


def all_ahead(session: Transaction) -> dict[str, int]:
    """Return what is added to the leader's term for a node, of the nodes where that is not 0."""
    return {row.node: row.ahead for row in session.scalars(select(NodeTerm))}


def put_ahead(session: Transaction, node: str, ahead: int) -> None:
    """Add so much to the leader's term for a node from now on."""
    session.merge(NodeTerm(node=node, ahead=ahead))
