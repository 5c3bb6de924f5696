"""What is said of two paths: the same words on the page, in JSON, in series and on the command line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vigia_compare.measures import MEASURES, Measure
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell, Hosts
from vigia_statistics.sequential import Scale
from vigia_text import numbers

__all__ = [
    "COSTS",
    "ELSEWHERE",
    "EQUIVALENT",
    "NOTES",
    "NO_COMMON_HOSTS",
    "OPEN",
    "SAVES",
    "UNLIKE",
    "Finding",
    "apart",
    "by_twins",
    "joined",
    "leading",
    "noted",
    "spelled",
]

EQUIVALENT = "equivalent"
OPEN = "not known yet"
NO_COMMON_HOSTS = "no common hosts"
COSTS = "costs"
SAVES = "saves"

UNLIKE = "kernel against user space"
ELSEWHERE = "other hosts, by twins"
NOTES = (UNLIKE, ELSEWHERE)
"""What else decides a verdict."""

_NO_HOSTS = "share no pair of hosts"

_SHOWN = 3
"""Pairs of hosts that are spelled out."""


@dataclass(frozen=True)
class Finding:
    """Two paths of a cell."""

    cell: Cell
    a: str
    b: str
    kind: Kind
    verdict: str
    """Of paths that compete the better one's name; else COSTS or SAVES: a is worse or better than b, which is
    without. EQUIVALENT, OPEN, NO_COMMON_HOSTS."""
    scale: Scale = Scale.RATIO
    """How the effect was computed: as a over b, or as a minus b."""
    since: float = 0.0
    """Unix time since which the verdict holds; 0 where there is none."""
    began: float = 0.0
    """Unix time since which evidence is counted; 0 where there is none."""
    e_value: float = 0.0
    """Evidence for a difference, after the correction for all that is judged together."""
    e_equivalent: float = 0.0
    """Evidence for a difference below the margin, corrected likewise."""
    needed: float = 20.0
    """The e-value that makes a verdict."""
    ratio: tuple[float, float, float] | None = None
    """Lower bound, estimate, upper bound of a over b; None where the difference was computed."""
    shift: tuple[float, float, float] = (-math.inf, math.nan, math.inf)
    """The same of a minus b, in the metric's unit; by the usual value of b where the ratio was computed."""
    windows: int = 0
    """Minutes in which both were measured, or pairs of runs."""
    hosts: int = 0
    """Pairs of hosts that both paths share."""
    ahead: str = ""
    """The path that is better by the estimate, sure or not; empty if neither is."""
    words: str = ""
    """What else decides the outcome, such as a data plane in user space."""
    notes: Sequence[str] = ()
    """The same in short: UNLIKE, ELSEWHERE."""

    @property
    def measure(self) -> Measure:
        """The metric."""
        return MEASURES[self.cell.metric]

    @property
    def progress(self) -> float:
        """Share of the evidence that is there, of logarithms, 0 to 1; of what is further, if either is."""
        if self.verdict not in (OPEN, NO_COMMON_HOSTS):
            return 1.0
        most = max(self.e_value, self.e_equivalent)
        return min(1.0, math.log(most) / math.log(self.needed)) if most > 1.0 else 0.0

    @property
    def better(self) -> str:
        """The path that is known to be better; empty if neither is."""
        if self.verdict in (EQUIVALENT, OPEN, NO_COMMON_HOSTS):
            return ""
        return {COSTS: self.b, SAVES: self.a}.get(self.verdict, self.verdict)

    @property
    def _cost(self) -> str:
        """What a has above b, with its interval."""
        if math.isnan(self.shift[1]):
            return f"nothing is known yet of {self.a} above {self.b}"
        lower, shift, upper = self.shift
        return f"{self.a} has {numbers.interval(shift, lower, upper, self.measure.unit)} above {self.b}"

    @property
    def said(self) -> str:
        """The answer in words."""
        if self.verdict == NO_COMMON_HOSTS:
            return self.words
        if self.verdict == EQUIVALENT:
            return f"{self.a} and {self.b} are equivalent"
        if self.kind is not Kind.CONTEST and self.scale is Scale.DIFFERENCE:
            return self._cost
        if self.better:
            return f"{self.better} is better than {self.b if self.better == self.a else self.a}"
        return self._so_far

    @property
    def _so_far(self) -> str:
        alike = self.e_equivalent > max(self.e_value, 1.0)
        so_far = f"e = {spelled(self.e_equivalent if alike else self.e_value)} of {self.needed:g} needed"
        if alike:
            return f"{self.a} and {self.b} look alike, {so_far}"
        if not self.ahead:
            return f"neither {self.a} nor {self.b} is ahead, {so_far}"
        return f"{self.ahead} is ahead of {self.b if self.ahead == self.a else self.a}, {so_far}"


def leading(a: str, b: str, metric: str, shift: float) -> str:
    """Return which of two paths is better by the estimate of a minus b; empty if neither is."""
    if not shift or math.isnan(shift):
        return ""
    return a if (shift < 0.0) == (MEASURES[metric].better == "lower") else b


def spelled(e_value: float) -> str:
    """Return an e-value in two digits or whole, never rounded up: 19.9 of 20 is not enough."""
    if e_value >= 1e4:
        return f"1e{math.floor(math.log10(e_value))}"
    scale = 1.0 if e_value >= 10.0 else 10.0
    return f"{math.floor(e_value * scale) / scale:g}"


def apart(a: str, hosts_a: Sequence[Hosts], b: str, hosts_b: Sequence[Hosts]) -> str:
    """Return why two paths that share no hosts cannot be compared, and what would tell."""
    return (
        f"{a} ({_hosts(hosts_a)}) and {b} ({_hosts(hosts_b)}) {_NO_HOSTS}: hosts and technology "
        f"cannot be told apart; {b} between {_host(hosts_a[0])} as well, or twins of both on the underlay, "
        "would tell"
    )


def by_twins(a: str, hosts_a: Sequence[Hosts], b: str, hosts_b: Sequence[Hosts]) -> str:
    """Return how two paths that share no hosts are compared all the same."""
    return (
        f"{a} ({_hosts(hosts_a)}) and {b} ({_hosts(hosts_b)}) {_NO_HOSTS}: what each costs above the "
        "underlay of its own hosts is compared, by twins; faster processors make that less as well"
    )


def joined(*words: str) -> str:
    """Return what is said beside a verdict, as one text."""
    return "; ".join(w for w in words if w)


def noted(notes: Iterable[str]) -> str:
    """Return the label that says in short what else decides a verdict, or the verdicts of several pairs."""
    given = set(notes)
    return ", ".join(n for n in NOTES if n in given)


def _hosts(hosts: Sequence[Hosts]) -> str:
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return ", ".join(_host(h) for h in hosts[:_SHOWN]) + more


def _host(hosts: Hosts) -> str:
    return f"{hosts[0]}-{hosts[1]}"
