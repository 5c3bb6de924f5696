"""The winners table: what the pairs of a cell say together. Ranks follow verdicts, never differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vigia_compare.findings import EQUIVALENT, NO_COMMON_HOSTS, OPEN, Finding, noted
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_text import numbers

__all__ = ["UNKNOWN", "Standing", "standings"]

UNKNOWN = (-math.inf, math.nan, math.inf)
"""The interval of a difference of which nothing is known."""


@dataclass(frozen=True)
class Standing:
    """One cell of the winners table."""

    cell: Cell
    paths: Sequence[str]
    """Paths that compete, best known first."""
    ranks: Sequence[int]
    """One more than the number of paths that are known to be better, in the order of ``paths``."""
    winner: str
    """The path that is better than every other; empty if there is none."""
    level: Sequence[str]
    """The paths that are equivalent to each other and better than all others, where no single one wins."""
    progress: float
    """Share of the evidence, of logarithms, of the pair that the cell waits for longest; 1 if decided."""
    note: str
    """What else decides: data planes in the kernel and in user space, hosts that are not shared."""
    said: str
    """The answer in words: who wins, or how far the evidence is."""
    runner_up: str = ""
    """Of the paths that a winner beats the closest; of equivalent ones none."""
    ahead_by: tuple[float, float, float] = UNKNOWN
    """Lower bound, estimate, upper bound of what the winner has before the runner-up, in the metric's unit:
    above 0 where it is better, whichever way that is."""
    since: float = 0.0
    """Unix time since which the answer holds; 0 where there is none."""

    @property
    def decided(self) -> bool:
        """Whether the cell has an answer."""
        return bool(self.winner or self.level)

    @property
    def by(self) -> str:
        """By how much who wins is ahead of whom, in words; empty where nobody wins."""
        if not self.runner_up:
            return ""
        lower, estimate, upper = self.ahead_by
        if math.isnan(estimate):
            return f"over {self.runner_up}"
        unit = MEASURES[self.cell.metric].unit
        return f"by {numbers.interval(estimate, lower, upper, unit)} over {self.runner_up}"


def standings(findings: Sequence[Finding]) -> list[Standing]:
    """Return the winners table from the verdicts on pairs that compete; the underlay does not."""
    by_cell: dict[Cell, list[Finding]] = {}
    for f in findings:
        if f.kind is Kind.CONTEST:
            by_cell.setdefault(f.cell, []).append(f)
    return [_standing(cell, pairs) for cell, pairs in sorted(by_cell.items())]


def _standing(cell: Cell, pairs: Sequence[Finding]) -> Standing:
    names = sorted({n for p in pairs for n in (p.a, p.b)})
    worse_than: dict[str, set[str]] = {n: set() for n in names}
    same_as: dict[str, set[str]] = {n: set() for n in names}
    for p in pairs:
        if p.verdict in (p.a, p.b):
            worse_than[p.a if p.verdict == p.b else p.b].add(p.verdict)
        elif p.verdict == EQUIVALENT:
            same_as[p.a].add(p.b)
            same_as[p.b].add(p.a)
    names.sort(key=lambda n: (len(worse_than[n]), -sum(n in w for w in worse_than.values()), n))
    ranks = [1 + len(worse_than[n]) for n in names]
    beaten = {n: {m for m in names if n in worse_than[m]} for n in names}
    winner = next((n for n in names if len(beaten[n]) == len(names) - 1), "")
    level = [] if winner else _level(names, worse_than, same_as, beaten)
    waits = [] if winner or level else _waits_for(names, worse_than, pairs)
    progress = 1.0 if winner or level else min((p.progress for p in waits), default=0.0)
    note = noted(n for p in pairs if p.verdict != NO_COMMON_HOSTS for n in p.notes)
    said = _said(winner, level, pairs, waits)
    second, ahead_by = _second(winner, names, ranks, pairs)
    since = _since(winner, level, pairs)
    return Standing(cell, names, ranks, winner, level, progress, note, said, second, ahead_by, since)


def _second(
    winner: str, names: Sequence[str], ranks: Sequence[int], pairs: Sequence[Finding]
) -> tuple[str, tuple[float, float, float]]:
    """Return the best of those that a winner beats, of several the closest, and how far it is ahead of it."""
    rank = dict(zip(names, ranks, strict=True))
    beaten = [(p.b if p.a == winner else p.a, _ahead(p, winner)) for p in pairs if p.verdict == winner]

    def closest(one: tuple[str, tuple[float, float, float]]) -> tuple[int, float, str]:
        name, (_, estimate, _) = one
        return rank[name], estimate if math.isfinite(estimate) else math.inf, name

    return min(beaten, key=closest, default=("", UNKNOWN)) if winner else ("", UNKNOWN)


def _ahead(pair: Finding, winner: str) -> tuple[float, float, float]:
    """Return what a winner has before the other of a pair, above 0 where it is better."""
    lower, shift, upper = pair.shift
    if (pair.measure.better == "higher") == (pair.a == winner):
        return lower, shift, upper
    return -upper, -shift, -lower


def _since(winner: str, level: Sequence[str], pairs: Sequence[Finding]) -> float:
    """Return when the last of the verdicts came that an answer is made of."""
    made_of = [
        p
        for p in pairs
        if (winner and p.verdict == winner) or (p.verdict == EQUIVALENT and {p.a, p.b} <= set(level))
    ]
    return max((p.since for p in made_of), default=0.0)


def _waits_for(
    names: Sequence[str], worse_than: dict[str, set[str]], pairs: Sequence[Finding]
) -> list[Finding]:
    """Return the pairs without a verdict that keep a cell open: the leader's, or others' if it has none."""
    unsettled = [p for p in pairs if p.verdict in (OPEN, NO_COMMON_HOSTS)]
    candidates = [n for n in names if not worse_than[n]] or list(names)
    leader = max(candidates, key=lambda n: sum((p.better or p.ahead) == n for p in pairs))
    return [p for p in unsettled if leader in (p.a, p.b)] or unsettled


def _level(
    names: Sequence[str],
    worse_than: dict[str, set[str]],
    same_as: dict[str, set[str]],
    beaten: dict[str, set[str]],
) -> list[str]:
    """Return the best paths where each is equivalent to the others, and no worse than the rest."""
    best = [n for n in names if not worse_than[n] and len(same_as[n] | beaten[n]) == len(names) - 1]
    return best if len(best) > 1 else []


def _said(winner: str, level: Sequence[str], pairs: Sequence[Finding], waits: Sequence[Finding]) -> str:
    if winner:
        return winner
    if level:
        return f"{' and '.join(level)} are equivalent"
    apart = [f"{p.a} and {p.b} share no pair of hosts" for p in pairs if p.verdict == NO_COMMON_HOSTS]
    open_pairs = [p for p in waits if p.verdict == OPEN]
    if open_pairs:
        least = min(open_pairs, key=lambda p: (p.progress, p.a, p.b))
        return "; ".join([f"not known yet: {least.said}", *apart[:1]])
    return f"not known: {apart[0]}" if apart else "not known: verdicts form a circle"
