"""What the service shows on the web."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from vigia_compare import report
from vigia_compare.evaluation import Evaluation
from vigia_service.ops import Ops, blueprint, guarded, harden, text
from vigia_text.terminal import clean

__all__ = ["create_app"]

_LONGEST = 200
"""Characters of a path's name."""


def create_app(
    ops: Ops,
    newest: Callable[[], tuple[Evaluation | None, str]],
    reset: Callable[[str], int],
    lost: Callable[[], str],
) -> Flask:
    """Return a WSGI application that shows the newest evaluation, or why there is none.

    ``reset`` forgets the evidence on a path, or on all; ``lost`` says why what was known before is not there.
    """
    app = Flask("vigia_compare", static_folder=None)
    app.register_blueprint(blueprint(ops))
    harden(app)

    @app.get("/")
    def landing() -> Response:
        found, problem = newest()
        shown = report.as_text(found) if found else f"not yet: {problem}"
        note = f"Evidence of before this program was started is not there: {lost()}." if lost() else ""
        page = _PAGE.format(text=html.escape(shown), note=html.escape(note))
        return Response(page, content_type="text/html; charset=utf-8")

    @app.get("/v1/comparisons")
    def comparisons() -> Response:
        found, problem = newest()
        if found is None:
            return text(f"{problem}\n", 503)
        data = report.as_json(found) | {"evidence_lost": lost() or None}
        return Response(json.dumps(data, allow_nan=False), content_type="application/json")

    def begin_anew() -> Response:
        path = request.args.get("path", "")
        if len(path) > _LONGEST or set(request.args) - {"path"}:
            return text("reset takes one parameter, path, the name of a path; none for all\n", 400)
        forgotten = reset(path)
        if path and not forgotten:
            return text(f"no pair has a path {clean(path)}; see /v1/comparisons\n", 404)
        return text(f"evidence of {forgotten} pairs begins anew\n")

    known_only = guarded(begin_anew, ops.reload_token_file)
    app.add_url_rule("/v1/comparisons/reset", "reset", known_only, methods=["POST"])

    @app.errorhandler(HTTPException)
    def refused(e: HTTPException) -> Response:
        answer = text(f"{e.name}; see /\n", e.code or 500)
        answer.headers.extend({k: v for k, v in e.get_headers() if k == "Allow"})
        return answer

    return app


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>vigia-compare</title>
<style>body{{font:15px/1.4 system-ui;margin:2em;color:#222}}pre{{font:13px/1.35 monospace}}</style>
<h1>vigia-compare</h1><p>Which path is better, and is the difference real.
<a href="/metrics">metrics</a> <a href="/v1/comparisons">comparisons (JSON)</a>
<a href="/-/healthy">healthy</a> <a href="/-/ready">ready</a></p><p>{note}</p><pre>{text}</pre></html>
"""
