"""The service: a loop that evaluates, and a web server that shows what it found."""

from __future__ import annotations

import html
import json
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client.exposition import choose_encoder

from vigia_compare import report
from vigia_compare.config import Config
from vigia_compare.errors import CompareError
from vigia_compare.evaluation import Evaluation, evaluate
from vigia_compare.exposition import Metrics
from vigia_compare.prometheus import Prometheus
from vigia_config import ConfigError, load

__all__ = ["Service", "run"]

_log = logging.getLogger(__name__)

STALE = 3.0
"""Evaluations older than this many intervals are withdrawn: old news must not look like news."""

_REQUEST_TIME = 10.0
_MOST_REQUESTS = 64


class Service:
    """Evaluates in one thread and remembers the newest evaluation."""

    def __init__(self, path: Path, config: Config, clock: Callable[[], float] = time.time) -> None:
        self.metrics = Metrics()
        self._path = path
        self._config = config
        self._client = config.tls.client() if config.tls else None
        self._clock = clock
        self.server_tls = config.tls.server() if config.tls else None
        """TLS of the listener."""
        self._wake = threading.Event()
        self._reload = threading.Event()
        self._stop = threading.Event()
        self._beat = time.monotonic()
        self._newest: Evaluation | None = None
        self._problem = "no evaluation so far"
        self.metrics.reloaded(True)
        self.metrics.window.set(config.window)

    @property
    def newest(self) -> Evaluation | None:
        """The newest evaluation that is not stale."""
        return self._newest

    @property
    def problem(self) -> str:
        """Why the last evaluation failed; empty if it did not."""
        return self._problem

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._config

    def alive(self) -> bool:
        """Whether the loop still takes its turns: an evaluation asks some 20 times."""
        return time.monotonic() - self._beat < self._config.every + 30 * self._config.timeout + 30.0

    def run(self) -> None:
        """Evaluate until stopped."""
        while not self._stop.is_set():
            self._beat = time.monotonic()
            if self._reload.is_set():
                self._reload.clear()
                self.reload()
            self.turn()
            self._wake.wait(self._config.every)
            self._wake.clear()

    def turn(self) -> None:
        """Evaluate once; a failure is recorded and leaves the last evaluation until it is stale."""
        begin = time.monotonic()
        try:
            with Prometheus(self._config.prometheus, self._config.timeout, tls=self._client) as prometheus:
                found = evaluate(prometheus, self._config, self._clock())
        except CompareError as e:
            self._failed(str(e))
            self.metrics.prometheus_up.set(0)
        except Exception:
            _log.exception("an evaluation failed")
            self._failed("an evaluation failed; see the log")
        else:
            self._newest, self._problem = found, ""
            self.metrics.findings.show(found)
            self.metrics.prometheus_up.set(1)
            self.metrics.evaluations.labels("ok").inc()
            self.metrics.last.set(found.at)
        finally:
            self.metrics.duration.set(time.monotonic() - begin)

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            _log.warning(problem)
        self._problem = problem
        self.metrics.evaluations.labels("error").inc()
        newest = self._newest
        if newest is not None and self._clock() - newest.at > STALE * self._config.every:
            self._newest = None
            self.metrics.findings.show(None)

    def request_reload(self) -> None:
        """Reload before the next evaluation, which starts now; safe in a signal handler."""
        self._reload.set()
        self._wake.set()

    def reload(self) -> str:
        """Read the configuration again; return what is wrong with it, and then keep the old one."""
        try:
            new = load(self._path, Config)
            if new.listen != self._config.listen:
                raise ConfigError(f"{self._path}: listen: changed; restart the program for that")
            if (new.tls is None) != (self._config.tls is None):
                raise ConfigError(f"{self._path}: tls: switched on or off; restart the program for that")
            client, server = (new.tls.client(), new.tls.server()) if new.tls else (None, None)
        except ConfigError as e:
            _log.error("configuration not reloaded: %s", e)
            self.metrics.reloaded(False)
            return str(e)
        self._config, self._client, self.server_tls = new, client, server
        self.metrics.window.set(new.window)
        self.metrics.reloaded(True)
        _log.info("configuration reloaded")
        return ""

    def stop(self) -> None:
        """End the loop."""
        self._stop.set()
        self._wake.set()


def run(path: Path) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or CompareError."""
    config = load(path, Config)
    service = Service(path, config)
    server = make_server(service, config.listen)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    signal.signal(signal.SIGHUP, lambda *_: service.request_reload())
    loop = threading.Thread(target=service.run, name="evaluate", daemon=True)
    loop.start()
    _log.info("listening on %s", config.listen)
    with server:
        server.serve_forever(poll_interval=0.2)
    service.stop()
    loop.join(timeout=5.0)
    _log.info("stopped")
    return 0


class _Server(ThreadingHTTPServer):
    """Bounded in requests at a time."""

    daemon_threads = True
    request_queue_size = 64
    service: Service

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily, service: Service) -> None:
        self.address_family = family
        self.service = service
        self._free = threading.BoundedSemaphore(_MOST_REQUESTS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service who we are."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Refuse a request while too many are being answered."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request; the handshake is made here, where a slow client holds up nobody else."""
        try:
            if self.service.server_tls is not None:
                request.settimeout(_REQUEST_TIME)
                try:
                    request = self.service.server_tls.wrap_socket(request, server_side=True)
                except OSError:  # ssl.SSLError is one
                    _log.debug("a handshake failed", exc_info=True)
                    self.shutdown_request(request)
                    return
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""
        _log.debug("a request failed", exc_info=True)


def make_server(service: Service, listen: str) -> _Server:
    """Open the listening socket. Raises CompareError."""
    host, _, port = listen.rpartition(":")
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        return _Server((str(address[0]), int(address[1])), socket.AddressFamily(family), service)
    except OSError as e:
        raise CompareError(
            f"listen: {listen}: cannot listen: {e.strerror}; choose another address or stop what holds it"
        ) from e


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_TIME
    protocol_version = "HTTP/1.0"
    server_version = "vigia-compare"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a page."""
        page = {
            "/": self._landing,
            "/metrics": self._metrics,
            "/-/healthy": self._healthy,
            "/-/ready": self._ready,
            "/v1/comparisons": self._comparisons,
        }.get(self.path.partition("?")[0])
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, "no such page; see /\n")
        else:
            page()

    def do_POST(self) -> None:
        """Reload."""
        if self.path != "/-/reload":
            self._answer(HTTPStatus.NOT_FOUND, "no such page; POST only to /-/reload\n")
            return
        problem = self.server.service.reload()
        status = HTTPStatus.INTERNAL_SERVER_ERROR if problem else HTTPStatus.OK
        self._answer(status, f"{problem}\n" if problem else "reloaded\n")

    def _healthy(self) -> None:
        ok = self.server.service.alive()
        text = "healthy\n" if ok else "not healthy: the loop has stopped taking turns\n"
        self._answer(HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _ready(self) -> None:
        """Ready once the first evaluation has been tried: Prometheus being away is no fault of ours."""
        tried = self.server.service.problem != "no evaluation so far"
        text = "ready\n" if tried else "not ready: no evaluation so far\n"
        self._answer(HTTPStatus.OK if tried else HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _metrics(self) -> None:
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._answer(HTTPStatus.OK, encode(self.server.service.metrics.registry), content_type)

    def _comparisons(self) -> None:
        newest = self.server.service.newest
        if newest is None:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{self.server.service.problem}\n")
        else:
            self._answer(HTTPStatus.OK, json.dumps(report.as_json(newest)), "application/json")

    def _landing(self) -> None:
        service = self.server.service
        shown = report.as_text(service.newest) if service.newest else f"not yet: {service.problem}"
        self._answer(HTTPStatus.OK, _PAGE.format(text=html.escape(shown)), "text/html; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: str | bytes, kind: str = "text/plain; charset=utf-8") -> None:
        raw = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>vigia-compare</title>
<style>body{{font:15px/1.4 system-ui;margin:2em;color:#222}}pre{{font:13px/1.35 monospace}}</style>
<h1>vigia-compare</h1><p>Which path is better, and is the difference real.
<a href="/metrics">metrics</a> <a href="/v1/comparisons">comparisons (JSON)</a>
<a href="/-/healthy">healthy</a> <a href="/-/ready">ready</a></p><pre>{text}</pre></html>
"""
