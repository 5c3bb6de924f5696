"""What the service shows on the web."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from vigia_compare import report
from vigia_service.ops import Ops, blueprint, text

if TYPE_CHECKING:
    from vigia_compare.service import Service

__all__ = ["create_app"]


def create_app(service: Service) -> Flask:
    """Return the service as a WSGI application."""
    app = Flask("vigia_compare", static_folder=None)
    ops = Ops(service.metrics.registry, service.stuck, service.unready, service.reloader.reload)
    app.register_blueprint(blueprint(ops))

    @app.get("/")
    def landing() -> Response:
        newest = service.newest
        shown = report.as_text(newest) if newest else f"not yet: {service.problem}"
        return Response(_PAGE.format(text=html.escape(shown)), content_type="text/html; charset=utf-8")

    @app.get("/v1/comparisons")
    def comparisons() -> Response:
        newest = service.newest
        if newest is None:
            return text(f"{service.problem}\n", 503)
        return Response(json.dumps(report.as_json(newest)), content_type="application/json")

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
