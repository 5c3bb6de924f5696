"""All enforcers: read together, each with its own back-off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from isolation_agent.clock import Clock, rfc3339
from isolation_agent.config import Loop, Settings
from isolation_agent.enforcers.client import (
    Applied,
    EnforcerClient,
    EnforcerError,
    LimitRequest,
    PairList,
    Refused,
    Removed,
    RemovedAll,
    StaleTerm,
    Unreachable,
)
from isolation_agent.errors import NotLeader
from isolation_agent.metrics import Metrics
from isolation_agent.model.node import NodeState, View

__all__ = ["Enforcer", "Fleet", "open_fleet"]

_PARALLEL = 8
_ROUNDS = 3
"""Timeouts that nodes that have not failed before may take together."""
_NOT_ASKED = "not asked in this turn: others have taken its time"

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Enforcer(Protocol):
    """What the controller needs of an enforcer."""

    def state(self) -> NodeState: ...
    def pairs(self) -> PairList: ...
    def apply(self, port: str, request: LimitRequest) -> Applied: ...
    def remove(self, port: str, limit_id: str, term: int | None = None) -> Removed: ...
    def remove_all(self, term: int | None = None) -> RemovedAll: ...
    def close(self) -> None: ...


@dataclass
class _Standing:
    """How a node has answered so far."""

    failures: int = 0
    retry_at: float = 0.0
    error: str = ""
    last_time: datetime | None = None
    supports: frozenset[str] = frozenset()
    term: int = 0  # highest that it has seen
    stale: bool = False  # it has refused ours since


class Fleet:
    """The enforcers by node."""

    def __init__(self, enforcers: Mapping[str, Enforcer], loop: Loop, clock: Clock, metrics: Metrics) -> None:
        self._enforcers = dict(enforcers)
        self._loop = loop
        self._clock = clock
        self._metrics = metrics
        self._standing = {node: _Standing() for node in enforcers}
        self._pool: ThreadPoolExecutor | None = None
        self._held: Callable[[], bool] = lambda: True
        self._term_for: Callable[[str], int] = lambda _node: 0
        self._beat: Callable[[], None] = lambda: None

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
        """Read the state of these nodes, some at the same time.

        However many do not answer, it takes a few timeouts: who is not asked in time is asked in the next
        look.
        """
        return self._in_time(
            self.look_at, lambda n: View(None, self._error(n) or _NOT_ASKED, asked=False), nodes
        )

    def _in_time(
        self, ask: Callable[[str], T], late: Callable[[str], T], nodes: Iterable[str]
    ) -> dict[str, T]:
        """Ask nodes, those that answer first, and then for a timeout more those that did not answer before.

        Of these the ones that wait longest come first: if they answer again, all of them are asked at once.
        """
        failed: dict[str, float] = {}
        rest: list[tuple[bool, str]] = []
        for node in set(nodes):
            standing = self._standing.get(node)
            if standing is not None and standing.failures:
                failed[node] = standing.retry_at
            else:
                rest.append((standing is None or standing.last_time is None, node))
        answers: dict[str, T] = {}
        for some, rounds in (
            ([n for _, n in sorted(rest)], _ROUNDS),
            (sorted(failed, key=failed.__getitem__), 1),
        ):
            until = self._clock.monotonic() + rounds * self._loop.enforcer_timeout

            def one(node: str, until: float = until) -> T:
                known = node in self._standing
                return late(node) if known and self._clock.monotonic() >= until else ask(node)

            answers |= zip(some, self._together(one, some), strict=True)
        return answers

    def _error(self, node: str) -> str:
        return self._standing[node].error

    def due(self, nodes: Iterable[str]) -> list[str]:
        """Return those of these nodes whose back-off is over."""
        now = self._clock.monotonic()
        return [n for n in nodes if n in self._standing and now >= self._standing[n].retry_at]

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
        standing.last_time, standing.supports = state.time, state.supports
        standing.term, standing.stale = state.term, False
        return View(state)

    def pairs(self) -> dict[str, PairList | EnforcerError]:
        """Read the limits of the fast loop of all nodes, at the same time."""

        def one(node: str) -> PairList | EnforcerError:
            try:
                return self._call(node, "pairs", lambda e: e.pairs())
            except EnforcerError as e:
                return e

        wanted = self.nodes
        return dict(zip(wanted, self._together(one, wanted), strict=True))

    def accused(self, nodes: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the ports that the fast loops of these nodes hold back, each for the node of a victim.

        It says nothing of a node's health: an enforcer that cannot tell shows no complaints.
        """

        def one(node: str) -> frozenset[str]:
            try:
                return frozenset(p.port for p in self._enforcers[node].pairs().pairs)
            except EnforcerError:
                return frozenset()

        wanted = sorted(set(nodes) & set(self._enforcers))
        return dict(zip(wanted, self._together(one, wanted), strict=True))

    def lead(
        self,
        term_for: Callable[[str], int],
        held: Callable[[], bool],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Carry the node's term in every command, and send none while held says no.

        beat is called, in the caller's thread, after each answer of several nodes, or in place of one.
        """
        self._term_for, self._held, self._beat = term_for, held, beat

    def terms(self) -> dict[str, int]:
        """Return the highest term that each node has seen, of those that know what that is."""
        return {n: s.term for n, s in self._standing.items() if "term" in s.supports}

    @property
    def stale(self) -> set[str]:
        """Nodes that have refused a command since they were read: a later leader had commanded them."""
        return {n for n, s in self._standing.items() if s.stale}

    def _fence(self, node: str) -> int | None:
        """Return the term to send, if the enforcer knows what that is. Raises NotLeader."""
        if not self._held():
            raise NotLeader("the lease has run out; no command is sent")
        standing = self._standing.get(node)
        return self._term_for(node) if standing is not None and "term" in standing.supports else None

    def apply(self, node: str, port: str, request: LimitRequest) -> Applied:
        """Set or extend a limit on a node. Raises EnforcerError or NotLeader."""
        fenced = request.model_copy(update={"term": self._fence(node)})
        return self._call(node, "apply", lambda e: e.apply(port, fenced))

    def remove(self, node: str, port: str, limit_id: str) -> Removed:
        """Remove a limit from a node. Raises EnforcerError or NotLeader."""
        term = self._fence(node)
        return self._call(node, "remove", lambda e: e.remove(port, limit_id, term))

    def remove_all(self, nodes: Iterable[str]) -> dict[str, int | EnforcerError]:
        """Remove every limit from these nodes, in the order and the time of a look.

        Returns how many, or why not.
        """

        def one(node: str) -> int | EnforcerError:
            try:
                return self._call(node, "remove_all", lambda e: e.remove_all(self._fence(node))).removed
            except EnforcerError as e:
                return e

        return self._in_time(one, lambda _n: Unreachable(_NOT_ASKED), set(nodes) & set(self._enforcers))

    def _together(self, ask: Callable[[str], T], nodes: list[str]) -> Iterator[T]:
        if len(nodes) < 2:
            yield from map(ask, nodes)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="fleet")
        for answer in self._pool.map(ask, nodes):
            self._beat()
            yield answer

    def _call(self, node: str, operation: str, ask: Callable[[Enforcer], T]) -> T:
        enforcer = self._enforcers.get(node)
        if enforcer is None:
            raise Unreachable(f"no enforcer is configured for node {node}; add it to hosts")
        try:
            answer = ask(enforcer)
        except EnforcerError as e:
            outcome = "refused" if isinstance(e, Refused) else "unreachable"
            self._record(node, operation, outcome, str(e))
            self._standing[node].stale |= isinstance(e, StaleTerm)
            raise
        except NotLeader:
            raise  # about this replica, not about the node
        except Exception as e:  # whatever one node makes of us, the others must not suffer from it
            _log.exception("cannot use the answer of an enforcer", extra={"node": node})
            unusable = f"{operation}: the answer cannot be used: {type(e).__name__}"
            self._record(node, operation, "unreachable", unusable)
            raise Unreachable(unusable) from e
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
            _log.warning("cannot reach an enforcer", extra={"node": node, "err": error})


def open_fleet(settings: Settings, clock: Clock, metrics: Metrics) -> Fleet:
    """Make a client for every configured host."""
    loop = settings.config.controller
    return Fleet(
        {
            host.node: EnforcerClient(
                host.node,
                host.url,
                settings.host_tokens[host.node],
                loop.enforcer_timeout,
                settings.tls_client,
            )
            for host in settings.config.hosts
        },
        loop,
        clock,
        metrics,
    )
