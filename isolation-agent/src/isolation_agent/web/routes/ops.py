"""Health and metrics, open to supervisors and Prometheus."""

from __future__ import annotations

from flask import Blueprint, Response, request
from prometheus_client.exposition import choose_encoder

from isolation_agent.web.auth import OPEN, needs
from isolation_agent.web.context import the_agent

__all__ = ["blueprint"]

blueprint = Blueprint("ops", __name__)

_TEXT = "text/plain; charset=utf-8"


@blueprint.get("/-/healthy")
@needs(OPEN)
def healthy() -> Response:
    """Answer 200 while the controller takes its turns; otherwise restart the agent."""
    agent = the_agent()
    stuck = agent.stuck()
    return Response(
        f"not healthy: {stuck}\n" if stuck else "healthy\n", 503 if stuck else 200, mimetype=_TEXT
    )


@blueprint.get("/-/ready")
@needs(OPEN)
def ready() -> Response:
    """Answer 200 once the agent has taken a turn and everything can be stored."""
    agent = the_agent()
    problem = agent.problem()
    return Response(
        f"not ready: {problem}\n" if problem else "ready\n", 503 if problem else 200, mimetype=_TEXT
    )


@blueprint.get("/metrics")
@needs(OPEN)
def metrics() -> Response:
    """Expose the metrics."""
    agent = the_agent()
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(agent.metrics.registry), content_type=content_type)
