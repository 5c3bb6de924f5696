"""The pages that every service has: /-/healthy, /-/ready, /-/reload and /metrics, as a Flask blueprint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flask import Blueprint, Response, request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from vigia_service.errors import ServiceError

__all__ = ["HEALTH", "Ops", "blueprint", "text"]

HEALTH = ("/-/healthy", "/-/ready")
"""Paths that supervisors ask: reserve threads for them."""


@dataclass(frozen=True)
class Ops:
    """What the pages show."""

    registry: CollectorRegistry
    alive: Callable[[], str]
    """Why the program should be restarted, or nothing."""
    ready: Callable[[], str]
    """Why the program cannot do its work at the moment, or nothing."""
    reload: Callable[[], None] | None = None
    """Reloads the configuration; raises ServiceError. None: there is no such page."""


def text(body: str, status: int = 200) -> Response:
    """Return an answer in plain text."""
    return Response(body, status, content_type="text/plain; charset=utf-8")


def blueprint(ops: Ops) -> Blueprint:
    """Return the pages; their endpoints are ops.healthy, ops.ready, ops.metrics and ops.reload."""
    pages = Blueprint("ops", __name__)

    @pages.get("/-/healthy")
    def healthy() -> Response:
        problem = ops.alive()
        return text(f"not healthy: {problem}\n", 503) if problem else text("healthy\n")

    @pages.get("/-/ready")
    def ready() -> Response:
        problem = ops.ready()
        return text(f"not ready: {problem}\n", 503) if problem else text("ready\n")

    @pages.get("/metrics")
    def metrics() -> Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(encode(ops.registry), content_type=content_type)

    if ops.reload is not None:
        pages.add_url_rule("/-/reload", "reload", _reload_page(ops.reload), methods=["POST"])
    return pages


def _reload_page(reload: Callable[[], None]) -> Callable[[], Response]:
    def page() -> Response:
        try:
            reload()
        except ServiceError as e:
            return text(f"{e}\n", 500)
        return text("reloaded\n")

    return page
