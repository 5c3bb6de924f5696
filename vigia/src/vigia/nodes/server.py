"""The agent as a service: gunicorn with one worker, in which every job has a thread."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication

from vigia.campaign.hosts import LocalHost
from vigia.nodes.agent import Servers, create_app
from vigia.nodes.settings import Agent

__all__ = ["serve"]

_SPARE = 16  # threads for requests that are no jobs
_STALLED = 60  # seconds without a sign of life of the worker


class _Service(BaseApplication):
    def __init__(self, settings: Agent) -> None:
        self._settings = settings
        self._servers = Servers(LocalHost(settings.probe), settings.jobs)
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn's options; its files and environment variables are not read."""
        options: dict[str, Any] = {
            "bind": f"{self._settings.listen}:{self._settings.port}",
            "workers": 1,
            "worker_class": "gthread",
            "threads": self._settings.jobs + _SPARE,
            "keepalive": 0,
            "timeout": _STALLED,
            "graceful_timeout": 5,
            "proc_name": "vigia-node",
            "worker_exit": self._end_servers,
        }
        if self._settings.tls:
            options |= {"certfile": str(self._settings.tls.cert_file), "ssl_context": self._context}
        for key, value in options.items():
            self.cfg.set(key, value)

    def _context(self, _config: object, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        assert self._settings.tls is not None  # noqa: S101 - only set with it
        return self._settings.tls.server()

    def _end_servers(self, _arbiter: object, _worker: object) -> None:
        self._servers.close()

    def load(self) -> Any:
        """Return the application."""
        return create_app(self._settings, LocalHost(self._settings.probe), self._servers)


def serve(settings: Agent) -> None:
    """Serve until the process is told to end. Raises vigia_config.ConfigError."""
    if settings.tls:
        settings.tls.server()  # say what is wrong before anything runs
    _Service(settings).run()
