"""What sequential verdicts promise, measured: run by make bench-verdicts, in short form by the gate.

Paths of which the truth is known are watched minute by minute, by the code that a pair runs, and each look
is judged. A row is met when the 95 % bound of the simulation is: one-sided Clopper and Pearson for rates,
order statistics for medians.
"""

# ruff: noqa: T201 - this prints a table

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy import special

from vigia_statistics import quantile_interval
from vigia_statistics.samples import Floats
from vigia_statistics.sequential import QUESTIONS, closed, grounds
from vigia_statistics.sequential.counts import Counts
from vigia_statistics.sequential.engine import Engine
from vigia_statistics.sequential.level import BLOCK, Levels

from .worlds import BUSY, DAY, HEAVY, INDEPENDENT, MILD, STRONG, World, losses, windows

ALPHA = 0.05
NEEDED = math.log(1.0 / ALPHA)
RTT = QUESTIONS["rtt"]
MOST = 600.0
"""Logarithm of an e-value that is surely enough, and no overflow."""
MONTH = 30
"""Days."""
PAGE = Path(__file__).parents[4] / "docs/concepts/statistics.md"
MARKS = ("<!-- made by make bench-verdicts -->", "<!-- end -->")


@dataclass(frozen=True)
class Row:
    """One requirement, or a figure beside them."""

    what: str
    measured: float
    bound: float
    """Upper, 95 %."""
    limit: float | None
    """None: told, not required."""
    n: int
    unit: str

    @property
    def met(self) -> bool:
        """Whether the bound is within the limit."""
        return self.limit is None or self.bound <= self.limit


@dataclass(frozen=True)
class Case:
    """One simulation; ``run(size, rng)`` returns one number a replication."""

    what: str
    run: Callable[[int, np.random.Generator], Floats]
    unit: str
    """%: shares of ones; min, h: medians of times; a month: means of counts."""
    limit: float | None
    size: int
    chunk: int = 1000
    """Replications of a task: many, so that arithmetic is most of what is done."""


def engine(size: int) -> Engine:
    """What a Pair on round trips runs."""
    return Engine(size, RTT.bound, RTT.noise)


def changing(e: Engine, at: float) -> list[grounds.Ground]:
    """Return the grounds that a window may have changed: after the first hour these are the minutes' alone."""
    known = e.grounds()
    return known if at <= 3600.0 else known[:1]


@dataclass(frozen=True)
class Named:
    """Identical paths: was either ever named?"""

    world: World
    days: float

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        e, named = engine(size), np.zeros(size)
        for at, (a, b) in windows(self.world, rng, size, int(self.days * DAY)):
            e.update(at, a - b)
            named = np.maximum(named, grounds.against(changing(e, at), 0.0) >= NEEDED)
        return named


@dataclass(frozen=True)
class Missed:
    """Was the true effect ever outside the interval?"""

    world: World
    days: float
    effect: float = math.log(1.1)

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        e, missed = engine(size), np.zeros(size)
        for at, (a, b) in windows(self.world, rng, size, int(self.days * DAY)):
            e.update(at, a - b + self.effect)
            lower, upper = grounds.covering(changing(e, at), ALPHA)
            missed = np.maximum(missed, (self.effect < lower) | (upper < self.effect))
        return missed


@dataclass(frozen=True)
class Alike:
    """Paths that differ by just the margin: were they ever said to be equivalent?"""

    world: World
    days: float

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        e, said = engine(size), np.zeros(size)
        for at, (a, b) in windows(self.world, rng, size, int(self.days * DAY)):
            e.update(at, a - b + RTT.bound)
            said = np.maximum(said, grounds.within(e.grounds(), RTT.bound) >= NEEDED)
        return said


@dataclass(frozen=True)
class AnyNamed:
    """Three identical paths on six metrics, eighteen hypotheses: was any path ever named on any?"""

    world: World
    days: float
    metrics: int = 6

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        each = 3 * self.metrics
        e, named = engine(size * each), np.zeros(size)
        for at, paths in windows(self.world, rng, size * self.metrics, int(self.days * DAY), paths=3):
            e.update(at, (paths - np.roll(paths, 1, axis=0)).ravel())
            log_e = grounds.against(e.grounds(), 0.0).reshape(each, size)
            for i in np.flatnonzero((log_e.max(axis=0) >= NEEDED) & (named == 0.0)):
                named[i] = float(closed(np.exp(log_e[:, i])).max() >= 1.0 / ALPHA)
        return named


@dataclass(frozen=True)
class Found:
    """Minutes until the better one of two is named; infinite where it is not by ``minutes``."""

    world: World
    ratio: float
    minutes: int
    fine: int = 60

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        e, found = engine(size), np.full(size, np.inf)
        for at, (a, b) in windows(self.world, rng, size, self.minutes, fine=self.fine):
            e.update(at, a - b + math.log(self.ratio))
            found = np.where(grounds.against(e.grounds(), 0.0) >= NEEDED, np.minimum(found, at / 60.0), found)
        return found


@dataclass(frozen=True)
class FoundAmongMany:
    """Minutes until the worst of three paths is named on the first of six metrics, all corrected together.

    It is worse on ``differing`` of the metrics; the other two paths are alike.
    """

    world: World
    ratio: float
    minutes: int
    differing: int
    metrics: int = 6

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        each, found = 3 * self.metrics, np.full(size, np.inf)
        e = engine(size * each)
        worse = np.zeros((3, self.metrics, size))
        worse[2, : self.differing] = math.log(self.ratio)
        asked = 2 * self.metrics  # the third path against the second, on the first metric
        for at, paths in windows(self.world, rng, size * self.metrics, self.minutes, paths=3):
            values = paths + worse.reshape(3, -1)
            e.update(at, (values - np.roll(values, 1, axis=0)).ravel())
            log_e = np.minimum(grounds.against(e.grounds(), 0.0).reshape(each, size), MOST)
            for i in np.flatnonzero((log_e[asked] >= NEEDED) & np.isinf(found)):
                if closed(np.exp(log_e[:, i]))[asked] >= 1.0 / ALPHA:
                    found[i] = at / 60.0
            if np.isfinite(found).all():
                break
        return found


@dataclass(frozen=True)
class Equivalent:
    """Hours until identical paths are said to be equivalent."""

    world: World
    minutes: int

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        e, found = engine(size), np.full(size, np.inf)
        for at, (a, b) in windows(self.world, rng, size, self.minutes):
            e.update(at, a - b)
            sure = grounds.within(e.grounds(), RTT.bound) >= NEEDED
            found = np.where(sure, np.minimum(found, at / 3600.0), found)
        return found


@dataclass(frozen=True)
class LossNamed:
    """Minutes until a path is named by its losses, and infinite; or whether it ever is, where both lose
    alike."""

    rates: tuple[float, float]
    minutes: int
    sent: int = 3000

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        c, found = Counts(size, QUESTIONS["loss"].bound), np.full(size, np.inf)
        sent = np.full(size, float(self.sent))
        for at, a, b in losses(rng, size, self.minutes, self.rates, self.sent):
            c.update(at, a, sent, b, sent)
            named = np.maximum(*c.log_e()) >= NEEDED
            found = np.where(named, np.minimum(found, at / 60.0), found)
        return np.isfinite(found) * 1.0 if self.rates[0] == self.rates[1] else found


@dataclass(frozen=True)
class LossMissed:
    """Was the true difference of losses ever outside the interval?"""

    rates: tuple[float, float]
    minutes: int

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        c, missed, sent = Counts(size, QUESTIONS["loss"].bound), np.zeros(size), np.full(size, 3000.0)
        truth = self.rates[0] - self.rates[1]
        for at, a, b in losses(rng, size, self.minutes, self.rates):
            c.update(at, a, sent, b, sent)
            lower, upper = grounds.covering(c.grounds(), ALPHA)
            missed = np.maximum(missed, (truth < lower) | (upper < truth))
        return missed


@dataclass(frozen=True)
class Alarms:
    """False alarms of a detector in the month after its day of learning; or hours until a change is found."""

    correlation: float
    rate: float = 0.1
    ratio: float = 1.0
    days: int = MONTH + 1
    noise: float = 0.3
    """Of a minute."""

    def __call__(self, size: int, rng: np.random.Generator) -> Floats:
        levels, state = Levels(size, int(86400.0 / BLOCK), RTT.bound), rng.normal(size=size)
        r, phase = self.correlation, rng.uniform(0.0, 2.0 * math.pi, size)
        bound = math.log(30.0 * 86400.0 / BLOCK / self.rate)
        alarmed, found = np.zeros(size), np.full(size, np.inf)
        changed = int(2.5 * 86400.0 / BLOCK)
        for block in range(self.days * 96):
            values = np.zeros(size)
            for _ in range(int(BLOCK // 60)):
                state = r * state + math.sqrt(1.0 - r * r) * rng.normal(size=size)
                values += self.noise * state * 60.0 / BLOCK
            values += 0.35 * np.sin(2.0 * math.pi * block / 96.0 + phase)
            levels.update(values + (math.log(self.ratio) if block >= changed else 0.0))
            alarm = levels.log_e >= bound
            alarmed += alarm
            if self.ratio == 1.0:  # it would be reset: what has been found begins anew from nothing
                levels.sums = np.where(alarm, -np.inf, levels.sums)
            found = np.where(alarm, np.minimum(found, (block + 1 - changed) / 4.0), found)
        return alarmed if self.ratio == 1.0 else found


def cases(short: bool) -> list[Case]:
    """Return what is measured; the short form watches a day, and fewer pairs."""
    days, n, few = (1.0, 500, 700) if short else (float(MONTH), 1000, 1000)
    span = "a day" if short else f"{days:g} days"
    week, weeks, part = (days, span, n) if short else (7.0, "7 days", 700)
    out = [
        Case(f"identical, {w.name}: ever named in {span}", Named(w, days), "%", 5.0, n)
        for w in (INDEPENDENT, MILD, STRONG, BUSY)
    ]
    out.append(Case(f"identical, {HEAVY.name}: ever named in {weeks}", Named(HEAVY, week), "%", 5.0, part))
    out += [
        Case(f"10 % apart, {w.name}: ever outside the interval in {weeks}", Missed(w, week), "%", 5.0, part)
        for w in (MILD, BUSY)
    ]
    out += [
        Case(
            f"3 identical paths x 6 metrics, {MILD.name}: any ever named in {'a day' if short else '3 days'}",
            AnyNamed(MILD, days if short else 3.0),
            "%",
            5.0,
            600 if short else 1200,
            chunk=300,
        ),
        Case(
            f"apart by the margin, {MILD.name}: ever equivalent in {weeks}", Alike(MILD, week), "%", 5.0, part
        ),
        Case("a factor of 10 named after", Found(INDEPENDENT, 10.0, 10), "min", 1.0, few),
        Case("35 % named after", Found(INDEPENDENT, 1.35, 120), "min", 30.0, few),
        Case("10 % named after", Found(INDEPENDENT, 1.1, 720), "min", 240.0, few),
        Case(
            f"losses 0.5 % and 0.5 %, in bursts: ever named in {weeks}",
            LossNamed((0.005, 0.005), int(week * DAY)),
            "%",
            5.0,
            part,
        ),
        Case(
            f"losses 0.3 % and 0.5 %, in bursts: ever outside the interval in {weeks}",
            LossMissed((0.003, 0.005), int(week * DAY)),
            "%",
            5.0,
            part,
        ),
        Case("losses 0.1 % and 1 % named after", LossNamed((0.001, 0.01), 600), "min", 60.0, few),
    ]
    alarms = 100 if short else 300
    out += [
        Case(f"detector, correlation {r:g}, daily cycle: false alarms", Alarms(r), "a month", 0.1, alarms)
        for r in ((0.8,) if short else (0.0, 0.5, 0.8))
    ]
    if not short:
        out += _beside(few, alarms)
    return out


def _beside(n: int, alarms: int) -> list[Case]:
    """Figures that nothing is required of: what correlation costs, what fine windows gain."""
    minutes = [
        Case(
            f"{100.0 * (ratio - 1.0):.0f} % named after, {w.name}",
            Found(w, ratio, longest),
            "min",
            None,
            n // 2,
        )
        for w, ratio, longest in (
            (MILD, 1.35, 600),
            (STRONG, 1.35, 1800),
            (MILD, 1.1, 2400),
            (STRONG, 1.1, 7200),
        )
    ]
    coarse = Found(INDEPENDENT, 1.35, 240, fine=0)
    return [
        *(
            Case(f"a factor of 10 named after, {w.name}", Found(w, 10.0, 60), "min", None, n)
            for w in (MILD, STRONG)
        ),
        Case("35 % named after, no windows under a minute", coarse, "min", None, n),
        *_among_many(n),
        *minutes,
        Case("identical named equivalent within 5 % after", Equivalent(INDEPENDENT, 4320), "h", None, n // 2),
        *(
            Case(
                f"detector, correlation {r:g}: 35 % found after",
                Alarms(r, ratio=1.35, days=5),
                "h",
                None,
                n // 5,
            )
            for r in (0.0,)
        ),
        *(
            Case(
                f"detector, correlation {r:g}, noise of 3 %, daily cycle: false alarms",
                Alarms(r, noise=0.03),
                "a month",
                0.1,
                alarms,
            )
            for r in (0.0, 0.8)
        ),
        *(
            Case(
                f"detector, correlation 0, noise of 3 %: {100.0 * (ratio - 1.0):.0f} % found after",
                Alarms(0.0, ratio=ratio, days=5, noise=0.03),
                "h",
                None,
                n // 5,
            )
            for ratio in (1.1, 1.5, 10.0)
        ),
    ]


def _among_many(n: int) -> list[Case]:
    """What the correction for eighteen verdicts costs in time."""
    family = "3 paths x 6 metrics, one worse on"
    return [
        Case(
            f"{family} {differing} by {name}: named after",
            FoundAmongMany(INDEPENDENT, ratio, longest, differing),
            "min",
            None,
            n // 4,
            chunk=125,
        )
        for ratio, name, longest in (
            (10.0, "a factor of 10", 60),
            (1.35, "35 %", 600),
            (1.1, "10 %", 2400),
        )
        for differing in (1, 6)
    ]


def _task(case: Case, size: int, seed: tuple[int, ...]) -> Floats:
    return case.run(size, np.random.default_rng(seed))


def measure(asked: Sequence[tuple[int, Case]], seed: int, processes: int) -> list[Row]:
    """Run numbered cases, in chunks on ``processes`` processors. Seed and number alone decide what is drawn."""
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        tasks = [
            [
                pool.submit(_task, case, min(case.chunk, case.size - first), (seed, i, first))
                for first in range(0, case.size, case.chunk)
            ]
            for i, case in asked
        ]
        out = []
        for (_, case), parts in zip(asked, tasks, strict=True):
            out.append(row(case, np.concatenate([p.result() for p in parts])))
            print(_line(out[-1]), file=sys.stderr, flush=True)
        return out


def row(case: Case, values: Floats) -> Row:
    """Return what was measured, with its bound."""
    n = values.size
    if case.unit == "%":
        hits = int(values.sum())
        bound = 1.0 if hits == n else float(special.betaincinv(hits + 1, n - hits, 0.95))
        return Row(case.what, 100.0 * hits / n, 100.0 * bound, case.limit, n, case.unit)
    if case.unit == "a month":
        # Poisson: of a count, the exact bound of Garwood.
        count = float(values.sum())
        bound = float(special.gammaincinv(count + 1.0, 0.95)) / n
        return Row(case.what, count / n, bound, case.limit, n, case.unit)
    finite = np.where(np.isfinite(values), values, 1e9)
    found = quantile_interval(finite, 0.5, 0.90)
    middle, bound = (math.inf if v >= 1e9 else v for v in (found.estimate, found.upper))
    return Row(case.what, middle, bound, case.limit, n, case.unit)


def _line(r: Row) -> str:
    limit = "" if r.limit is None else f"{r.limit:g} {r.unit}"
    word = "" if r.limit is None else "met" if r.met else "MISSED"
    return f"{r.what:76} {r.measured:9.4g} {r.bound:9.4g} {r.unit:8} {r.n:6d} {limit:14} {word}"


def table(rows: Sequence[Row]) -> str:
    """Return rows for docs/concepts/statistics.md."""
    lines = ["| what | measured | 95 % bound | required | n | |", "|---|--:|--:|--:|--:|---|"]
    for r in rows:
        limit = "" if r.limit is None else f"{r.limit:g} {r.unit}"
        word = "" if r.limit is None else "met" if r.met else "MISSED"
        lines.append(
            f"| {r.what} | {_figure(r.measured)} {r.unit} | {_figure(r.bound)} {r.unit} | {limit} | {r.n} | {word} |"
        )
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:.0f}" if 1000.0 <= value < math.inf else f"{value:.3g}"


def write(page: Path, rows: Sequence[Row]) -> None:
    """Put the table between the page's marks."""
    before, begin, rest = page.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise SystemExit(f"cannot write {page}: it lacks {MARKS[0]} or {MARKS[1]}")
    page.write_text(f"{before}{begin}\n{table(rows)}\n{end}{after}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each requirement with what was measured; 1 where one is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="A day and fewer pairs: half a minute.")
    parser.add_argument("--only", default="", help="Cases that hold these words.")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--json", action="store_true", help="Print data.")
    parser.add_argument("--write", action="store_true", help="Put the table into the page.")
    asked = parser.parse_args(arguments)
    chosen = [(i, c) for i, c in enumerate(cases(asked.short)) if asked.only in c.what]
    print(f"{'':76} {'measured':>9} {'95 %':>9} {'':8} {'n':>6} required", file=sys.stderr)
    rows = measure(chosen, asked.seed, asked.processes)
    if asked.json:
        sys.stdout.write(json.dumps([{**asdict(r), "met": r.met} for r in rows], default=str) + "\n")
    if asked.write:
        write(PAGE, rows)
    return os.EX_OK if all(r.met for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
