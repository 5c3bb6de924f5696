"""The console: files that hold nothing but the page itself; all data comes from the API."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response, request

from isolation_agent.web.auth import OPEN, needs
from isolation_agent.web.context import the_agent
from isolation_agent.web.errors import ApiError
from vigia_service import look

__all__ = ["CSP", "blueprint"]

blueprint = Blueprint("console", __name__)

_FOLDER = Path(__file__).parent.parent / "static"
_STYLES = look.styles((_FOLDER / "console.css").read_text(encoding="utf-8"))
"""They come with the page, so that a browser paints it without another question."""

CSP = (
    f"default-src 'none'; script-src 'self'; style-src {_STYLES.source}; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""Nothing from elsewhere, nothing inline but the styles of this hash, no markup made of strings."""

_TYPES = {
    "console.js": "text/javascript; charset=utf-8",
    "model.js": "text/javascript; charset=utf-8",
    "icon.svg": look.ICON_TYPE,
}


@blueprint.get("/")
@needs(OPEN)
def page() -> Response:
    """Return the page."""
    pages = look.where(the_agent().settings.config.pages or "", request, look.Service.PAGES)
    title = next(entry.text for entry in look.NAVIGATION if entry.key == "isolation")
    page = _file("console.html", "text/html; charset=utf-8")
    for name, text in (
        ("title", title),
        ("bar", look.bar("isolation", look.Service.CONSOLE, pages)),
        ("styles", _STYLES.text),
    ):
        page.data = page.data.replace(b"{{ %s }}" % name.encode(), text.encode())
    return page


@blueprint.get("/console/<name>")
@needs(OPEN)
def asset(name: str) -> Response:
    """Return one of the page's files."""
    if name not in _TYPES:
        raise ApiError(404, "not_found", "there is no such file")
    return _file(name, _TYPES[name])


def _file(name: str, content_type: str) -> Response:
    content = look.ICON if name == "icon.svg" else (_FOLDER / name).read_bytes()
    response = Response(content, content_type=content_type)
    response.headers["Content-Security-Policy"] = CSP
    return response
