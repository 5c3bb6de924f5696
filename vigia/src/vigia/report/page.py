"""From a document to one self-contained HTML page, and to a PDF of it."""

from __future__ import annotations

from pathlib import Path

import jinja2

from vigia.errors import VigiaError
from vigia.report.document import Document

__all__ = ["html", "write_pdf"]


def html(document: Document) -> str:
    """Return the page: styles and figures inside, nothing to load."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vigia.report"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html").render(document=document)


def write_pdf(page: str, target: Path) -> None:
    """Write a page as PDF. Raises VigiaError if the libraries that draw it are missing."""
    try:
        import weasyprint  # noqa: PLC0415 - loads Pango, which only reports need
    except OSError as e:
        raise VigiaError(
            f"a PDF needs Pango: {e}; run: apt-get install libpango-1.0-0 libpangoft2-1.0-0, or report with --no-pdf"
        ) from e
    weasyprint.HTML(string=page, url_fetcher=_refuse).write_pdf(target)


def _refuse(url: str, *_: object, **__: object) -> dict[str, object]:
    raise VigiaError(f"a report loads nothing, but asked for {url}")
