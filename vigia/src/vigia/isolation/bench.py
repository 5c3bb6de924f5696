"""Benchmark of isolation: python -m vigia.isolation.bench, run by make bench-isolation.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.isolation.alerts import Alarms, alarms
from vigia.isolation.borrow import NOBODY, Borrowed, add_options, borrow, settings, situations
from vigia.isolation.gobench import LATE_AT_MOST, Kills, kill, lateness, programs
from vigia.isolation.model import IsolationPlan, Mode, TrafficFlow
from vigia.isolation.testbed import IsolationTestbed
from vigia.stack import places
from vigia_statistics import mean_interval

__all__ = [
    "Budget",
    "Cost",
    "Figures",
    "Innocent",
    "Measured",
    "Reaction",
    "budgets",
    "cpu_seconds",
    "interval",
    "main",
    "payload",
    "program_times",
    "quantile",
    "reaction",
    "run_statistics",
    "sent_again",
]

T = TypeVar("T")

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
    victims: Sequence[float] = ()
    """of each flood"""
    first_seconds: Sequence[float] = ()
    uses: Sequence[float] = ()


def measure(mode: Mode, runs: int, seconds: float) -> Figures:
    """Let the flood meet the victim some times in one bed. Raises VigiaError."""
    victim, first, offender, used = [], [], [], []
    with IsolationTestbed(IsolationPlan(mode, _SHARES), places.built("vigia-enforcer")) as bed:
        flows = [TrafficFlow("a", 2, 1), TrafficFlow("b", 3, 1, "udp", delay=_ONSET)]
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
        victim,
        first,
        used,
    )


@dataclass(frozen=True)
class Reaction:
    """Times of the fast loop, in seconds."""

    n: int
    """pulses"""
    missed: int
    """pulses that no limit followed"""
    told_p50: float
    """from a pulse's first packet to the notice"""
    told_p99: float
    held_p50: float
    """from a pulse's first packet to the limit at its source"""
    held_p99: float
    drop_p50: float
    """from the first drop of a congestion, or the filling of its queue, to the advised rate at its source"""
    drop_p99: float
    messages: float
    """notices until that rate held, on average"""


@dataclass(frozen=True)
class _Line:
    """A line of an enforcer's log."""

    at: float
    """Unix time"""
    rest: str

    def number(self, name: str) -> float:
        """Return a field of the line."""
        found = re.search(rf" {name}=(\S+)", self.rest)
        return float(found[1]) if found else math.nan


_STAMP = re.compile(r'^time=(\S+) .*msg="(notice sent|source limited)"(.*)$')


def _lines(log: str, what: str, mark: str) -> list[_Line]:
    """Return the lines that say so, the first first."""
    found = (m for m in map(_STAMP.match, log.splitlines()) if m)
    return [
        _Line(datetime.fromisoformat(m[1].replace("Z", "+00:00")).timestamp(), m[3])
        for m in found
        if m[2] == what and mark in m[3]
    ]


def reaction(begun: Sequence[float], told: Sequence[_Line], held: Sequence[_Line]) -> Reaction:
    """Work out the times from when each pulse began and what the two enforcers wrote."""
    to_notice, to_limit, from_drop, messages = [], [], [], []
    for begin in begun:
        notices = [t for t in told if 0 <= t.at - begin < _PERIOD]
        limit = next((h for h in held if 0 <= h.at - begin < _PERIOD), None)
        if notices:
            to_notice.append(notices[0].at - begin)
        if limit:
            to_limit.append(limit.at - begin)
        if notices and limit:
            from_drop.append(limit.at - (notices[0].at - notices[0].number("congested_seconds")))
            messages.append(max(1, sum(t.at < limit.at for t in notices)))
    return Reaction(
        len(begun),
        len(begun) - len(to_limit),
        quantile(to_notice, 0.5),
        quantile(to_notice, 0.99),
        quantile(to_limit, 0.5),
        quantile(to_limit, 0.99),
        quantile(from_drop, 0.5),
        quantile(from_drop, 0.99),
        statistics.fmean(messages) if messages else math.nan,
    )


def react(pulses: int) -> Reaction:
    """Send pulses of a flood, each met by a node without limits. Raises VigiaError."""
    seconds = pulses * _PERIOD
    with IsolationTestbed(
        IsolationPlan(Mode.VIGIA, _SHARES), places.built("vigia-enforcer"), log_level="debug"
    ) as bed:
        flows = [TrafficFlow("a", 2, 1), TrafficFlow("b", 3, 1, "udp", on=_ON, period=_PERIOD)]
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
        begun = [offset + bed.started + i * _PERIOD for i in range(pulses)]
        told = _lines(bed.log(1), "notice sent", "tenant=b")
        return reaction(begun, told, _lines(bed.log(3), "source limited", "port=b-3"))


@dataclass(frozen=True)
class Cost:
    """What the receiver's enforcer takes with many vports.

    The shares are those of the quietest of some turns: what else runs on the host only ever adds.
    """

    vports: int
    idle_share: float
    """of a core, without traffic"""
    busy_share: float
    """of a core, while the link is full"""
    rss: float
    """bytes"""
    run_ns: float
    """of the programs in the kernel, for each packet of that traffic (BPF run statistics), nanoseconds"""
    runs: int
    """of them"""
    late_p99: float
    """seconds by which the fast loop woke late, while every core was taken"""


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far, kernel included, to a clock tick."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> float:
    return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")


@contextmanager
def run_statistics() -> Iterator[None]:
    """Have the kernel count what programs take, and leave the switch as it was."""
    before = _STATISTICS.read_text()
    _STATISTICS.write_text("1")
    try:
        yield
    finally:
        _STATISTICS.write_text(before)


def program_times(pids: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Return nanoseconds and runs of every program that the processes have open, by its id."""
    found = {}
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            with suppress(OSError):  # closed meanwhile
                fields = dict(
                    line.split(":\t", 1) for line in entry.read_text().splitlines() if ":\t" in line
                )
                if "run_cnt" in fields:
                    found[fields["prog_id"]] = (int(fields["run_time_ns"]), int(fields["run_cnt"]))
    return found


@contextmanager
def _starved() -> Iterator[None]:
    """Take every core, twice."""
    busy = [
        commands.spawn([sys.executable, "-c", "import signal; signal.alarm(120)\nwhile True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for child in busy:
            child.kill()
            child.communicate()


def _lateness(before: Mapping[str, float], after: Mapping[str, float], q: float) -> float:
    """Return the bound of the range that a share q of the loop's wake-ups does not exceed."""
    name = "vigia_enforcer_tick_lateness_seconds_bucket"
    ranges = sorted(
        (float(m[1]), after[series] - before.get(series, 0.0))
        for series in after
        if (m := re.fullmatch(name + r'\{le="([^"]+)"\}', series))
    )
    total = ranges[-1][1] if ranges else 0.0
    return next((bound for bound, count in ranges if count >= q * total > 0), math.nan)


_TURNS = 3


def _share(pid: int, during: Callable[[], object]) -> float:
    """Return what a process takes of a core in the quietest of some turns."""
    turns = []
    for _ in range(_TURNS):
        taken, start = cpu_seconds(pid), time.monotonic()
        during()
        turns.append((cpu_seconds(pid) - taken) / (time.monotonic() - start))
    return min(turns)


def cost(vports: int, seconds: float) -> Cost:
    """Measure an enforcer with so many vports. Raises VigiaError."""
    shares = {f"t{i}": 1 / vports for i in range(vports)}
    with IsolationTestbed(IsolationPlan(Mode.VIGIA, shares, hosts=2), places.built("vigia-enforcer")) as bed:
        pid = bed.enforcer_pid(1)
        time.sleep(2)
        idle = _share(pid, lambda: time.sleep(seconds))
        busy = _share(pid, lambda: bed.run([TrafficFlow("t0", 2, 1, connections=4)], seconds))
        both = [bed.enforcer_pid(host) for host in (1, 2)]
        with run_statistics():
            old = program_times(both)
            bed.run([TrafficFlow("t0", 2, 1, connections=4)], 2)
            new = program_times(both)
        took = [(new[i][0] - old[i][0], new[i][1] - old[i][1]) for i in new.keys() & old.keys()]
        runs = sum(count for _, count in took)
        before = bed.metrics(1)
        with _starved():
            bed.run([TrafficFlow("t0", 2, 1, connections=4)], 4)
            late = _lateness(before, bed.metrics(1), 0.99)
        return Cost(vports, idle, busy, _rss(pid), sum(ns for ns, _ in took) / max(runs, 1), runs, late)


@dataclass(frozen=True)
class Innocent:
    """What a flood cost a tenant that has nothing to do with it."""

    n: int
    beside: float
    """share lost of what it sent from the node of the flood's source to another one than the victim's"""
    beneath: float
    """share lost of what it sent to the flooded node, from a second after the flood began"""


def innocent(runs: int, seconds: float) -> Innocent:
    """Let a third tenant send a little UDP while the flood meets the victim. Raises VigiaError."""
    shares = {"a": 0.70, "b": 0.25, "c": 0.05}
    beside, beneath = [], []
    with IsolationTestbed(IsolationPlan(Mode.VIGIA, shares), places.built("vigia-enforcer")) as bed:
        rate = bed.guarantee("c") / 4
        flows = [
            TrafficFlow("a", 2, 1),
            TrafficFlow("b", 3, 1, "udp", delay=_ONSET),
            TrafficFlow("c", 3, 2, "udp", rate=rate, size=500, early=0.5),
            TrafficFlow("c", 2, 1, "udp", rate=rate, size=500, delay=_ONSET + 1, early=0.5),
        ]
        for _ in range(runs):
            *_, aside, under = bed.run(flows, _ONSET + seconds)
            beside.append(aside.lost)
            beneath.append(under.lost)
    return Innocent(runs, statistics.fmean(beside), statistics.fmean(beneath))


def _table(rows: Sequence[Figures]) -> list[str]:
    head = (
        f"{'mode':<10} {'n':>3} {'victim/guarantee':>18} {'first second':>13}"
        f" {'offender':>9} {'link used':>10} {'x none':>7} {'x borrowing':>11} {'load':>6}"
    )
    by = {r.mode: r.victim for r in rows}
    none, borrowing = by.get(Mode.NONE.value, math.nan), by.get(Mode.BORROWING.value, math.nan)
    return [
        head,
        *(
            f"{r.mode:<10} {r.n:>3} {r.victim:>10.2f} ±{r.victim_half:>5.2f} {r.first_second:>13.2f}"
            f" {r.offender:>9.2f} {r.used:>10.2f}"
            f" {r.victim / none:>7.1f} {r.victim / borrowing:>11.1f} {r.load:>6.1f}"
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
        return f"{self.name:<90} {self.wanted:>10} {self.measured:>10}  {verdict}"


@dataclass(frozen=True)
class Measured:
    """All that a run of the benchmark has measured; None and empty is what it was not asked for."""

    rows: Sequence[Figures] = ()
    reaction: Reaction | None = None
    alarms: Alarms | None = None
    innocent: Innocent | None = None
    price: Cost | None = None
    packets: Sequence[tuple[str, float]] = ()
    kills: Kills | None = None
    borrowed: Sequence[Borrowed] = ()
    late: Mapping[str, float] = field(default_factory=dict)
    """ticks' lateness, p99.9 in seconds: alone, and under hostile traffic"""


def _least(name: str, wanted: float, measured: float) -> Budget:
    return Budget(name, f">= {wanted:.2f}", f"{measured:.2f}", measured >= wanted)


def _most(name: str, wanted: float, measured: float, shown: str) -> Budget:
    return Budget(name, "<= " + shown.format(wanted), shown.format(measured), measured <= wanted)


def budgets(m: Measured) -> list[Budget]:
    """Hold what was measured with Vigia's control against the budgets; what was not measured is left out."""
    return [*_judge_shares(m), *_judge_times(m), *_judge_cost(m)]


def sent_again(alone: float) -> float:
    """Return what TCP may send again beside neighbours, of all segments: a fifth more than alone, or 0.01.

    That is a fifth of what a second may lose. A multiple by itself would forbid next to nothing of nothing,
    and what TCP cannot do: the smaller its share of a link, the more of its segments tell it so.
    """
    return max(1.2 * alone, alone + 0.01)


def _judge_shares(m: Measured) -> Iterator[Budget]:
    for row in m.rows:
        if row.mode == Mode.VIGIA.value:
            yield _least("victim's share of its guarantee, mean", 0.95, row.victim)
            yield _least("victim's share of its guarantee, first second", 0.80, row.first_second)
            yield _least("offender's share of its guarantee, goodput", 0.90, row.offender)
            yield _least("work conservation: share of what the link gives out", 0.93, row.used)
    for b in (b for b in m.borrowed if not b.neighbour.startswith(NOBODY)):
        name = f"{b.setting}, borrower beside {b.neighbour}"
        yield _least(f"{name}, worst second, of what is left", 0.95, b.second)
        yield _least(f"{name}, worst 100 ms, of its guarantee", 0.98, b.window)
        yield _most(f"{name}, sent again, of its segments", sent_again(b.alone), b.again, "{:.2%}")
    if m.innocent:
        yield _most("innocent tenant beside the flood's source, loss", 0.001, m.innocent.beside, "{:.2%}")
        name = "innocent tenant on the flooded link from its second second, loss"
        yield _most(name, 0.001, m.innocent.beneath, "{:.2%}")


def _judge_times(m: Measured) -> Iterator[Budget]:
    if m.reaction:
        r = m.reaction
        yield _most("first drop over D to the advised rate at the sender, p99", 0.2, r.drop_p99, "{:.3f} s")
        yield _most("notices until then, mean", 1.0, r.messages, "{:.2f}")
        yield _most("pulses that no limit followed, share", 0.0, r.missed / r.n, "{:.2f}")
    if m.alarms:
        detected, verified = quantile(m.alarms.detected, 0.99), quantile(m.alarms.verified, 0.99)
        yield _most("in-kernel detection of a flood, p99", 0.3, detected, "{:.3f} s")
        yield _most("alert path: flood to verified kernel limit, p99", 5.0, verified, "{:.2f} s")
        missed = m.alarms.missed / len(m.alarms.found)
        yield _most("floods that no limit followed, share", 0.0, missed, "{:.2f}")


def _judge_cost(m: Measured) -> Iterator[Budget]:
    for name, took in m.packets:
        # Budgets are for counting, signals and policing; not where two interfaces' numbers want one place.
        if name.startswith("Vport/") and not name.endswith("count_displaced"):
            yield _most(f"BPF, {name}", 10.0 if name.endswith("count") else 150.0, took, "{:.0f} ns")
    if m.price:
        p = m.price
        yield _most(f"enforcer with {p.vports} vports, idle, of a core", 0.02, p.idle_share, "{:.1%}")
        yield _most(f"enforcer with {p.vports} vports, full link, of a core", 0.02, p.busy_share, "{:.1%}")
        yield _most("enforcer's resident memory", 64, p.rss / 2**20, "{:.0f} MiB")
        yield _most("fast loop's lateness with every core taken, p99", 0.02, p.late_p99, "{:.4f} s")
    if "hostile" in m.late:
        name = "fast loop's lateness under random addresses of a hostile sender, p99.9"
        yield _most(name, LATE_AT_MOST, m.late["hostile"], "{:.4f} s")
    if m.kills:
        name = f"SIGKILL at {m.kills.count} random points of apply, left after TTL + 1 s"
        yield Budget(name, "nothing", "nothing" if m.kills.clean else "something", m.kills.clean)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"


def _figures(m: Measured) -> Iterator[str]:
    """Give what was measured, for people."""
    load = f"load {os.getloadavg()[0]:.1f}"
    if m.rows:
        cores = os.cpu_count()
        yield f"\nTCP victim (75%), UDP flood (25%) of twice a 50 Mbit/s link, goodput, {cores} cores:"
        yield from _table(m.rows)
    if m.reaction:
        r = m.reaction
        yield (
            f"\nfirst packet of a flood to notice p50 {_ms(r.told_p50)}, p99 {_ms(r.told_p99)};"
            f" to the limit at its source p50 {_ms(r.held_p50)}, p99 {_ms(r.held_p99)};"
            f" first drop or filling to the limit p50 {_ms(r.drop_p50)}, p99 {_ms(r.drop_p99)},"
            f" {r.messages:.2f} notices (n = {r.n}, missed {r.missed}, {load})"
        )
    if m.alarms:
        seen, done = m.alarms.detected, m.alarms.verified
        yield (
            f"by alert, scraped every second: flood to in-kernel detection p50 {_ms(quantile(seen, 0.5))},"
            f" p99 {_ms(quantile(seen, 0.99))}; to the verified limit p50 {_ms(quantile(done, 0.5))},"
            f" p99 {_ms(quantile(done, 0.99))} (n = {len(m.alarms.found)}, missed {m.alarms.missed}, {load})"
        )
    if m.innocent:
        i = m.innocent
        yield (
            f"innocent tenant: {i.beside:.2%} lost beside the flood's source,"
            f" {i.beneath:.2%} on the flooded link from its second second (n = {i.n}, {load})"
        )
    for b in m.borrowed:
        yield (
            f"{b.setting}, borrower beside {b.neighbour}: {b.mean:.2f} of what is left,"
            f" {b.second:.2f} in the worst second; {b.window:.2f} of its guarantee in the worst 100 ms;"
            f" {b.again:.2%} sent again, {b.alone:.2%} alone ({load})"
        )
    if "hostile" in m.late:
        bare, alone, hostile = (m.late[kind] * 1e3 for kind in ("bare", "alone", "hostile"))
        yield (
            f"ticks' lateness p99.9: {hostile:.2f} ms under random addresses of a hostile sender,"
            f" {alone:.2f} ms without; {bare:.2f} ms of a bare thread that only sleeps"
            f" (each the quietest turn; {load})"
        )
    if m.price:
        p = m.price
        yield (
            f"enforcer with {p.vports} vports: {p.idle_share:.1%} of a core idle,"
            f" {p.busy_share:.1%} with a full link (the quietest of {_TURNS} turns),"
            f" RSS {p.rss / 2**20:.0f} MiB; a run of its programs took {p.run_ns:.0f} ns"
            f" (BPF run statistics, n = {p.runs}); {load}"
        )
    if m.packets:
        took = ", ".join(f"{name} {ns:.0f} ns" for name, ns in m.packets)
        yield f"programs, a packet, in the kernel's test run: {took}"
    if m.kills:
        yield f"kills: {m.kills.said}"


def _borrowed(options: argparse.Namespace, say: Callable[[str], None]) -> list[Borrowed]:
    enforcer, chosen = places.built("vigia-enforcer"), situations()
    return [b for s in settings(options) for b in borrow(enforcer, s, options.seconds, chosen, say)]


def _measure(options: argparse.Namespace, say: Callable[[str], None]) -> Measured:
    rows = []
    for mode in filter(None, options.modes.split(",")):
        rows.append(measure(Mode(mode), options.runs, options.seconds))
        say(f"measured {mode}: victim has {rows[-1].victim:.2f} of its guarantee")
    started = time.monotonic()

    def step(name: str, count: object, call: Callable[[], T]) -> T | None:
        if not count:
            return None
        made = call()
        say(f"measured {name} ({time.monotonic() - started:.0f} s)")
        return made

    return Measured(
        rows,
        step("the fast loop", options.pulses, lambda: react(options.pulses)),
        step("the alert path", options.alerts, lambda: alarms(options.alerts)),
        step("an innocent tenant", options.innocent, lambda: innocent(options.innocent, options.seconds)),
        step("the enforcer's cost", options.vports, lambda: cost(options.vports, options.seconds + 2)),
        step("the programs", options.programs, programs) or (),
        step("kills", options.kills, lambda: kill(options.kills)),
        step("a borrower", options.borrower, lambda: _borrowed(options, say)) or (),
        step("a hostile sender", options.hostile, lambda: lateness(options.hostile)) or {},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its figures; 1 if a budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="floods for each mode")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a flood")
    parser.add_argument("--pulses", type=int, default=100, help="short floods for the fast loop's times")
    parser.add_argument("--alerts", type=int, default=100, help="floods for the alert path's times")
    parser.add_argument("--innocent", type=int, default=3, help="floods beside a third tenant")
    add_options(parser)
    parser.add_argument("--hostile", type=int, default=_TURNS, help="turns under a hostile sender; 0: none")
    parser.add_argument("--vports", type=int, default=64, help="vports for the enforcer's cost")
    parser.add_argument("--programs", type=int, default=1, help="0: leave the cost per packet out")
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs at random points of apply")
    parser.add_argument("--modes", default=",".join(m.value for m in Mode))
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    options = parser.parse_args(argv)
    least = 2 if options.borrower else 1  # a borrower's worst second is after the first one
    if not least <= options.seconds <= 3600:
        parser.error(f"argument --seconds: {options.seconds:g} is out of range; write {least} to 3600")

    def say(line: str) -> None:
        if not options.json:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    found = _measure(options, say)
    judged = budgets(found)
    if options.json:
        document = {**asdict(found), "budgets": [asdict(b) for b in judged]}
        sys.stdout.write(json.dumps(document) + "\n")
    for line in _figures(found):
        say(line)
    say(f"\nbudgets, with Vigia's control (load {os.getloadavg()[0]:.1f}):")
    for budget in judged:
        say(f"  {budget}")
    return int(not all(b.met for b in judged))


if __name__ == "__main__":
    sys.exit(main())
