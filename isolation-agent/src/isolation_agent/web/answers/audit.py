"""The audit log, as the API and the command line show it."""

from __future__ import annotations

from typing import Any, Self

from isolation_agent.storage.audit import Verification
from isolation_agent.web.answers import Answer

__all__ = ["AuditHead", "AuditPage", "AuditVerification"]


class AuditHead(Answer):
    """The newest record."""

    seq: int
    hash: str


class AuditPage(Answer):
    """Audit records."""

    records: list[dict[str, Any]]
    next_from: int | None
    head: AuditHead


class AuditVerification(Answer):
    """Outcome of walking the audit log."""

    ok: bool
    records: int
    first_seq: int
    last_seq: int
    last_hash: str
    line: int | None
    problem: str | None

    @classmethod
    def of(cls, result: Verification) -> Self:
        """Return the outcome; line and problem only if there is one."""
        return cls(
            ok=result.ok,
            records=result.records,
            first_seq=result.first,
            last_seq=result.head.seq,
            last_hash=result.head.hash,
            line=result.line or None,
            problem=result.problem or None,
        )
