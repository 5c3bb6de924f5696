"""What all pages have in common: templates, what a page may do, files, addresses, how things are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from flask import Response, request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from vigia_service import look
from vigia_text import numbers
from vigia_text.terminal import clean, cut

__all__ = ["ASSETS", "POLICY", "asset", "page"]

_FOLDER = Path(__file__).parent / "assets"
_STYLES = look.styles((_FOLDER / "vigia.css").read_text(encoding="utf-8"))
"""They come with the top of a page, so that a browser paints it without another question."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_STYLES.source}",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types vigia",
    )
)
"""Nothing inline but the styles of this hash, nothing from elsewhere, and markup from this server alone."""

ASSETS: Mapping[str, str] = {
    "live.js": "text/javascript; charset=utf-8",
    "icon.svg": look.ICON_TYPE,
}

_LONGEST = 64
_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""Unix time from which a moment cannot be written: what Prometheus says may be any number."""


def _name(text: object) -> str:
    """Return a label's value: no control characters, and not longer than a line has room for."""
    return cut(clean(str(text)), _LONGEST)


def _clock(at: float, seconds: bool = False) -> Markup:
    """Return a moment as an element: the hour of today, else with its date."""
    if not 0.0 < at < _LAST:
        return escape(numbers.MISSING)
    when, today = datetime.fromtimestamp(at, UTC), datetime.now(UTC).date()
    form = ("" if when.date() == today else "%Y-%m-%d ") + ("%H:%M:%S" if seconds else "%H:%M")
    return Markup('<time datetime="{}">{} UTC</time>').format(
        when.strftime("%Y-%m-%dT%H:%M:%SZ"), when.strftime(form)
    )


def _lasted(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


def _whole(ratio: float) -> str:
    """Return a share in whole percent, never rounded up."""
    return f"{math.floor(100.0 * ratio)} %"


def _address(path: str, /, **wanted: object) -> str:
    given = {k: v for k, v in wanted.items() if v not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def _shown(value: object) -> object:
    """Return what is put on a page without control characters; markup is made of clean text."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("vigia_compare.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        name=_name,
        clock=_clock,
        lasted=_lasted,
        quantity=numbers.quantity,
        percent=numbers.percent,
        times=numbers.times,
        whole=_whole,
        count=numbers.count,
    )
    made.globals.update(address=_address, missing=numbers.MISSING)
    made.globals.update(styles=_STYLES.text)
    return made


_TEMPLATES = _environment()


def page(
    template: str, current: str, every: float, console: str, shown: Callable[[], Mapping[str, object]]
) -> Response:
    """Return a page, made of a template and of what it shows, which is found out once its top has been sent.

    ``current`` is the page's name in the navigation, ``every`` the seconds after which it asks again, 0 for
    never, and ``console`` the address of the isolation agent's; empty: on the port next to this.
    """
    console = look.where(console, request, look.Service.CONSOLE)
    title = next(entry.text for entry in look.NAVIGATION if entry.key == current)
    bar = Markup(look.bar(current, look.Service.PAGES, console))  # noqa: S704 - made of escaped text
    top = _TEMPLATES.get_template("top.html").render(every=f"{every:g}", title=title, bar=bar)

    def parts() -> Iterator[str]:
        yield top
        yield ""  # a browser paints it while Prometheus is asked
        yield _TEMPLATES.get_template(template).render(console=console, **shown())

    return Response(parts(), content_type="text/html; charset=utf-8")


def asset(name: str) -> Response | None:
    """Return one of the pages' files; None if there is none of that name."""
    if name not in ASSETS:
        return None
    content = look.ICON if name == "icon.svg" else (_FOLDER / name).read_bytes()
    return Response(content, content_type=ASSETS[name])
