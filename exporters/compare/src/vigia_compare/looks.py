"""Looks at a site, shared by all who ask: questions are few, however many pages are open."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from vigia_compare.site import Alarms, Ask, Mesh, State, alarms, mesh, state
from vigia_compare.timeline import PERIODS, Timeline, timeline
from vigia_prometheus import Prometheus, PrometheusError, Sample, Unavailable

__all__ = ["ALARMS_HOLD", "HOLD", "PATIENCE", "Looks", "NotKnown", "TooMany"]

ALARMS_HOLD = 5.0
"""Seconds for which what is wrong is not asked again: as often as the service looks who hurts whom."""

HOLD = 15.0
"""Seconds for which all else is not asked again: as often as counters are scraped."""

PAST_STEP = 15.0
"""Seconds to which moments of the past are rounded, so that neighbours share an answer."""

MOST_KEPT = 64
"""Answers that are kept."""

MOST_PAST, PAST_PERIOD = 20, 60.0
"""Looks at the past that all viewers together may cause in so many seconds."""

PATIENCE = 4.0
"""Seconds that a page waits for one look."""

T = TypeVar("T")


class NotKnown(Exception):
    """Prometheus does not say; the text says why."""


class TooMany(Exception):
    """Too many looks at the past are asked for."""


@dataclass
class _Kept:
    """The answer to one look, or why there is none."""

    until: float
    value: Any = None
    problem: str = ""


class Looks:
    """What was seen last, by kind of look. Safe for threads; one look is made at a time."""

    def __init__(
        self,
        server: Callable[[], Prometheus],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``server`` opens the Prometheus in force, with a time limit of PATIENCE at most."""
        self._server = server
        self._clock = clock
        self._monotonic = monotonic
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._at_work = threading.Lock()
        self._past: list[float] = []

    def forget(self) -> None:
        """Ask anew: there is another server."""
        with self._lock:
            self._kept.clear()

    def alarms(self, at: float | None = None) -> Alarms:
        """Return what is wrong, now or at a Unix time. Raises NotKnown, TooMany."""
        moment = self._moment(at)
        return self._look(("alarms", at and moment), ALARMS_HOLD, lambda p: alarms(_ask(p, moment), moment))

    def state(self, at: float | None = None) -> State:
        """Return tenants and paths. Raises NotKnown, TooMany."""
        wrong, moment = self.alarms(at), self._moment(at)
        key = ("state", wrong.involved, at and moment)  # who begins to flood is not called well meanwhile
        return self._look(key, HOLD, lambda p: state(_ask(p, moment), wrong))

    def mesh(self, path: str = "", at: float | None = None) -> Mesh:
        """Return the matrix of a path, or of the worst of all. Raises NotKnown, TooMany."""
        moment = self._moment(at)
        return self._look(("mesh", path, at and moment), HOLD, lambda p: mesh(_ask(p, moment), moment, path))

    def timeline(self, at: float | None = None, since: str = "1h") -> Timeline:
        """Return the period before, one of PERIODS. Raises NotKnown, TooMany."""
        moment, period = self._moment(at), PERIODS[since]
        key = ("timeline", since, at and moment)
        return self._look(key, max(HOLD, period.step), lambda p: timeline(p.range, moment, period))

    def _moment(self, at: float | None) -> float:
        return self._clock() if at is None else at // PAST_STEP * PAST_STEP

    def _look(self, key: tuple[Hashable, ...], hold: float, make: Callable[[Prometheus], T]) -> T:
        found = self._known(key)
        if found is None:
            with self._turn():
                found = self._known(key)  # somebody else may have looked meanwhile
                if found is None:
                    found = self._made(key, hold, make)
        if found.problem:
            raise NotKnown(found.problem)
        value: T = found.value
        return value

    def _turn(self) -> _Turn:
        return _Turn(self._at_work)

    def _known(self, key: Hashable) -> _Kept | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.until < self._monotonic():
                return None
            self._kept.move_to_end(key)
            return kept

    def _made(self, key: tuple[Hashable, ...], hold: float, make: Callable[[Prometheus], T]) -> _Kept:
        if key[-1] is not None:
            self._count_past()
            hold = PAST_PERIOD  # the past stays as it is
        made = _Kept(0.0)
        try:
            with self._server() as prometheus:
                made.value = make(prometheus)
        except PrometheusError as e:
            made.problem, hold = str(e), min(hold, HOLD)
        made.until = self._monotonic() + hold
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return made

    def _count_past(self) -> None:
        now = self._monotonic()
        self._past = [t for t in self._past if now - t < PAST_PERIOD]
        if len(self._past) >= MOST_PAST:
            raise TooMany(f"more than {MOST_PAST} looks at the past within {PAST_PERIOD:g} s; wait a minute")
        self._past.append(now)


class _Turn:
    """A lock that is waited for as long as a page may wait."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=PATIENCE):
            raise NotKnown("another page is waiting for Prometheus; it answers slowly")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _ask(prometheus: Prometheus, at: float) -> Ask:
    """Return the questions at a moment; all of one look but the last are to be answered within PATIENCE."""
    until = time.monotonic() + PATIENCE

    def ask(expression: str) -> list[Sample]:
        if time.monotonic() > until:
            raise Unavailable(f"{prometheus.url} does not answer all questions within {PATIENCE:g} s")
        return prometheus.instant(expression, at)

    return ask
