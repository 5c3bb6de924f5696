"""What the service shows on the web."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from vigia_compare import report
from vigia_compare.evaluation import Evaluation
from vigia_service.ops import Ops, blueprint, harden, text

__all__ = ["create_app"]


def create_app(ops: Ops, newest: Callable[[], tuple[Evaluation | None, str]]) -> Flask:
    """Return a WSGI application that shows the newest evaluation, or why there is none."""
    app = Flask("vigia_compare", static_folder=None)
    app.register_blueprint(blueprint(ops))
    harden(app)

    @app.get("/")
    def landing() -> Response:
        found, problem = newest()
        shown = report.as_text(found) if found else f"not yet: {problem}"
        return Response(_PAGE.format(text=html.escape(shown)), content_type="text/html; charset=utf-8")

    @app.get("/v1/comparisons")
    def comparisons() -> Response:
        found, problem = newest()
        if found is None:
            return text(f"{problem}\n", 503)
        return Response(json.dumps(report.as_json(found)), content_type="application/json")

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
<a href="/-/healthy">healthy</a> <a href="/-/ready">ready</a></p><pre>{text}</pre></html>
"""
