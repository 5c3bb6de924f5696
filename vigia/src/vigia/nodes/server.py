"""The agent as a service: every job has a thread, and requests that are no jobs have some to spare."""

from __future__ import annotations

from vigia.campaign.hosts import LocalHost
from vigia.nodes.agent import MAX_BODY, Servers, create_app
from vigia.nodes.settings import Agent
from vigia_service.server import Limits, Server, listen
from vigia_service.watchdog import Watchdog, web_server_hung

__all__ = ["serve"]

_SPARE = 16
"""Threads for requests that are no jobs."""

_ANSWER_SECONDS = 120.0
"""For a campaign to take what a job printed, which may be megabytes."""


def serve(settings: Agent) -> None:
    """Serve until the process is told to stop. Raises ServiceError and ConfigError."""
    context = settings.tls.server() if settings.tls else None
    host = LocalHost(settings.probe)
    servers = Servers(host, settings.jobs)
    limits = Limits(
        threads=settings.jobs + _SPARE,
        body_bytes=MAX_BODY,
        answer_seconds=_ANSWER_SECONDS,
    )
    listener = listen(f"{settings.listen}:{settings.port}")
    try:
        server = Server(create_app(settings, host, servers), [listener], limits, tls=lambda: context)
        with Watchdog(lambda: web_server_hung(server)):
            server.run()
    finally:
        servers.close()
