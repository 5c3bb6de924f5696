"""The pages that every service has: /-/healthy, /-/ready, /-/reload and /metrics, as a Flask blueprint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from vigia_catalog import VERDICT_PAGE
from vigia_service.errors import ServiceError
from vigia_service.server.wsgi import CERTIFICATE
from vigia_service.tokens import read_token

__all__ = ["HEALTH", "PAGE_POLICY", "Ops", "blueprint", "from_foreign_page", "guarded", "harden", "text"]

_log = logging.getLogger(__name__)

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
    reload_token_file: Callable[[], Path | None] = lambda: None
    """The file with the token that whoever reloads has to show; None: only who has a certificate may."""
    verdicts: CollectorRegistry | None = None
    """What is scraped once a minute, on a page of its own. None: there is no such page."""


def text(body: str, status: int = 200) -> Response:
    """Return an answer in plain text."""
    return Response(body, status, content_type="text/plain; charset=utf-8")


def blueprint(ops: Ops) -> Blueprint:
    """Return the pages; their endpoints are ops.healthy, ops.ready, ops.metrics and ops.reload."""
    pages = Blueprint("ops", __name__)

    @pages.get("/-/healthy")
    def healthy() -> Response:
        """Answer 200 while the program is alive, else 503 and why not."""
        problem = ops.alive()
        return text(f"not healthy: {problem}\n", 503) if problem else text("healthy\n")

    @pages.get("/-/ready")
    def ready() -> Response:
        """Answer 200 while the program can do all of its work, else 503 and why not."""
        problem = ops.ready()
        return text(f"not ready: {problem}\n", 503) if problem else text("ready\n")

    @pages.get("/metrics")
    def metrics() -> Response:
        """Return the metrics of the program that are scraped every 15 s."""
        return _exposed(ops.registry)

    if (slow := ops.verdicts) is not None:

        @pages.get(VERDICT_PAGE)
        def verdicts() -> Response:
            """Return the metrics of the program that are scraped once a minute."""
            return _exposed(slow)

    if ops.reload is not None:
        page = guarded(_reload_page(ops.reload), ops.reload_token_file)
        pages.add_url_rule("/-/reload", "reload", page, methods=["POST"])
    return pages


def _exposed(registry: CollectorRegistry) -> Response:
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(registry), content_type=content_type)


PAGE_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""What a page of text may do: look as it says. It loads and runs nothing, and no other page frames it."""


def harden(app: Flask, page_policy: str = PAGE_POLICY) -> None:
    """Add to every answer what keeps browsers from reading more into it than it says."""

    @app.after_request
    def harden(response: Response) -> Response:
        headers = response.headers
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["X-Frame-Options"] = "DENY"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Cache-Control"] = "no-store"
        headers.setdefault("Content-Security-Policy", page_policy)
        return response


def from_foreign_page() -> bool:
    """Tell whether a browser sends the request for a page that is not ours; tools say nothing."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != request.host.lower()
    except ValueError:
        return True


def _refusal(token_file: Path | None) -> tuple[str, int] | None:
    """Return why who asks may change nothing, and the status; None for who may."""
    if from_foreign_page():
        return "another site's page may change nothing here", 403
    if request.environ.get(CERTIFICATE):
        return None
    if token_file is None:
        return (
            "who changes anything has to be known: set reload_token_file or require certificates;"
            " to reload, send SIGHUP",
            403,
        )
    try:
        token = read_token(token_file, "reload_token_file")
    except ServiceError as e:
        _log.error("cannot tell who may change anything", extra={"err": str(e)})
        return "cannot read reload_token_file", 500
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or not token.matches(shown):
        return "send Authorization: Bearer with the token of reload_token_file", 401
    return None


def guarded(page: Callable[[], Response], token_file: Callable[[], Path | None]) -> Callable[[], Response]:
    """Return a page that changes something: it asks who it is, by token or certificate, before it does."""

    @wraps(page)
    def known_only() -> Response:
        refused = _refusal(token_file())
        if refused is None:
            return page()
        answer = text(f"{refused[0]}\n", refused[1])
        if refused[1] == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    return known_only


def _reload_page(reload: Callable[[], None]) -> Callable[[], Response]:
    def page() -> Response:
        """Read the configuration again, and put all of it in force or nothing; needs a token."""
        try:
            reload()
        except ServiceError as e:
            return text(f"{e}\n", 500)
        return text("reloaded\n")

    return page
