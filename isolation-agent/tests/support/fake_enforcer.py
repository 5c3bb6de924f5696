"""A peer for the agent: an enforcer that speaks the contract over a real loopback socket.

Its kernel is a dictionary with expiries. Faults are injected per operation, so
that tests see what the agent does when the peer is slow, wrong, or gone.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "enforcer-token-0123456789abcdef"

Answer = tuple[int, Any]


class Clock(Protocol):
    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...


@dataclass
class KernelLimit:
    id: str
    rate: int
    burst: int
    expires: float
    protocol: str = "udp"
    policed: int = 0
    packets: int | None = None
    new_flows: int | None = None


@dataclass
class Port:
    port: str
    tenant: str
    guarantee: int | None = 5_000_000
    ceiling: int | None = 25_000_000
    pps_guarantee: int | None = None
    attached: bool = True
    offered: float | None = 0.0
    flood_detected_at: datetime | None = None
    flood_last_seen_at: datetime | None = None
    limit: KernelLimit | None = None
    workload: str = ""


@dataclass
class Fault:
    """What goes wrong with one operation, for so many requests (None: until removed)."""

    action: Callable[[str], Answer | None] | str
    left: int | None = 1


@dataclass
class Call:
    operation: str
    port: str
    body: dict[str, Any] | None
    at: float


@dataclass
class FakeEnforcer:
    clock: Clock
    node: str = "lb1"
    ports: dict[str, Port] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)  # every limit that was ever in force, in order
    pairs: list[dict[str, Any]] = field(default_factory=list)  # limits of the fast loop
    frozen_time: str | None = None
    supports: frozenset[str] = frozenset()  # beyond capping UDP
    complete: bool | None = None  # whether it says that all ports are listed; None: it says nothing
    term: int = 0
    poll: float = 0.02  # seconds between two looks whether it is to stop

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self.connections: set[socket.socket] = set()
        self._answers = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self._kept: socket.socket | None = None
        self.start()

    # The server

    def start(self) -> None:
        """Listen, on the port of the last time if there was one."""
        handler = type("Handler", (_Handler,), {"enforcer": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._let_go()
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(self.poll,), daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Stop listening, and keep the port: connections to it are refused until it is listened at again."""
        self.stop()
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", self._port))

    def _let_go(self) -> None:
        if self._kept is not None:
            self._kept.close()
        self._kept = None

    def stop(self) -> None:
        """Stop listening: connections are refused from now on."""
        self._let_go()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None
        with self._lock:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self.connections.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    # What tests do to it

    def add(self, port: str, tenant: str, **extra: Any) -> Port:
        self.ports[port] = Port(port, tenant, **extra)
        return self.ports[port]

    def flood(self, port: str, bytes_per_second: float = 50_000_000) -> None:
        """The tenant floods, and the kernel sees it."""
        with self._lock:
            p = self.ports[port]
            p.offered = bytes_per_second
            p.flood_detected_at = p.flood_detected_at or self.clock.now()
            p.flood_last_seen_at = None

    def calm(self, port: str) -> None:
        """The flood is over; the kernel remembers it."""
        with self._lock:
            p = self.ports[port]
            p.offered = 1000.0
            p.flood_last_seen_at = self.clock.now()

    def break_next(
        self, operation: str, action: Callable[[str], Answer | None] | str, left: int | None = 1
    ) -> None:
        """Let requests of an operation go wrong.

        action is a function of the port that returns an answer, or one of
        "drop" (close without an answer, nothing done), "lose" (do it, then
        close without an answer), "garbage" and "huge".
        """
        self.faults[operation] = Fault(action, left)

    def refuse(self, operation: str, status: int, code: str, left: int | None = 1) -> None:
        self.break_next(operation, lambda _port: (status, _error(code, f"told to refuse with {code}")), left)

    def limit_of(self, port: str) -> KernelLimit | None:
        with self._lock:
            return self._current(self.ports[port])

    def count(self, operation: str) -> int:
        return sum(c.operation == operation for c in self.calls)

    # The contract

    def handle(self, method: str, target: str, token: str, raw: bytes) -> Answer | str:
        parts = urlsplit(target)
        steps = [unquote(s) for s in parts.path.strip("/").split("/")]
        with self._lock:
            if token != f"Bearer {TOKEN}":
                return 401, _error("unauthorized", "a valid token is needed")
            operation, port = _route(method, steps)
            body = json.loads(raw) if raw else None
            self.calls.append(Call(operation, port, body, self.clock.monotonic()))
            fault = self._fault(operation)
            if isinstance(fault, str):
                if fault == "lose":
                    self._do(operation, port, body, parse_qs(parts.query))
                return fault
            planned = fault(port) if fault else None
            return planned or self._do(operation, port, body, parse_qs(parts.query))

    def _fault(self, operation: str) -> Callable[[str], Answer | None] | str | None:
        fault = self.faults.get(operation)
        if fault is None:
            return None
        if fault.left is not None:
            fault.left -= 1
            if fault.left <= 0:
                del self.faults[operation]
        return fault.action

    def _do(self, operation: str, port: str, body: Any, query: dict[str, list[str]]) -> Answer:
        if operation in ("state", "pairs"):
            return 200, self._state() if operation == "state" else {"pairs": self.pairs, "peers": []}
        term = int((body or {}).get("term") or query.get("term", ["0"])[0])
        if "term" in self.supports and term < self.term:
            return 409, _error("stale_term", f"term {term} is older than {self.term}")
        self.term = max(self.term, term)
        if operation == "remove_all":
            return self._remove_all()
        if operation == "apply":
            return self._apply(port, body)
        if operation == "remove":
            return self._remove(port, query.get("id", [""])[0])
        return 404, _error("not_found", "no such route")

    def _state(self) -> dict[str, Any]:
        self._answers += 1
        now = self.clock.now() + timedelta(microseconds=self._answers)
        whole = {} if self.complete is None else {"complete": self.complete}
        extra = {"supports": sorted(self.supports), "term": self.term} if self.supports else {}
        return {
            **extra,
            **whole,
            "node": self.node,
            "time": self.frozen_time or _instant(now),
            "ports": [self._view(p) for p in self.ports.values()],
        }

    def _view(self, p: Port) -> dict[str, Any]:
        return {
            "port": p.port,
            "tenant": p.tenant,
            "device": p.port[-8:],
            "workload": p.workload,
            "attached": p.attached,
            "hook": "tcx",
            "guarantee_bytes_per_second": p.guarantee,
            "ceiling_bytes_per_second": p.ceiling,
            "pps_guarantee": p.pps_guarantee,
            "offered": None
            if p.offered is None
            else {
                "udp_bytes_per_second": p.offered,
                "udp_packets_per_second": p.offered / 1000,
                "window_seconds": 1.0,
            },
            "signals": {
                "flood_score": 85 if p.flood_detected_at else 0,
                "udp_packets": 30000,
                "udp_destination_ports": 900,
                "udp_reply_ratio": 0.0,
                "flood_detected_at": _instant(p.flood_detected_at),
                "flood_last_seen_at": _instant(p.flood_last_seen_at),
            },
            "limit": self._limit_view(self._current(p)),
        }

    def _limit_view(self, limit: KernelLimit | None) -> dict[str, Any] | None:
        if limit is None:
            return None
        return {
            "id": limit.id,
            "protocol": limit.protocol,
            "rate_bytes_per_second": limit.rate,
            "burst_bytes": limit.burst,
            "expires_in_seconds": limit.expires - self.clock.monotonic(),
            **({"packets_per_second": limit.packets} if limit.packets else {}),
            **({"new_flows_per_second": limit.new_flows} if limit.new_flows else {}),
            "policed_bytes": limit.policed,
            "policed_packets": limit.policed // 1000,
        }

    def _current(self, p: Port) -> KernelLimit | None:
        if p.limit is not None and p.limit.expires <= self.clock.monotonic():
            p.limit = None  # the kernel's own expiry
        return p.limit

    def _apply(self, port: str, body: dict[str, Any]) -> Answer:
        p = self.ports.get(port)
        if p is None:
            return 404, _error("unknown_port", f"no port {port}")
        refusal = self._refusal(p, body)
        if refusal is not None:
            return refusal
        expires = self.clock.monotonic() + body["ttl_seconds"]
        p.limit = KernelLimit(
            body["id"],
            body["rate_bytes_per_second"],
            body["burst_bytes"] or 100_000,
            expires,
            body["protocol"],
            packets=body.get("packets_per_second"),
            new_flows=body.get("new_flows_per_second"),
        )
        if not self.ids or self.ids[-1] != body["id"]:
            self.ids.append(body["id"])
        return 200, {"port": port, "limit": self._limit_view(p.limit), "verified": True}

    def _refusal(self, p: Port, body: dict[str, Any]) -> Answer | None:
        current = self._current(p)
        known = {"id", "tenant", "protocol", "rate_bytes_per_second", "burst_bytes", "ttl_seconds"}
        more = {
            "term": {"term"},
            "packets": {"packets_per_second", "new_flows_per_second"},
            "below_floor": {"approved_by"},
        }
        allowed = known.union(*(more.get(s, set()) for s in self.supports))
        if not known <= set(body) <= allowed:
            return 400, _error("bad_body", f"fields {sorted(body)}")
        if not 1 <= body["ttl_seconds"] <= 60:
            return 400, _error("bad_field", f"ttl_seconds {body['ttl_seconds']} is out of range; use 1 to 60")
        conflicts = {
            "tenant_mismatch": body["tenant"] != p.tenant,
            "no_contract": p.guarantee is None,
            "below_floor": body["rate_bytes_per_second"] < (p.guarantee or 0) and not body.get("approved_by"),
            "not_attached": not p.attached,
            "other_limit": current is not None and current.id != body["id"],
        }
        code = next((c for c, holds in conflicts.items() if holds), None)
        return (409, _error(code, f"port {p.port}")) if code else None

    def _remove_all(self) -> Answer:
        removed = sum(self._current(p) is not None for p in self.ports.values())
        for p in self.ports.values():
            p.limit = None
        return 200, {"removed": removed}

    def _remove(self, port: str, limit_id: str) -> Answer:
        p = self.ports.get(port)
        if p is None:
            return 404, _error("unknown_port", f"no port {port}")
        current = self._current(p)
        if current is None:
            return 200, {"port": port, "removed": False, "verified": True}
        if current.id != limit_id:
            return 409, _error("other_limit", f"limit {current.id} is in force")
        p.limit = None
        return 200, {"port": port, "removed": True, "verified": True}


def _route(method: str, steps: list[str]) -> tuple[str, str]:
    if method == "GET" and steps == ["v1", "state"]:
        return "state", ""
    if method == "GET" and steps == ["v1", "pairs"]:
        return "pairs", ""
    if method == "DELETE" and steps == ["v1", "limits"]:
        return "remove_all", ""
    if len(steps) == 4 and steps[:2] == ["v1", "ports"] and steps[3] == "limit":
        return {"PUT": "apply", "DELETE": "remove"}.get(method, "unknown"), steps[2]
    return "unknown", ""


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _instant(value: datetime | None) -> str | None:
    return None if value is None else value.strftime("%Y-%m-%dT%H:%M:%S.%f") + "789Z"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    enforcer: FakeEnforcer

    def setup(self) -> None:
        super().setup()
        with self.enforcer._lock:
            self.enforcer.connections.add(self.connection)

    def finish(self) -> None:
        with self.enforcer._lock:
            self.enforcer.connections.discard(self.connection)
        super().finish()

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        token = self.headers.get("Authorization", "")
        answer = self.enforcer.handle(self.command, self.path, token, raw)
        if answer == "huge":
            self._send(200, b"[" + b" " * (9 << 20) + b"]")
        elif answer == "garbage":
            self._send(200, b"<html>not JSON</html>")
        elif isinstance(answer, str):
            self.close_connection = True
        else:
            self._send(answer[0], json.dumps(answer[1]).encode())

    do_GET = do_PUT = do_DELETE = _serve

    def _send(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
