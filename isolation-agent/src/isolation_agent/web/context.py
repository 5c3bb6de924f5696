"""What a request belongs to."""

from __future__ import annotations

from flask import current_app

from isolation_agent.service.agent import Agent

__all__ = ["AGENT", "the_agent"]

AGENT = "agent"
"""Key among the application's extensions."""


def the_agent() -> Agent:
    """Return the agent that the application was made for."""
    found: Agent = current_app.extensions[AGENT]
    return found
