"""Where another service's pages are if nobody said so: on the same host, on a port of their own."""

from __future__ import annotations

import re

from flask import Request

__all__ = ["beside"]

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")


def beside(request: Request, port: int) -> str:
    """Return the URL of a port of the host that a request was sent to; empty if it names no host."""
    host = _HOST.fullmatch(request.host)
    return f"{request.scheme}://{host[1]}:{port}/" if host else ""
