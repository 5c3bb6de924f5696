"""Which paths of a reading are compared, and their values side by side: only between the same two hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from vigia_compare.findings import ELSEWHERE, UNLIKE, apart, by_twins, joined
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Kind, Known, PathAttributes, elements, kind
from vigia_compare.readings import Cell, Hosts, Readings
from vigia_statistics.samples import Floats
from vigia_statistics.sequential import QUESTIONS, Question, Scale

__all__ = ["Apart", "Side", "Sides", "question", "sides"]

_COST_MARGIN = 1e-6
"""Seconds: a cost below a microsecond is none."""

_BESIDE = 1.0
"""Seconds that stand for the underlay's round trip where only the difference of twins is known."""


@dataclass(frozen=True, order=True)
class Side:
    """Two paths of a cell that are compared on a scale: what evidence is kept by."""

    cell: Cell
    a: str
    b: str
    kind: Kind
    scale: Scale

    @property
    def key(self) -> str:
        """Return a text that is unique."""
        c = self.cell
        return json.dumps([c.metric, c.placement, c.machines, c.probe, self.a, self.b, self.kind, self.scale])

    @classmethod
    def parse(cls, key: str) -> Side:
        """Undo ``key``. Raises ValueError."""
        found = json.loads(key)
        if not (isinstance(found, list) and len(found) == 8 and all(isinstance(x, str) for x in found)):
            raise ValueError("a key is not a list of 8 texts")
        if found[0] not in MEASURES:
            raise ValueError("a key has an unknown metric")
        return cls(Cell(*found[:4]), found[4], found[5], Kind(found[6]), Scale(found[7]))


@dataclass(frozen=True)
class Sides:
    """The values of two paths, window by window, of the hosts that both have values of."""

    side: Side
    hosts: Sequence[Hosts]
    fingerprint: str
    """Of both paths' configurations: where it changes, evidence begins anew."""
    since: float
    """Unix time since when both are what they are; 0 where nothing else is known."""
    words: str
    notes: Sequence[str]
    """What the words say, in short."""
    a: Floats
    """Shape (grid.count,), NaN where one of both is missing. Of loss: probes lost."""
    b: Floats
    sent_a: Floats | None = None
    """Probes sent, of loss."""
    sent_b: Floats | None = None
    runs: Mapping[Hosts, tuple[Floats, Floats]] = field(default_factory=dict)
    """Of metrics that stay until the next run: values by hosts, which need not be of one window."""
    told: bool = True
    """Whether it is told by itself; otherwise its evidence serves the same two paths' difference."""


@dataclass(frozen=True)
class Apart:
    """Two paths that compete and share no hosts."""

    cell: Cell
    a: str
    b: str
    words: str


def question(side: Side, margin: float) -> Question:
    """Return what is asked of two paths."""
    asked = QUESTIONS[side.cell.metric]
    if side.scale is asked.scale:
        return replace(asked, margin=margin)
    return replace(asked, scale=side.scale, margin=_COST_MARGIN, noise=None)


def sides(readings: Readings, known: Known) -> tuple[list[Sides], list[Apart]]:
    """Return every two paths of every cell that are compared, and those that would be on common hosts."""
    found: list[Sides] = []
    unlike: list[Apart] = []
    for cell, paths in readings.cells.items():
        for a, b in combinations(sorted(paths), 2):
            shared = sorted(set(paths[a]) & set(paths[b]))
            if not shared:
                first_a, first_b = sorted(paths[a]), sorted(paths[b])
                if _kind(known, first_a[0][0], a, first_b[0][0], b) is not Kind.CONTEST:
                    continue
                if (twins := _by_twins(readings, cell, a, b, known)) is not None:
                    found.append(twins)
                else:
                    unlike.append(Apart(cell, a, b, apart(a, first_a, b, first_b)))
                continue
            found += _compared(readings, cell, a, b, shared, known)
    return found, unlike


def _kind(known: Known, src_a: str, a: str, src_b: str, b: str) -> Kind | None:
    return kind(known.of(src_a, a), known.of(src_b, b))


def _by_twins(readings: Readings, cell: Cell, a: str, b: str, known: Known) -> Sides | None:
    """Compare two paths that share no hosts by what each costs above the underlay of its own hosts.

    None where not both have twins.
    """
    of = readings.twins.get(cell, {})
    if not of.get(a) or not of.get(b):
        return None
    hosts_a, hosts_b = sorted(of[a]), sorted(of[b])
    nodes = {src for src, _ in (*hosts_a, *hosts_b)}
    parts = [
        f"{p}={known.of(s, p).fingerprint}" for p, hosts in ((a, hosts_a), (b, hosts_b)) for s, _ in hosts
    ]
    rows = [[of[p][h] for h in hosts] for p, hosts in ((a, hosts_a), (b, hosts_b))]
    planes = known.words(a, b, nodes)
    means = [_mean(v, np.logical_not(np.isfinite(v))) for v in map(np.array, rows)]
    return Sides(
        Side(cell, a, b, Kind.CONTEST, Scale.DIFFERENCE),
        [*hosts_a, *hosts_b],
        " ".join(parts),
        max(known.since(s, p) for p, hosts in ((a, hosts_a), (b, hosts_b)) for s, _ in hosts),
        joined(planes, by_twins(a, hosts_a, b, hosts_b)),
        (*_notes(planes), ELSEWHERE),
        _BESIDE + means[0],
        _BESIDE + means[1],
    )


def _compared(  # noqa: PLR0913
    readings: Readings, cell: Cell, a: str, b: str, shared: Sequence[Hosts], known: Known
) -> Iterator[Sides]:
    """Yield what is compared of two paths on the hosts that they share, once for each scale."""
    src = shared[0][0]
    of_a, of_b = known.of(src, a), known.of(src, b)
    why = kind(of_a, of_b)
    if why is None:
        return
    if why is not Kind.CONTEST and (of_a.layer == "underlay" or elements(of_b, of_a)):
        a, b, of_a, of_b = b, a, of_b, of_a  # what has more goes first, so that costs are above zero
    parts = [f"{p}={f}" for p in (a, b) for f in sorted({known.of(s, p).fingerprint for s, _ in shared})]
    since = max(known.since(s, p) for p in (a, b) for s, _ in shared)
    planes = known.words(a, b, (s for s, _ in shared))
    for scale, told in _scales(cell, why, of_a, of_b):
        side = Side(cell, a, b, why, scale)
        made = Sides(
            side,
            shared,
            " ".join(parts),
            since,
            planes,
            _notes(planes),
            *_values(readings, side, shared),
            told=told,
        )
        if MEASURES[cell.metric].rare:
            made = _counted(made, readings)
        elif MEASURES[cell.metric].runs:
            paths = readings.cells[cell]
            made = replace(made, runs={h: (paths[a][h], paths[b][h]) for h in shared})
        yield made


def _notes(planes: str) -> tuple[str, ...]:
    return (UNLIKE,) if planes else ()


def _scales(cell: Cell, why: Kind, a: PathAttributes, b: PathAttributes) -> list[tuple[Scale, bool]]:
    """Return on which scales two paths are compared, and whether each is told.

    Contests are told by ratio. Costs add up: they are differences; OpenFlow's is told as a ratio too. But an
    obvious ratio is known within a minute, where a difference of unknown spread takes many.
    """
    usual = QUESTIONS[cell.metric].scale
    if why is Kind.CONTEST or MEASURES[cell.metric].unit != "seconds":
        return [(usual, True)]
    openflow = "mode openflow" in (elements(a, b), elements(b, a))
    return [(Scale.DIFFERENCE, True), (Scale.RATIO, openflow)]


def _values(readings: Readings, side: Side, shared: Sequence[Hosts]) -> tuple[Floats, Floats]:
    """Return the means over the hosts at which both have a value in a window: geometric ones for ratios."""
    paths = readings.cells[side.cell]
    a = np.array([paths[side.a][h] for h in shared])
    b = np.array([paths[side.b][h] for h in shared])
    if side.scale is Scale.DIFFERENCE:
        a, b = _with_twins(readings, side, shared, a, b)
    missing = np.logical_not(np.isfinite(a) & np.isfinite(b))
    if side.scale is Scale.RATIO:
        floor = QUESTIONS[side.cell.metric].floor
        a, b = (np.log(np.maximum(v, floor)) for v in (a, b))
        return np.exp(_mean(a, missing)), np.exp(_mean(b, missing))
    return _mean(a, missing), _mean(b, missing)


def _with_twins(
    readings: Readings, side: Side, shared: Sequence[Hosts], a: Floats, b: Floats
) -> tuple[Floats, Floats]:
    """Put differences of twins, sent at the same moment, in place of two values where there are any.

    Of two paths above the same underlay: what each costs above it, where both are known.
    """
    twins = readings.twins.get(side.cell, {})
    if side.kind is not Kind.REFERENCE:
        nothing = np.full(a.shape[1], np.nan)
        of_a, of_b = (np.array([twins.get(p, {}).get(h, nothing) for h in shared]) for p in (side.a, side.b))
        has = (np.abs(of_a) < _BESIDE) & (np.abs(of_b) < _BESIDE)
        return np.where(has, _BESIDE + of_a, a), np.where(has, _BESIDE + of_b, b)
    for path, sign in ((side.a, 1.0), (side.b, -1.0)):
        of_path = twins.get(path, {})
        more = np.array([sign * of_path.get(h, np.full(a.shape[1], np.nan)) for h in shared])
        has = np.isfinite(more) & (np.abs(more) < _BESIDE)
        a, b = np.where(has, _BESIDE + more, a), np.where(has, _BESIDE, b)
    return a, b


def _mean(values: Floats, missing: NDArray[np.bool_]) -> Floats:
    count = np.logical_not(missing).sum(axis=0)
    total = np.where(missing, 0.0, np.nan_to_num(values)).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _counted(made: Sides, readings: Readings) -> Sides:
    """Put counts in place of ratios: summed over the hosts at which both sent probes in a window."""
    ratios, sent = readings.cells[made.side.cell], readings.sent[made.side.cell]
    pair = (made.side.a, made.side.b)
    probes = np.array([[sent[p][h] for h in made.hosts] for p in pair])
    lost = np.array([[ratios[p][h] for h in made.hosts] for p in pair]) * probes
    both = (np.isfinite(lost) & (probes > 0.0)).all(axis=0)
    sent_a, sent_b = np.where(both, probes, 0.0).sum(axis=1)
    lost_a, lost_b = np.where(both.any(axis=0), np.where(both, lost, 0.0).sum(axis=1), np.nan)
    return replace(made, a=lost_a, b=lost_b, sent_a=sent_a, sent_b=sent_b)
