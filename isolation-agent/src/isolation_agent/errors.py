"""The agent's own errors. Each message is one line that names the fix."""

from __future__ import annotations

from vigia_service.errors import ServiceError

__all__ = ["AgentError", "AuditError", "DamagedError", "NotLeader", "StorageError"]


class AgentError(ServiceError):
    """Something the operator has to mend before the agent can go on."""


class StorageError(AgentError):
    """The database cannot be read or written."""


class DamagedError(StorageError):
    """The file of the database is damaged, gone or another one: what is written into it is lost."""


class AuditError(AgentError):
    """The audit log cannot be written, or its chain does not hold."""


class NotLeader(AgentError):
    """Another replica leads; what was begun here must not be finished."""
