"""What became of a webhook message, as the API shows it."""

from __future__ import annotations

from isolation_agent.web.answers import Answer

__all__ = ["Stored"]


class Stored(Answer):
    """How many alerts are on disk."""

    stored: int
