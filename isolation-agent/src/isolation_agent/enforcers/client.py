"""Client of one node's enforcer, which holds the privilege to limit."""

from __future__ import annotations

import ssl
import time
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from isolation_agent.model.node import Amount, Count, Left, Limit, NodeState, Reported
from vigia_service.tokens import Token

__all__ = [
    "Applied",
    "EnforcerClient",
    "EnforcerError",
    "LimitRequest",
    "Refused",
    "Removed",
    "RemovedAll",
    "StaleTerm",
    "Unreachable",
]

MAX_ANSWER = 8 << 20
"""Largest answer that is read, in bytes."""

M = TypeVar("M", bound=BaseModel)


class LimitRequest(Reported):
    """Body of PUT /v1/ports/{port}/limit. burst_bytes 0 leaves the burst to the enforcer.

    Fields that are None are not sent: enforcers that do not know them refuse them.
    """

    id: str
    tenant: str
    protocol: str = "udp"
    rate_bytes_per_second: int
    burst_bytes: int = 0
    ttl_seconds: int
    packets_per_second: int | None = None
    new_flows_per_second: int | None = None
    approved_by: str | None = None
    term: int | None = None


class Pair(Reported):
    """A limit that the fast loop has set; without a destination it is on all that the port sends."""

    port: str
    tenant: str
    destination: str = ""
    rate_bytes_per_second: Count
    floor_bytes_per_second: Amount = 0.0
    severity: Count = 0
    expires_in_seconds: Left
    policed_bytes: Count = 0


class PairList(Reported):
    """Answer of GET /v1/pairs."""

    pairs: list[Pair]


class Applied(Reported):
    """Answer of PUT /v1/ports/{port}/limit."""

    port: str
    limit: Limit
    verified: bool


class Removed(Reported):
    """Answer of DELETE /v1/ports/{port}/limit."""

    port: str
    removed: bool
    verified: bool


class RemovedAll(Reported):
    """Answer of DELETE /v1/limits."""

    removed: Count


class EnforcerError(Exception):
    """A request to an enforcer failed."""


class Unreachable(EnforcerError):
    """No usable answer: whether the request took effect is unknown."""


class Refused(EnforcerError):
    """The enforcer answered with an error of its contract: nothing was changed."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code


class StaleTerm(Refused):
    """This node has taken a command of a later leader. It says nothing about the other nodes."""


class EnforcerClient:
    """Talks to one enforcer. Safe to use from several threads."""

    def __init__(
        self, node: str, url: str, token: Token, timeout: float, tls: ssl.SSLContext | None = None
    ) -> None:
        """timeout is in seconds, for connecting, for each read, and for a whole answer."""
        self.node = node
        self._timeout = timeout
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": token.header(), "Accept-Encoding": "identity"},
            timeout=timeout,
            trust_env=False,
            verify=tls or _verification(url),
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def state(self) -> NodeState:
        """Read the node's ports, signals and limits. Raises EnforcerError."""
        state = self._ask(NodeState, "GET", "/v1/state")
        if state.node != self.node:
            raise Unreachable(
                f"answers as node {state.node[:64]!r} instead of {self.node!r}; correct hosts[].url"
            )
        return state

    def pairs(self) -> PairList:
        """Read the limits of the fast loop. Raises EnforcerError."""
        return self._ask(PairList, "GET", "/v1/pairs")

    def apply(self, port: str, request: LimitRequest) -> Applied:
        """Set or extend a limit. Raises EnforcerError."""
        body = request.model_dump(exclude_none=True)
        return self._ask(Applied, "PUT", f"/v1/ports/{quote(port, safe='')}/limit", body)

    def remove(self, port: str, limit_id: str, term: int | None = None) -> Removed:
        """Remove the limit of that id, and no other. Raises EnforcerError."""
        fence = "" if term is None else f"&term={term}"
        return self._ask(
            Removed, "DELETE", f"/v1/ports/{quote(port, safe='')}/limit?id={quote(limit_id)}{fence}"
        )

    def remove_all(self, term: int | None = None) -> RemovedAll:
        """Remove every limit on the node. Raises EnforcerError."""
        return self._ask(RemovedAll, "DELETE", "/v1/limits" if term is None else f"/v1/limits?term={term}")

    def _ask(self, model: type[M], method: str, path: str, body: dict[str, Any] | None = None) -> M:
        try:
            with self._http.stream(method, path, json=body) as response:
                status, raw = response.status_code, self._read(response)
        except httpx.HTTPError as e:
            raise Unreachable(f"{method} {path}: {str(e) or type(e).__name__}") from e
        if status != httpx.codes.OK:
            raise _refusal(status, raw)
        try:
            return model.model_validate_json(raw)
        except ValidationError as e:
            first = e.errors(include_url=False, include_input=False)[0]
            field = ".".join(str(step) for step in first["loc"])
            raise Unreachable(
                f"{method} {path}: the answer is not the contract's: {field}: {first['msg']}"
            ) from e

    def _read(self, response: httpx.Response) -> bytes:
        deadline = time.monotonic() + self._timeout
        raw = bytearray()
        for chunk in response.iter_raw():
            raw += chunk
            if len(raw) > MAX_ANSWER:
                raise httpx.ReadError(f"the answer is larger than {MAX_ANSWER} bytes")
            if time.monotonic() > deadline:
                raise httpx.ReadTimeout("the answer takes too long")
        return bytes(raw)


def _verification(url: str) -> ssl.SSLContext | bool:
    """Return how to verify an enforcer without TLS of our own: nothing is read for one that has none."""
    return True if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _refusal(status: int, raw: bytes) -> EnforcerError:
    """Turn an error answer into Refused if it has the contract's shape."""
    try:
        error = from_json(raw)["error"]
        code, message = str(error["code"])[:64], str(error["message"])[:300]
    except (ValueError, KeyError, TypeError, IndexError):
        return Unreachable(f"HTTP {status} without the contract's error body")
    return (StaleTerm if code == "stale_term" else Refused)(status, code, message)
