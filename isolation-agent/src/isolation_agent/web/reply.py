"""Answers as HTTP responses."""

from __future__ import annotations

from flask import Response

from isolation_agent.web.answers import Answer

__all__ = ["reply"]


def reply(answer: Answer, status: int = 200) -> Response:
    """Return an answer as JSON, with an end of line for people at a terminal."""
    return Response(answer.model_dump_json() + "\n", status, mimetype="application/json")
