"""All enforcers: read together, each with its own back-off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from isolation_agent.clock import Clock, rfc3339
from isolation_agent.config import Loop, Settings
from isolation_agent.enforcer import (
    Applied,
    EnforcerClient,
    EnforcerError,
    LimitRequest,
    NodeState,
    Refused,
    Removed,
    Unreachable,
)
from isolation_agent.metrics import Metrics

__all__ = ["Enforcer", "Fleet", "View", "open_fleet"]

_PARALLEL = 8

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Enforcer(Protocol):
    """What the controller needs of an enforcer."""

    def state(self) -> NodeState: ...
    def apply(self, port: str, request: LimitRequest) -> Applied: ...
    def remove(self, port: str, limit_id: str) -> Removed: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class View:
    """What is known of a node in this tick: a fresh state, or why there is none."""

    state: NodeState | None
    error: str = ""
    asked: bool = True  # False while the back-off holds: this tick says nothing new


@dataclass
class _Standing:
    """How a node has answered so far."""

    failures: int = 0
    retry_at: float = 0.0
    error: str = ""
    last_time: datetime | None = None


class Fleet:
    """The enforcers by node."""

    def __init__(self, enforcers: Mapping[str, Enforcer], loop: Loop, clock: Clock, metrics: Metrics) -> None:
        self._enforcers = dict(enforcers)
        self._loop = loop
        self._clock = clock
        self._metrics = metrics
        self._standing = {node: _Standing() for node in enforcers}
        self._pool: ThreadPoolExecutor | None = None

    def __contains__(self, node: object) -> bool:
        return node in self._enforcers

    @property
    def nodes(self) -> list[str]:
        """Names of all nodes."""
        return list(self._enforcers)

    def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        for enforcer in self._enforcers.values():
            enforcer.close()

    def look(self, nodes: Iterable[str]) -> dict[str, View]:
        """Read the state of these nodes, at the same time."""
        wanted = sorted(set(nodes))
        if len(wanted) < 2:
            return {node: self.look_at(node) for node in wanted}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="fleet")
        return dict(zip(wanted, self._pool.map(self.look_at, wanted), strict=True))

    def look_at(self, node: str) -> View:
        """Read one node's state, unless its back-off holds."""
        standing = self._standing.get(node)
        if standing is None:
            return View(None, f"no enforcer is configured for node {node}; add it to hosts")
        if self._clock.monotonic() < standing.retry_at:
            return View(None, standing.error, asked=False)
        return self.read(node)

    def read(self, node: str) -> View:
        """Read one node's state now."""
        standing = self._standing[node]
        try:
            state = self._call(node, "state", lambda e: e.state())
        except EnforcerError as e:
            return View(None, str(e))
        # An enforcer that repeats itself is stuck: its numbers are no evidence.
        if state.time == standing.last_time:
            return View(None, f"node {node} repeats its state of {rfc3339(state.time)}")
        standing.last_time = state.time
        return View(state)

    def apply(self, node: str, port: str, request: LimitRequest) -> Applied:
        """Set or extend a limit on a node. Raises EnforcerError."""
        return self._call(node, "apply", lambda e: e.apply(port, request))

    def remove(self, node: str, port: str, limit_id: str) -> Removed:
        """Remove a limit from a node. Raises EnforcerError."""
        return self._call(node, "remove", lambda e: e.remove(port, limit_id))

    def _call(self, node: str, operation: str, ask: Callable[[Enforcer], T]) -> T:
        enforcer = self._enforcers.get(node)
        if enforcer is None:
            raise Unreachable(f"no enforcer is configured for node {node}; add it to hosts")
        try:
            answer = ask(enforcer)
        except EnforcerError as e:
            outcome = "refused" if isinstance(e, Refused) else "unreachable"
            self._record(node, operation, outcome, str(e))
            raise
        self._record(node, operation, "ok", "")
        return answer

    def _record(self, node: str, operation: str, outcome: str, error: str) -> None:
        self._metrics.enforcer_requests.labels(operation, outcome).inc()
        self._metrics.enforcer_up.labels(node).set(outcome != "unreachable")
        standing = self._standing[node]
        if outcome != "unreachable":
            standing.failures, standing.retry_at = 0, 0.0
            return
        wait = min(self._loop.backoff * 2**standing.failures, self._loop.backoff_max)
        standing.failures = min(standing.failures + 1, 16)
        standing.retry_at = self._clock.monotonic() + wait
        standing.error = error
        if standing.failures == 1:
            _log.warning("enforcer does not answer", extra={"node": node, "err": error})


def open_fleet(settings: Settings, clock: Clock, metrics: Metrics) -> Fleet:
    """Make a client for every configured host."""
    loop = settings.config.controller
    return Fleet(
        {
            host.node: EnforcerClient(
                host.node, host.url, settings.host_tokens[host.node], loop.enforcer_timeout
            )
            for host in settings.config.hosts
        },
        loop,
        clock,
        metrics,
    )
