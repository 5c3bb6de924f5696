"""The web server of every Python service: WSGI applications on threads, behind an event loop.

One thread runs an event loop (asyncio) that accepts connections, makes TLS
handshakes, reads heads and small bodies of requests and sends answers; h11
parses. A thread of the application is taken only once these are complete, so a
client that sends slowly or not at all holds a connection and nothing else, and
that until a deadline. Endpoints that must always answer have threads of their
own. docs/adr/0027 says why this is no ready-made server.
"""

from __future__ import annotations

from vigia_service.server.limits import Limits, Reserved
from vigia_service.server.listener import listen
from vigia_service.server.server import Server
from vigia_service.server.wsgi import client_names

__all__ = ["Limits", "Reserved", "Server", "client_names", "listen"]
