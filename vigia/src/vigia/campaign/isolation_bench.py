"""Benchmark of isolation: python -m vigia.campaign.isolation_bench, run by make bench-isolation.

A victim's TCP and an offender's UDP flood meet at one receiver, without control,
with schedulers that lend, with the plain scheme and with Vigia's, in turn. Figures
are ratios to the run without control and to the guarantee; n, spread and the
machine's load are printed beside them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from vigia.campaign.isolation_bed import Bed, Flow, Mode, Plan
from vigia.errors import VigiaError
from vigia_statistics import mean_interval

__all__ = ["Budget", "Cost", "Figures", "Reaction", "budgets", "interval", "main", "payload", "quantile"]

ENFORCER = Path(__file__).resolve().parents[4] / "bin/vigia-enforcer"
_SHARES = {"a": 0.75, "b": 0.25}
_ONSET = 2.0  # seconds of the victim alone
_FRAME, _SEGMENT = 1514, 1448  # bytes of a full frame, and the TCP payload in it
_ON, _PERIOD = 0.5, 1.2  # seconds of a pulse, and to the next


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of its 95% t-interval; of one value, not a number."""
    if len(values) < 2:
        return statistics.fmean(values), math.nan
    found = mean_interval(values)
    return found.estimate, (found.upper - found.lower) / 2


def quantile(values: Sequence[float], q: float) -> float:
    """Return the smallest value that a share q of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


def payload(frames: float) -> float:
    """Return the TCP payload in a rate of full frames."""
    return frames * _SEGMENT / _FRAME


@dataclass(frozen=True)
class Figures:
    """What one mode brought, as shares of what was guaranteed or of the link's limit."""

    mode: str
    n: int
    victim: float
    victim_half: float
    first_second: float
    offender: float
    used: float
    load: float


def measure(mode: Mode, runs: int, seconds: float) -> Figures:
    """Let the flood meet the victim some times in one bed. Raises VigiaError."""
    victim, first, offender, used = [], [], [], []
    with Bed(Plan(mode, _SHARES), ENFORCER) as bed:
        flows = [Flow("a", 2, 1), Flow("b", 3, 1, "udp", delay=_ONSET)]
        bought = {t: payload(bed.guarantee(t)) for t in _SHARES}
        limit = payload(bed.plan.link * (1 - bed.plan.headroom))
        for _ in range(runs):
            a, b = bed.run(flows, _ONSET + seconds)
            victim.append(a.mean(_ONSET) / bought["a"])
            first.append(a.mean(_ONSET, _ONSET + 1) / bought["a"])
            offender.append(b.mean(_ONSET) / bought["b"])
            used.append((a.mean(_ONSET) + b.mean(_ONSET)) / limit)
    mean, half = interval(victim)
    return Figures(
        mode.value,
        runs,
        mean,
        half,
        statistics.fmean(first),
        statistics.fmean(offender),
        statistics.fmean(used),
        os.getloadavg()[0],
    )


@dataclass(frozen=True)
class Reaction:
    """Times from a flood's first packet, in seconds."""

    n: int
    """pulses"""
    missed: int
    """pulses that no limit followed"""
    told_p50: float
    told_p99: float
    held_p50: float
    held_p99: float


_STAMP = re.compile(r'^time=(\S+) .*msg="(source told|source held)"(.*)$')


def _moments(log: str, what: str, mark: str) -> list[float]:
    """Return when a line was logged, as Unix time."""
    found = (m for m in map(_STAMP.match, log.splitlines()) if m)
    return [
        datetime.fromisoformat(m[1].replace("Z", "+00:00")).timestamp()
        for m in found
        if m[2] == what and mark in m[3]
    ]


def react(pulses: int) -> Reaction:
    """Send pulses of a flood, each met by a node without limits. Raises VigiaError."""
    seconds = pulses * _PERIOD
    with Bed(Plan(Mode.VIGIA, _SHARES), ENFORCER, log_level="debug") as bed:
        flows = [Flow("a", 2, 1), Flow("b", 3, 1, "udp", on=_ON, period=_PERIOD)]
        failures: list[BaseException] = []

        def reset() -> None:
            """Take the limits away before each pulse."""
            try:
                while not bed.started:
                    time.sleep(0.01)
                for i in range(1, pulses):
                    time.sleep(max(0.0, bed.started + i * _PERIOD - 0.15 - time.monotonic()))
                    bed.release(3)
            except VigiaError as e:
                failures.append(e)

        thread = threading.Thread(target=reset)
        thread.start()
        bed.run(flows, seconds)
        thread.join()
        if failures:
            raise failures[0]
        offset = time.time() - time.monotonic()
        told = _moments(bed.log(1), "source told", "tenant=b")
        held = _moments(bed.log(3), "source held", "port=b-3")
        begun = [offset + bed.started + i * _PERIOD for i in range(pulses)]
        first_told = [min((t - b for t in told if 0 <= t - b < _PERIOD), default=math.nan) for b in begun]
        first_held = [min((t - b for t in held if 0 <= t - b < _PERIOD), default=math.nan) for b in begun]
    a = [t for t in first_told if not math.isnan(t)]
    b = [t for t in first_held if not math.isnan(t)]
    return Reaction(
        pulses, pulses - len(b), quantile(a, 0.5), quantile(a, 0.99), quantile(b, 0.5), quantile(b, 0.99)
    )


@dataclass(frozen=True)
class Cost:
    """What the receiver's enforcer takes with many vports."""

    vports: int
    idle_share: float
    """of a core, without traffic"""
    busy_share: float
    """of a core, while the link is full"""
    rss: float
    """bytes"""


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> float:
    return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cost(vports: int, seconds: float) -> Cost:
    """Measure an enforcer with so many vports. Raises VigiaError."""
    shares = {f"t{i}": 1 / vports for i in range(vports)}
    with Bed(Plan(Mode.VIGIA, shares, hosts=2), ENFORCER) as bed:
        pid = bed.enforcer_pid(1)
        time.sleep(2)
        begin = _cpu(pid)
        time.sleep(seconds)
        idle = (_cpu(pid) - begin) / seconds
        begin = _cpu(pid)
        moment = time.monotonic()
        bed.run([Flow("t0", 2, 1, connections=4)], seconds)
        busy = (_cpu(pid) - begin) / (time.monotonic() - moment)
        return Cost(vports, idle, busy, _rss(pid))


def _table(rows: Sequence[Figures]) -> list[str]:
    head = (
        f"{'mode':<10} {'n':>3} {'victim/guarantee':>18} {'first second':>13}"
        f" {'offender':>9} {'link used':>10} {'x none':>7} {'load':>6}"
    )
    none = next((r.victim for r in rows if r.mode == Mode.NONE.value), math.nan)
    return [
        head,
        *(
            f"{r.mode:<10} {r.n:>3} {r.victim:>10.2f} ±{r.victim_half:>5.2f} {r.first_second:>13.2f}"
            f" {r.offender:>9.2f} {r.used:>10.2f} {r.victim / none:>7.1f} {r.load:>6.1f}"
            for r in rows
        ),
    ]


@dataclass(frozen=True)
class Budget:
    """What was promised beside what was measured."""

    name: str
    wanted: str
    measured: str
    met: bool

    def __str__(self) -> str:
        verdict = "met" if self.met else "MISSED"
        return f"{self.name:<58} {self.wanted:>10} {self.measured:>10}  {verdict}"


def budgets(rows: Sequence[Figures], reaction: Reaction | None, price: Cost | None) -> list[Budget]:
    """Hold what was measured with Vigia's control against the budgets; what was not measured is left out."""
    found = []

    def least(name: str, wanted: float, measured: float) -> None:
        found.append(Budget(name, f">= {wanted:.2f}", f"{measured:.2f}", measured >= wanted))

    def most(name: str, wanted: float, measured: float, shown: str) -> None:
        found.append(Budget(name, "<= " + shown.format(wanted), shown.format(measured), measured <= wanted))

    for row in rows:
        if row.mode == Mode.VIGIA.value:
            least("victim's share of its guarantee, mean", 0.95, row.victim)
            least("victim's share of its guarantee, first second", 0.80, row.first_second)
            least("offender's share of its guarantee, goodput", 0.90, row.offender)
            least("work conservation: share of what the link gives out", 0.93, row.used)
    if reaction:
        most("first packet of a flood to the notice, p99", 0.2, reaction.told_p99, "{:.3f} s")
        most("first packet to the limit at its source, p99", 0.2, reaction.held_p99, "{:.3f} s")
        most("pulses that no limit followed, share", 0.0, reaction.missed / reaction.n, "{:.2f}")
    if price:
        most(f"enforcer with {price.vports} vports, idle, of a core", 0.02, price.idle_share, "{:.1%}")
        most(f"enforcer with {price.vports} vports, full link, of a core", 0.02, price.busy_share, "{:.1%}")
        most("enforcer's resident memory", 64, price.rss / 2**20, "{:.0f} MiB")
    return found


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="floods for each mode")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a flood")
    parser.add_argument("--pulses", type=int, default=100, help="short floods for reaction times")
    parser.add_argument("--vports", type=int, default=64, help="vports for the enforcer's cost")
    parser.add_argument("--modes", default="none,rigid,borrowing,paper,vigia")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    options = parser.parse_args(argv)

    def say(line: str) -> None:
        if not options.json:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    rows = []
    for mode in options.modes.split(","):
        rows.append(measure(Mode(mode), options.runs, options.seconds))
        say(f"measured {mode}: victim has {rows[-1].victim:.2f} of its guarantee")
    reaction = react(options.pulses) if options.pulses else None
    price = cost(options.vports, 8.0) if options.vports else None
    if options.json:
        document = {
            "modes": [asdict(r) for r in rows],
            "reaction": asdict(reaction) if reaction else None,
            "cost": asdict(price) if price else None,
            "budgets": [asdict(b) for b in budgets(rows, reaction, price)],
        }
        sys.stdout.write(json.dumps(document) + "\n")
        return 0
    say(f"\nTCP victim (75%), UDP flood (25%) of twice a 50 Mbit/s link, goodput, {os.cpu_count()} cores:")
    for line in _table(rows):
        say(line)
    if reaction:
        say(
            f"\nfirst packet of a flood to notice p50 {_ms(reaction.told_p50)}, p99 {_ms(reaction.told_p99)};"
            f" to the limit at its source: p50 {_ms(reaction.held_p50)}, p99 {_ms(reaction.held_p99)}"
            f" (n = {reaction.n}, missed {reaction.missed}, load {os.getloadavg()[0]:.1f})"
        )
    if price:
        say(
            f"enforcer with {price.vports} vports: {price.idle_share:.1%} of a core idle,"
            f" {price.busy_share:.1%} with a full link, RSS {price.rss / 2**20:.0f} MiB"
        )
    say(f"\nbudgets, with Vigia's control (load {os.getloadavg()[0]:.1f}):")
    for budget in budgets(rows, reaction, price):
        say(f"  {budget}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
