"""The shape of every error."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from isolation_agent.web.answers import Answer

__all__ = ["ErrorAnswer", "ErrorDetail"]


class ErrorDetail(Answer):
    """What went wrong, where, and how to mend it."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    code: str
    message: str
    field: str | None = Field(default=None, exclude_if=lambda v: v is None)


class ErrorAnswer(Answer):
    """Every error."""

    error: ErrorDetail
