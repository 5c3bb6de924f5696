"""The agent of a node: runs the closed list of jobs that a campaign is made of, within bounds.

POST /v1/jobs runs one to its end, POST /v1/servers starts an iperf3 server and
DELETE /v1/servers/NUMBER ends it, GET /v1/environment says what the node is,
GET /v1/associations with which IPsec associations it is, by their SPIs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from flask import Flask, Response, jsonify, request
from pydantic import ValidationError
from werkzeug.exceptions import HTTPException

import vigia_json
from vigia.campaign import jobs
from vigia.campaign.hosts import Host
from vigia.campaign.jobs import Benchmark, IperfServer, Job
from vigia.errors import VigiaError
from vigia.host import associations, environment
from vigia.nodes.settings import Agent
from vigia_json import JsonError
from vigia_service.server import client_names

__all__ = ["MAX_BODY", "Servers", "create_app"]

MAX_BODY = 16 << 10
"""Bytes of the largest request."""

_log = logging.getLogger("vigia.node")


class Refused(VigiaError):
    """A request that the agent does not serve, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Servers:
    """The iperf3 servers that are there. A campaign that was killed leaves them; they end with their time."""

    def __init__(self, host: Host, most: int) -> None:
        self._host = host
        self._most = most
        self._lock = threading.Lock()
        self._number = 0
        self._open: dict[int, tuple[IperfServer, AbstractContextManager[None], float]] = {}

    def start(self, job: IperfServer) -> int:
        """Start a server in place of one at the same address and port. Raises VigiaError."""
        with self._lock:
            now = time.monotonic()
            for number, (other, _, ends) in list(self._open.items()):
                same = (other.netns, other.address, other.port) == (job.netns, job.address, job.port)
                if same or ends < now:
                    self._end(number)
            if len(self._open) >= self._most:
                raise Refused(503, f"{self._most} servers are at work; that is the bound (jobs)")
            context = self._host.serving(job)
            context.__enter__()
            self._number += 1
            self._open[self._number] = (job, context, now + jobs.seconds(job))
            return self._number

    def end(self, number: int) -> bool:
        """End a server; False if there is none of that number."""
        with self._lock:
            return self._end(number)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            for number in list(self._open):
                self._end(number)

    def _end(self, number: int) -> bool:
        found = self._open.pop(number, None)
        if found is None:
            return False
        found[1].__exit__(None, None, None)
        return True


def create_app(settings: Agent, host: Host, servers: Servers) -> Flask:
    """Return the agent as a WSGI application."""
    app = Flask("vigia.node", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    routes = _Routes(settings, host, servers)
    app.before_request(lambda: _authorise(settings, request.environ))
    app.add_url_rule("/v1/jobs", view_func=routes.run, methods=["POST"])
    app.add_url_rule("/v1/servers", view_func=routes.serve, methods=["POST"])
    app.add_url_rule("/v1/servers/<int:number>", view_func=routes.end, methods=["DELETE"])
    app.add_url_rule("/v1/environment", view_func=routes.about)
    app.add_url_rule("/v1/associations", view_func=routes.associations)
    app.register_error_handler(VigiaError, _failed)
    app.register_error_handler(HTTPException, _refused)
    return app


class _Routes:
    def __init__(self, settings: Agent, host: Host, servers: Servers) -> None:
        self._settings = settings
        self._host = host
        self._servers = servers
        self._free = threading.BoundedSemaphore(settings.jobs)

    def run(self) -> Response:
        job = _job(self._settings)
        if isinstance(job, IperfServer):
            raise Refused(400, "a server is started by POST /v1/servers")
        with _slot(self._free, self._settings.jobs):
            _log.info("job %s", job.kind)
            return jsonify(output=self._host.run(job))

    def serve(self) -> tuple[Response, int]:
        job = _job(self._settings)
        if not isinstance(job, IperfServer):
            raise Refused(400, f"{job.kind} is not a server; send it to /v1/jobs")
        return jsonify(number=self._servers.start(job)), 201

    def end(self, number: int) -> tuple[str, int]:
        if not self._servers.end(number):
            raise Refused(404, f"there is no server {number}")
        return "", 204

    def about(self) -> Response:
        return jsonify(environment.describe(None))

    def associations(self) -> Response:
        with _slot(self._free, self._settings.jobs):
            return jsonify(associations.all_of(self._settings.namespaces, self._settings.vici))


def _failed(e: VigiaError) -> tuple[Response, int]:
    return jsonify(error=str(e)), e.status if isinstance(e, Refused) else 500


def _refused(e: HTTPException) -> tuple[Response, int]:
    return jsonify(error=e.description), e.code or 500


@contextmanager
def _slot(free: threading.BoundedSemaphore, most: int) -> Iterator[None]:
    if not free.acquire(blocking=False):
        raise Refused(503, f"{most} jobs are at work; that is the bound (jobs)")
    try:
        yield
    finally:
        free.release()


def _authorise(settings: Agent, environ: Mapping[str, Any]) -> None:
    """Raise Refused unless the client's certificate has one of the names that may send jobs."""
    if settings.tls is None:
        return
    names = client_names(environ)
    if not names & set(settings.clients):
        known = ", ".join(settings.clients)
        raise Refused(403, f"certificates of {', '.join(names) or 'nobody'} send no jobs here; {known} may")


def _job(settings: Agent) -> Job:
    raw = request.get_data()
    try:
        vigia_json.loads(raw, max_size=MAX_BODY)  # refuses what pydantic lets pass, as repeated keys
        job = jobs.adapter.validate_json(raw)
    except JsonError as e:
        raise Refused(400, str(e)) from e
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the job"
        raise Refused(400, f"{where}: {first['msg']}") from e
    if job.netns is not None and job.netns not in settings.namespaces:
        known = ", ".join(settings.namespaces) or "none"
        raise Refused(403, f'namespace "{job.netns}" is not among the namespaces of this agent: {known}')
    if not isinstance(job, Benchmark) and not any(job.address in n for n in settings.networks):
        known = ", ".join(map(str, settings.networks))
        raise Refused(403, f"address {job.address} is in none of the networks of this agent: {known}")
    return job
