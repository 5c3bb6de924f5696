"""The agent as a service: the web server's threads answer requests beside the controller's loop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from isolation_agent.config import Settings, load_settings
from isolation_agent.errors import AgentError
from isolation_agent.service.agent import Agent
from isolation_agent.web.app import create_app
from isolation_agent.web.routes import webhook
from vigia_service.exits import Exit
from vigia_service.look import Service, assumed
from vigia_service.ops import HEALTH
from vigia_service.server import Limits, Reserved, Server, listen
from vigia_service.watchdog import Watchdog, web_server_hung

__all__ = ["serve"]

_log = logging.getLogger(__name__)


def serve(config_path: Path) -> int:
    """Run the agent until it is told to stop; returns the exit code. Raises ConfigError or ServiceError."""
    settings = load_settings(config_path)
    os.umask(0o027)
    listener = listen(settings.config.listen)
    with contextlib.closing(listener):
        with _files_of_a_failed_start_removed(settings):
            agent = Agent(settings)
        limits = settings.config.limits
        server = Server(
            create_app(agent),
            [listener],
            Limits(
                threads=limits.threads,
                head_seconds=limits.request_time,
                body_bytes=limits.body_bytes + 1,  # the application refuses one more, in its own words
                body_seconds=limits.request_time,
            ),
            tls=lambda: agent.settings.tls_server,
            reserved=[Reserved.for_paths(HEALTH), Reserved.for_paths([webhook.PATH], limits.threads)],
            signals={signal.SIGHUP: agent.request_reload},
        )
        (address,) = server.addresses
        _log.info("listening", extra={"address": address, "config": str(settings.path)})
        if settings.config.pages is None:
            _log.info(assumed("pages", Service.PAGES))
        if not _is_loopback(address) and settings.config.tls is None:
            _log.warning(
                "bearer tokens travel in clear text; "
                "configure tls, or listen on loopback behind a proxy with TLS"
            )
        agent.on_damage = server.stop  # whatever starts this program again has a new database begun
        agent.start()
        try:
            with Watchdog(lambda: web_server_hung(server) or agent.stuck()):
                server.run()
        finally:
            agent.stop()
    return Exit.FAILED if agent.damage else Exit.OK


@contextlib.contextmanager
def _files_of_a_failed_start_removed(settings: Settings) -> Iterator[None]:
    """Leave nothing behind if the database or the audit log cannot be opened. Raises AgentError."""
    paths = {"database": settings.database_path, "audit_log": settings.audit_path}
    files = {field: path for field, path in paths.items() if path is not None}
    for field, path in files.items():
        if not path.parent.is_dir():
            raise AgentError(
                f"{field}: {path}: there is no directory {path.parent}; create it or choose another path"
            )
    made = [path for path in files.values() if not path.exists()]
    try:
        yield
    except AgentError:
        for path in made:
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
        raise


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "[::1]", "unix:"))
