"""The WSGI application."""

from __future__ import annotations

from flask import Flask

from isolation_agent.service.agent import Agent
from isolation_agent.web import auth, errors, idempotency
from isolation_agent.web.context import AGENT
from isolation_agent.web.routes import actions, admin, console, overview, session, webhook
from vigia_service import ops

__all__ = ["create_app"]


def create_app(agent: Agent) -> Flask:
    """Make the WSGI application for an agent."""
    app = Flask("isolation_agent", static_folder=None)
    app.extensions[AGENT] = agent
    errors.register(app)
    auth.install(app, agent)
    idempotency.install(app, agent)
    for part in (webhook, actions, admin, overview, session, console):
        app.register_blueprint(part.blueprint)
    app.register_blueprint(ops.blueprint(ops.Ops(agent.metrics.registry, agent.unhealthy, agent.problem)))
    for page in ("ops.healthy", "ops.ready", "ops.metrics"):  # for supervisors and Prometheus
        auth.needs(auth.OPEN)(app.view_functions[page])

    ops.harden(app, "default-src 'none'; frame-ancestors 'none'")
    return app
