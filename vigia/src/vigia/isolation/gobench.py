"""What benchmarks and tests in Go tell of the enforcer and of the kernel's programs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.stack import places

_PACKET = re.compile(r"^Benchmark(\S+?)(?:#\d+)?(?:-\d+)?\s.*?([\d.]+) ns/packet")


def packets(output: str) -> list[tuple[str, float]]:
    """Return what each program takes for a packet in its quickest round, ns, from the output of go test."""
    took: dict[str, float] = {}
    for m in filter(None, map(_PACKET.match, output.splitlines())):
        took[m[1]] = min(float(m[2]), took.get(m[1], math.inf))
    return list(took.items())


_LATE = re.compile(r"^BenchmarkLateness/(\w+)-.*?([\d.e+]+) p99\.9-us")


LATE_AT_MOST = 0.001
"""Seconds by which one tick of a thousand may be late under a hostile sender."""


def late(output: str) -> dict[str, float]:
    """Return how late ticks were (p99.9, seconds) in the quietest turn, from the output of go test.

    Where one tick of a thousand counts, a stall of the machine's host decides a turn; what the loop does
    itself is in all of them.
    """
    took: dict[str, float] = {}
    for m in filter(None, map(_LATE.match, output.splitlines())):
        took[m[1]] = min(float(m[2]) / 1e6, took.get(m[1], math.inf))
    return took


def lateness(turns: int) -> dict[str, float]:
    """Return how late ticks are (p99.9, seconds): of a bare thread, alone, and under a hostile sender.

    Three times as many turns are done where the bare thread is late in all of them: what keeps a thread
    waiting that does nothing is the machine's host, and what keeps the loop waiting cannot be told from it.
    Raises VigiaError.
    """
    said = ""
    for turn in range(3 * turns):
        if turn >= turns and late(said)["bare"] <= LATE_AT_MOST:
            break
        done = _go_test("-run", "^$", "-bench", "BenchmarkLateness", "./isolation-agent/enforcer/fastloop/")
        said += done.stdout
        if done.status != 0 or not {"bare", "alone", "hostile"} <= late(done.stdout).keys():
            raise VigiaError(f"the loop was not measured: {(done.stderr or done.stdout).strip()[-500:]}")
    return late(said)


def _go_test(*arguments: str, **environment: str) -> commands.CommandResult:
    argv = ["go", "-C", str(places.source_root()), "test", *arguments]
    return commands.run(argv, env=environment, timeout=600, check=False)


def programs() -> list[tuple[str, float]]:
    """Run the kernel's programs on packets made by hand. Raises VigiaError."""
    done = _go_test("-run", "^$", "-bench", "BenchmarkClassify|BenchmarkVport", "./internal/bpf/...")
    found = packets(done.stdout)
    if not found or (done.status != 0 and "MISSED" not in done.stdout):
        raise VigiaError(f"the programs were not measured: {(done.stderr or done.stdout).strip()[-500:]}")
    return found


@dataclass(frozen=True)
class Kills:
    """What became of an enforcer that was killed at random points of apply."""

    count: int
    clean: bool
    """nothing was left after its limits' second; guarantees and what is not ours were as before"""
    said: str


def kill(count: int) -> Kills:
    """Kill an enforcer so often while it sets, renews and removes limits of one second."""
    test = "TestKillingAtAnyPointLeavesNothingAfterItsTime"
    done = _go_test("-count=1", "-v", "-run", test, "./isolation-agent/enforcer/app/", VIGIA_KILLS=str(count))
    found = re.search(r"\d+ of (\d+) kills left a limit in force.*", done.stdout)
    clean = done.status == 0 and found is not None and int(found[1]) == count
    return Kills(count, clean, found[0] if found else done.stdout.strip()[-500:])
