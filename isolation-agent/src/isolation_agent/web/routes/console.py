"""The console: files that hold nothing but the page itself; all data comes from the API."""

from __future__ import annotations

from html import escape
from pathlib import Path

from flask import Blueprint, Response, request

from isolation_agent.web.auth import OPEN, needs
from isolation_agent.web.context import the_agent
from isolation_agent.web.errors import ApiError
from vigia_service.beside import beside
from vigia_service.styles import Styles

__all__ = ["CSP", "blueprint"]

blueprint = Blueprint("console", __name__)

_FOLDER = Path(__file__).parent.parent / "static"
_STYLES = Styles.of((_FOLDER / "console.css").read_text(encoding="utf-8"))
"""They come with the page, so that a browser paints it without another question."""

CSP = (
    f"default-src 'none'; script-src 'self'; style-src {_STYLES.source}; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""Nothing from elsewhere, nothing inline but the styles of this hash, no markup made of strings."""

_PAGES_PORT = 9875
_TYPES = {
    "console.js": "text/javascript; charset=utf-8",
    "model.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@blueprint.get("/")
@needs(OPEN)
def page() -> Response:
    """Return the page."""
    pages = the_agent().settings.config.pages or beside(request, _PAGES_PORT) or "/"
    page = _file("console.html", "text/html; charset=utf-8")
    page.data = page.data.replace(b"{{ pages }}", escape(pages).encode())
    page.data = page.data.replace(b"{{ styles }}", _STYLES.text.encode())
    return page


@blueprint.get("/console/<name>")
@needs(OPEN)
def asset(name: str) -> Response:
    """Return one of the page's files."""
    if name not in _TYPES:
        raise ApiError(404, "not_found", "there is no such file")
    return _file(name, _TYPES[name])


def _file(name: str, content_type: str) -> Response:
    response = Response((_FOLDER / name).read_bytes(), content_type=content_type)
    response.headers["Content-Security-Policy"] = CSP
    return response
