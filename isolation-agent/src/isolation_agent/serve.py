"""The agent as a service: gunicorn with one worker, whose threads answer requests beside the controller."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import selectors
import signal
import socket
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker

from isolation_agent.clock import SystemClock
from isolation_agent.config import Settings, load_settings
from isolation_agent.errors import AgentError
from isolation_agent.service.agent import Agent
from isolation_agent.service.connection import Connection
from isolation_agent.storage.audit import AuditLog
from isolation_agent.storage.store import Store
from isolation_agent.web.app import create_app
from vigia_config import ConfigError

__all__ = ["serve"]

_log = logging.getLogger(__name__)

_GRACE = 5
_BACKLOG = 128
_CONNECTIONS = 512
_STALLED = 30
_PR_SET_PDEATHSIG = 1
_ACCEPT_LATER = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EMFILE, errno.ENFILE)


def serve(config_path: Path) -> int:
    """Run the agent until it is told to stop; returns the exit code. Raises ConfigError or AgentError."""
    settings = load_settings(config_path)
    os.umask(0o027)
    with ExitStack() as undo:
        listener = listen(settings)
        undo.callback(listener.close)
        check_storage(settings)
        undo.pop_all()
    host, port = listener.getsockname()[:2]
    _log.info("listening", extra={"address": f"{host}:{port}", "config": str(settings.path)})
    if not _is_loopback(host) and settings.config.tls is None:
        _log.warning(
            "bearer tokens travel in clear text; configure tls, or listen on loopback behind a proxy with TLS"
        )
    try:
        _Supervisor(_Service(settings, listener.detach())).run()
    except SystemExit as e:
        return 0 if e.code in (0, None) else 1
    return 0


def listen(settings: Settings) -> socket.socket:
    """Open the listening socket. Raises AgentError."""
    host, port = settings.config.bind
    where = f"listen: {settings.config.listen}"
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind)
    except OSError as e:
        raise AgentError(f"{where}: is not an address of this machine: {e.strerror}; write HOST:PORT") from e
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as e:
        sock.close()
        if e.errno == errno.EADDRINUSE:
            raise AgentError(
                f"{where}: is in use; stop the process that holds it or choose another address"
            ) from e
        raise AgentError(f"{where}: cannot listen: {e.strerror}; choose another address") from e
    return sock


def check_storage(settings: Settings) -> None:
    """Open database and audit log once, and leave nothing behind if one of them fails. Raises AgentError."""
    paths = {"database": settings.database_path, "audit_log": settings.audit_path}
    files = {field: path for field, path in paths.items() if path is not None}
    for field, path in files.items():
        if not path.parent.is_dir():
            raise AgentError(
                f"{field}: {path}: there is no directory {path.parent}; create it or choose another path"
            )
    made = [path for path in files.values() if not path.exists()]
    try:
        store = Store(settings.database_url, replica=settings.replica)
        try:
            AuditLog(settings.audit_path, SystemClock(), store.audit_anchor()).close()
        finally:
            store.close()
    except AgentError:
        for path in made:
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
        raise


def _certificate(settings: Settings) -> dict[str, str]:
    """Tell gunicorn that requests come by TLS; the agent makes the handshakes itself."""
    tls = settings.config.tls
    return {"certfile": str(tls.cert_file), "keyfile": str(tls.key_file)} if tls else {}


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


class _Service(BaseApplication):
    """Gunicorn's view of the agent. The agent itself is made in the worker, after the fork."""

    def __init__(self, settings: Settings, fd: int) -> None:
        self.settings = settings
        self.agent: Agent | None = None
        self._fd = fd
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn's options; its files and environment variables are not read."""
        for key, value in {
            "bind": f"fd://{self._fd}",
            "workers": 1,
            "worker_class": _Worker,
            "threads": self.settings.config.limits.threads,
            "worker_connections": _CONNECTIONS,
            "keepalive": 0,
            "timeout": _STALLED,
            "graceful_timeout": _GRACE,
            "logger_class": _Log,
            "proc_name": "isolation-agent",
            "post_fork": _end_with_master,
            **_certificate(self.settings),
            "worker_exit": _stop_agent,
        }.items():
            self.cfg.set(key, value)

    def load(self) -> Any:
        """Make and start the agent in a new worker, on the newest configuration that is whole."""
        try:
            self.settings = load_settings(self.settings.path)
        except (ConfigError, AgentError) as e:
            _log.error("configuration is broken, running on the one from the start", extra={"err": str(e)})
        try:
            self.agent = Agent(self.settings)
            self.agent.start()
        except AgentError as e:
            _log.error("cannot start", extra={"err": str(e)})
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR) from e
        return create_app(self.agent)


class _Supervisor(Arbiter):
    """Gunicorn's master, without the signals that would change the number of controllers."""

    def handle_hup(self) -> None:
        """Let the worker reload; it goes on as it was if the configuration is broken."""
        self.kill_workers(signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Ignore the request for one more worker."""
        _log.warning("ignored: there is exactly one worker")

    handle_ttou = handle_usr2 = handle_ttin


class _Worker(ThreadWorker):
    """Gunicorn's worker, with deadlines for clients and reload on SIGHUP."""

    app: _Service
    _lock: threading.RLock

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._silent: list[Connection] = []  # connected, nothing sent so far

    def init_signals(self) -> None:
        """Handle SIGHUP beside gunicorn's signals."""
        super().init_signals()
        signal.signal(signal.SIGHUP, self._reload)
        signal.siginterrupt(signal.SIGHUP, False)

    def _reload(self, _number: int, _frame: FrameType | None) -> None:
        agent = self.app.agent
        if agent is not None:
            agent.request_reload()

    def accept(self, server: Any, listener: Any) -> None:
        """Take a connection, against the clock from its first moment."""
        try:
            sock, client = listener.accept()
        except OSError as e:
            if e.errno not in _ACCEPT_LATER:
                raise
            return
        seconds = self.app.settings.config.limits.request_time
        connection = Connection(self.cfg, sock, client, server, seconds)
        connection.tls = self.app.agent.settings.tls_server if self.app.agent is not None else None
        self.nr_conns += 1
        self._silent.append(connection)
        with self._lock:
            self.poller.register(
                sock, selectors.EVENT_READ, partial(self.on_client_socket_readable, connection)
            )

    def handle(self, conn: Any) -> Any:
        """Answer a request, once the client has shown who it is."""
        try:
            conn.secure()
        except OSError as e:  # ssl.SSLError is one
            _log.debug("handshake failed", extra={"err": str(e)})
            return False, conn
        return super().handle(conn)

    def murder_keepalived(self) -> None:
        """Close connections on which nothing arrives; gunicorn calls this at least once a second."""
        super().murder_keepalived()
        self._silent = [c for c in self._silent if not c.initialized]
        for connection in self._silent[:]:
            if time.monotonic() - connection.opened > connection.seconds:
                self._silent.remove(connection)
                with self._lock, contextlib.suppress(KeyError, ValueError, OSError):
                    self.poller.unregister(connection.sock)
                self.nr_conns -= 1
                connection.close()


class _Log(Logger):
    """Sends gunicorn's messages where the agent's go."""

    def setup(self, cfg: Any) -> None:
        """Leave the handlers to the root logger."""
        self.error_log.propagate = True
        debug = logging.getLogger().isEnabledFor(logging.DEBUG)
        self.error_log.setLevel(logging.DEBUG if debug else logging.WARNING)

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        """Requests are counted, not logged."""

    def reopen_files(self) -> None:
        """There are no files."""

    def close_on_exec(self) -> None:
        """There are no files."""


def _end_with_master(_master: object, _worker: object) -> None:
    """Let the kernel end the worker when the master dies, so that a new agent can take over at once."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop_agent(_master: object, worker: Any) -> None:
    agent = worker.app.agent
    if agent is not None:
        agent.stop()
