"""Evidence that grows by the window: what each two paths have shown so far, kept over restarts."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from vigia_compare.findings import COSTS, EQUIVALENT, NO_COMMON_HOSTS, NOTES, OPEN, SAVES, Finding, leading
from vigia_compare.pairing import Apart, Side, Sides, question, sides
from vigia_compare.paths import Kind, Known
from vigia_compare.readings import Readings
from vigia_statistics.sequential import QUESTIONS, Family, LossPair, Pair, Said, Scale, Verdict

__all__ = ["FINE", "FINE_WINDOW", "NEWS", "Book", "Terms"]

_log = logging.getLogger(__name__)

FINE_WINDOW = 15.0
"""Seconds of a window in the first minutes: one scrape."""

FINE = 3600.0
"""Seconds for which a new pair takes windows of seconds, which tell three times as fast."""

NEWS = 300.0
"""Seconds for which a path is news: it is looked for at each scrape."""

MAX_SIDES = 4000
"""Pairs that are judged; what is beyond is left out, and said so in the log."""

_KEPT = 7 * 86400.0
"""Seconds for which evidence stays without a new window."""

_ENOUGH = 3
"""Recorded windows of two paths from which on they are no news: finer ones are not needed."""

_TOUCHING = 0.5
"""Seconds by which windows may overlap: clocks of rules and of scrapes are rounded."""

_RUNS = 4
"""Values that are kept of the runs of two hosts."""

VERSION = 1


@dataclass(frozen=True)
class Terms:
    """What evidence is counted under; with other terms it begins anew."""

    alpha: float
    window: float
    tenant: str
    margins: Mapping[str, float]
    """Of every metric that is compared."""

    def as_data(self) -> dict[str, Any]:
        """Return them as JSON holds them."""
        return {
            "alpha": self.alpha,
            "window": self.window,
            "tenant": self.tenant,
            "margins": dict(self.margins),
        }


@dataclass
class _Watched:
    """What is known of two paths beside the numbers."""

    side: Side
    fingerprint: str
    why: str
    """Why evidence began when it did."""
    words: str = ""
    notes: list[str] = field(default_factory=list)
    hosts: int = 0
    told: bool = True
    fine_until: float = 0.0
    """Unix time until which windows of seconds are taken; 0: never."""
    seen: float = 0.0
    """End of the newest window that was looked at for runs, Unix time."""
    runs: dict[str, list[float | None]] = field(default_factory=dict)
    """By hosts: the last run of a and of b, and those of them that have no counterpart yet."""
    shown: float = 0.0
    """Unix time at which both paths were measured last."""

    def as_data(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "side"}


class Book:
    """All evidence of a site. Belongs to one thread."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._families = {kind: Family(terms.alpha) for kind in ("contest", "cost")}
        """Costs are no contest: judging them does not take from what may be said of those."""
        self._watched: dict[str, _Watched] = {}
        self._apart: dict[tuple[Any, ...], Apart] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._paths: dict[str, float] = {}
        self.fine_seen = 0.0
        """End of the newest fine window that was taken, Unix time."""
        self._full = False

    # What is taken in

    def news(self, known: Known, now: float) -> bool:
        """Note which paths there are; return whether one of them is news."""
        there = {f"{n}\n{p}\n{known.of(n, p).fingerprint}" for n, p in known.by_node}
        self._paths = {p: self._paths.get(p, now) for p in there}
        return any(now - first < NEWS for first in self._paths.values())

    def finest(self, now: float) -> float:
        """Return how many seconds of windows of seconds are to be read; 0 where no pair takes them."""
        young = any(now - first < NEWS for first in self._paths.values())
        if not young and all(w.fine_until <= self.fine_seen for w in self._watched.values()):
            return 0.0
        return min(now - self.fine_seen, FINE if self.fine_seen else NEWS)

    def take(self, readings: Sequence[Readings], known: Known, fine: bool) -> None:
        """Take windows that are new, oldest first, and judge after each; all readings are on one grid."""
        if not readings:
            return
        found: list[Sides] = []
        for r in readings:
            compared, unlike = sides(r, known)
            found += compared
            if not fine:
                others = {k: v for k, v in self._apart.items() if v.cell.metric != r.metric}
                self._apart = others | {(u.cell, u.a, u.b): u for u in unlike}
        grid = readings[0].grid
        followed = [s for s in found if self._follow(s, grid.start, grid.window, grid.end, fine)]
        oldest = min((self._next(s) for s in followed), default=grid.end)
        for i in range(max(0, math.floor((oldest - grid.start) / grid.window)), grid.count):
            at = grid.start + i * grid.window
            taken = [s for s in followed if self._step(s, i, at, grid.window)]
            if taken:
                self._judge(at)

    def _follow(self, s: Sides, start: float, window: float, end: float, fine: bool) -> bool:
        """Return whether these windows are for this pair; begin anew where it is new or another."""
        key, measure = s.side.key, s.side.cell.metric
        watched = self._watched.get(key)
        why = "a path was configured anew" if s.since else ""
        if watched is not None and watched.fingerprint != s.fingerprint:
            # What was taken until now is of a path that is no more.
            s = replace(s, since=max(s.since, self._next(s)))
            self._forget(key)
            why = "a path was configured anew"
            _log.info("starts anew", extra={"a": s.side.a, "b": s.side.b, "metric": measure, "reason": why})
            watched = None
        if watched is None:
            watched = self._begin(s, start, window, fine, why)
            if watched is None:
                return False
        watched.words, watched.notes, watched.hosts = s.words, list(s.notes), len(s.hosts)
        watched.told = s.told
        both = np.isfinite(s.a) & np.isfinite(s.b)
        if both.any():
            watched.shown = max(watched.shown, start + float(np.flatnonzero(both)[-1]) * window)
        return (watched.fine_until > start - window) if fine else end > watched.fine_until

    def _next(self, s: Sides) -> float:
        """Return until when the windows of a pair are known, Unix time."""
        watched = self._watched[s.side.key]
        return watched.seen if s.runs else self._families[_family(s.side)].pairs[s.side.key].last

    def _begin(self, s: Sides, start: float, window: float, fine: bool, why: str) -> _Watched | None:
        """Begin with the first window of both paths as they are now; None to wait for finer windows."""
        times = start + window * np.arange(s.a.size)
        both = np.isfinite(s.a) & np.isfinite(s.b) & (times - window >= s.since - _TOUCHING)
        usable = np.flatnonzero(both)
        runs = bool(s.runs)
        if len(self._watched) >= MAX_SIDES:
            if not self._full:
                _log.warning("cannot judge every pair of paths", extra={"most": MAX_SIDES})
            self._full = True
            return None
        if not fine and s.side.cell.metric in _FINE_METRICS and usable.size < _ENOUGH:
            return None
        if not usable.size and not runs:
            return None
        first = float(times[usable[0]] - window) if usable.size else max(start - window, s.since)
        family = self._families[_family(s.side)]
        asked = question(s.side, self.terms.margins[s.side.cell.metric])
        watch = family.watch_loss if s.sent_a is not None else family.watch
        watch(s.side.key, asked, first)
        watched = _Watched(s.side, s.fingerprint, why, fine_until=first + FINE if fine else 0.0, seen=first)
        self._watched[s.side.key] = watched
        return watched

    def _step(self, s: Sides, i: int, at: float, window: float) -> bool:
        """Give one window to a pair; return whether it was taken."""
        watched = self._watched[s.side.key]
        pair = self._families[_family(s.side)].pairs[s.side.key]
        if s.runs:
            return at > watched.seen and self._run(watched, pair, s, i, at)
        if at - window < pair.last - _TOUCHING or (
            watched.fine_until and at > watched.fine_until and window < 60.0
        ):
            return False
        a, b = float(s.a[i]), float(s.b[i])
        if not (math.isfinite(a) and math.isfinite(b)):
            return False
        if isinstance(pair, LossPair):
            assert s.sent_a is not None and s.sent_b is not None  # noqa: S101 - for the type checker
            return pair.update_counts(at, a, float(s.sent_a[i]), b, float(s.sent_b[i]))
        return pair.update(at, a, b)

    @staticmethod
    def _run(watched: _Watched, pair: Pair, s: Sides, i: int, at: float) -> bool:
        """Pair each path's next run with the other's next: they never run at one time."""
        watched.seen = at
        for hosts, values in s.runs.items():
            kept = watched.runs.setdefault("\n".join(hosts), [None, None, None, None])
            for n, series in enumerate(values):
                value = float(series[i])
                if math.isfinite(value) and value != kept[n]:
                    kept[n] = kept[n + 2] = value
        done = [k for k in watched.runs.values() if k[2] is not None and k[3] is not None]
        if not done:
            return False
        floor = QUESTIONS[s.side.cell.metric].floor
        a, b = (_geometric([k[n] for k in done], floor) for n in (2, 3))
        for k in done:
            k[2] = k[3] = None
        return pair.update(at, a, b)

    def _judge(self, at: float) -> None:
        """Judge all pairs at a moment: what one may say depends on what the others show."""
        self._verdicts = {}
        for family in self._families.values():
            self._verdicts |= family.judge(at)

    # What is said

    def findings(
        self, at: float, levels: Mapping[tuple[Any, str], float], shown_after: float
    ) -> list[Finding]:
        """Return what is known of every pair that was measured after a moment.

        ``levels`` are the usual values by cell and path: ratios are told in the metric's unit by them.
        """
        self._prune(at)
        if not self._verdicts:
            self._judge(at)
        found = [
            _finding(w, self._said(w.side, self._verdicts[key]), levels)
            for key, w in self._watched.items()
            if w.told and key in self._verdicts and w.shown >= shown_after
        ]
        found += [
            Finding(u.cell, u.a, u.b, Kind.CONTEST, NO_COMMON_HOSTS, words=u.words)
            for u in self._apart.values()
        ]
        return sorted(found, key=lambda f: (f.cell, f.kind, f.a, f.b, f.scale))

    def _said(self, side: Side, by_itself: Verdict) -> Verdict:
        """Return the verdict on a cost: what the ratio of both tells, where their difference does not yet.

        Both are judged in one family, so that either may be said.
        """
        if side.kind is Kind.CONTEST or side.scale is Scale.RATIO or by_itself.said is not Said.UNKNOWN:
            return by_itself
        ratio = self._verdicts.get(replace(side, scale=Scale.RATIO).key)
        if ratio is None or ratio.adjusted_e_value <= by_itself.adjusted_e_value:
            return by_itself
        found = replace(by_itself, ahead=ratio.ahead, adjusted_e_value=ratio.adjusted_e_value)
        if ratio.said not in (Said.A, Said.B):
            return found
        # Which is more is known by the ratio; how much by the difference, which may not know that yet.
        less = (ratio.estimate < 1.0 or ratio.upper <= 1.0) and not ratio.lower >= 1.0
        ends = (-math.inf, 0.0) if less else (0.0, math.inf)
        lower, shift, upper = (
            min(max(v, ends[0]), ends[1]) for v in (found.lower, found.estimate, found.upper)
        )
        return replace(found, said=ratio.said, since=ratio.since, lower=lower, estimate=shift, upper=upper)

    def _prune(self, at: float) -> None:
        for key in [k for k, w in self._watched.items() if at - max(w.shown, w.seen) > _KEPT]:
            self._forget(key)

    def reset(self, path: str = "") -> int:
        """Forget what is known of a path, or of all; return of how many pairs."""
        keys = [k for k, w in self._watched.items() if path in ("", w.side.a, w.side.b)]
        told = sum(self._watched[k].told for k in keys)
        for key in keys:
            self._forget(key)
        return told

    def _forget(self, key: str) -> None:
        watched = self._watched.pop(key)
        self._families[_family(watched.side)].forget(key)
        self._verdicts.pop(key, None)

    # What is kept

    def as_data(self) -> dict[str, Any]:
        """Return everything as JSON holds it."""
        return {
            "version": VERSION,
            "terms": self.terms.as_data(),
            "families": {name: f.as_data() for name, f in self._families.items()},
            "watched": {k: w.as_data() for k, w in self._watched.items()},
            "paths": self._paths,
            "fine_seen": self.fine_seen,
        }

    @classmethod
    def from_data(cls, data: Any, terms: Terms) -> Self:
        """Go on where ``as_data`` stopped. Raises ValueError where data are not such, or of other terms."""
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ValueError(f"it is not of version {VERSION}")
        if data.get("terms") != terms.as_data():
            raise ValueError("it was counted with another tenant, window, confidence or margin")
        book = cls(terms)
        try:
            book._families = {n: Family.from_data(data["families"][n]) for n in book._families}
            for key, kept in data["watched"].items():
                book._watched[key] = _Watched(Side.parse(key), **kept)
            book._paths = {str(k): float(v) for k, v in data["paths"].items()}
            book.fine_seen = float(data["fine_seen"])
            book._check()
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"it is damaged: {e}") from e
        return book

    def _check(self) -> None:
        """Raise ValueError where families and what is watched do not belong together."""
        kept = {k for f in self._families.values() for k in f.pairs}
        if kept != set(self._watched) or len(kept) > MAX_SIDES:
            raise ValueError("it is damaged: pairs and numbers do not belong together")
        if not all(map(math.isfinite, (*self._paths.values(), self.fine_seen))):
            raise ValueError("it is damaged: a time is not finite")
        for key, w in self._watched.items():
            if not all(len(kept) == _RUNS for kept in w.runs.values()):
                raise ValueError("it is damaged: runs of a pair are not a, b and what waits of both")
            if not isinstance(w.notes, list) or not set(w.notes) <= set(NOTES):
                raise ValueError("it is damaged: what decides a pair beside its numbers is unknown")
            if not isinstance(w.fingerprint, str) or not all(
                isinstance(v, int | float) and math.isfinite(v) for v in (w.fine_until, w.seen, w.shown)
            ):
                raise ValueError("it is damaged: a pair lacks its times")
            if key not in self._families[_family(w.side)].pairs:
                raise ValueError("it is damaged: a pair is in another family")


_FINE_METRICS = ("rtt", "rtt_p99", "jitter")


def _family(side: Side) -> str:
    return "contest" if side.kind is Kind.CONTEST else "cost"


def _geometric(values: Iterable[float | None], floor: float) -> float:
    logs = [math.log(max(v, floor)) for v in values if v is not None]
    return math.exp(sum(logs) / len(logs))


def _finding(w: _Watched, v: Verdict, levels: Mapping[tuple[Any, str], float]) -> Finding:
    side = w.side
    words = (side.a, side.b) if side.kind is Kind.CONTEST else (SAVES, COSTS)
    said = {Said.A: words[0], Said.B: words[1], Said.EQUIVALENT: EQUIVALENT, Said.UNKNOWN: OPEN}[v.said]
    effect = (v.lower, v.estimate, v.upper)
    ratio = effect if side.scale is Scale.RATIO else None
    usual = levels.get((side.cell, side.b), math.nan)
    return Finding(
        cell=side.cell,
        a=side.a,
        b=side.b,
        kind=side.kind,
        verdict=said,
        scale=side.scale,
        since=v.since or 0.0,
        began=v.started,
        e_value=v.adjusted_e_value,
        e_equivalent=v.e_equivalent,
        needed=v.needed,
        ratio=ratio,
        shift=effect
        if ratio is None
        else (usual * (v.lower - 1.0), usual * (v.estimate - 1.0), usual * (v.upper - 1.0)),
        windows=v.windows,
        hosts=w.hosts,
        ahead=leading(side.a, side.b, side.cell.metric, v.estimate - (ratio is not None)),
        words=w.words,
        notes=tuple(w.notes),
    )
