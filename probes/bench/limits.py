"""What vigia-probe costs as targets become many, and beside the fewest system calls that do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import bench

GROWN_MS = 1000
"""Milliseconds between two probes of a target while targets grow."""
FLOOR_TARGETS, FLOOR_MS = 100, 10
"""10 000 probes a second, the rate that is promised of a core."""
TICK_MS = 1
"""The bare loop sends together what vigia-probe does at that rate."""


def growth(folder: Path, sizes: Sequence[int], repetitions: int) -> dict[str, dict[int, list[float]]]:
    """Return by number of targets: processor time (ms/s), memory (MB), a scrape (ms of it), the start (s)."""
    out: dict[str, dict[int, list[float]]] = {
        name: {size: [] for size in sizes} for name in ("cpu", "rss", "scrape", "start")
    }
    for _ in range(repetitions):
        for size in sizes:
            begin = time.monotonic()
            with bench.probing(folder, size, GROWN_MS) as (near, _):
                out["start"][size].append(time.monotonic() - begin - bench.WARM_UP)
                pid = near.process.pid
                out["cpu"][size].append(bench.spent(pid, bench.SECONDS)[0] * 1e3)
                before = bench.cpu_seconds(pid)
                for _ in range(3):
                    near.get("/metrics")
                # What it takes for its probes meanwhile is a thousandth of it.
                out["scrape"][size].append((bench.cpu_seconds(pid) - before) / 3 * 1e3)
                out["rss"][size].append(bench.rss_mb(pid))
            sys.stderr.write(f"  {size} targets: {[values[size][-1] for values in out.values()]}\n")
    return out


def floor(folder: Path, repetitions: int) -> dict[str, list[float]]:
    """Return the processor time of a probe, us: vigia-probe's and a bare loop's, against one reflector."""
    program = folder / "bareloop"
    where = Path(__file__).with_name("bareloop")
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=where, check=True)
    out: dict[str, list[float]] = {"ours": [], "bare": [], "bare_answered": []}
    with bench.awake(*range(os.cpu_count() or 1)):
        for _ in range(repetitions):
            out["ours"].append(_ours(folder))
            price, answered = _bare(folder, program)
            out["bare"].append(price)
            out["bare_answered"].append(answered)
            sys.stderr.write(f"  {out['ours'][-1]:.2f} us, bare {price:.2f} us\n")
    return out


def _ours(folder: Path) -> float:
    with bench.probing(folder, FLOOR_TARGETS, FLOOR_MS) as (near, _):
        sent = near.total("vigia_probe_sent_total")
        since = time.monotonic()
        used = bench.spent(near.process.pid, bench.SECONDS)[0]
        rate = (near.total("vigia_probe_sent_total") - sent) / (time.monotonic() - since)
    return used / rate * 1e6


def _bare(folder: Path, program: Path) -> tuple[float, float]:
    """Return us of a probe, and the share that was answered with both stamps."""
    far = bench.Daemon(bench.RIGHT, bench.config_reflector(), folder, None)
    try:
        far.ready()
        addresses = [bench.address(i) for i in range(FLOOR_TARGETS)]
        batch = FLOOR_TARGETS * TICK_MS // FLOOR_MS
        words = [f"-batch={batch}", f"-tick={TICK_MS}ms", f"-seconds={bench.SECONDS}", *addresses]
        said = json.loads(bench.run(*bench.inside(bench.LEFT, str(program), *words)))
    finally:
        far.stop()
    return said["cpu_seconds"] / said["sent"] * 1e6, said["stamped"] / said["sent"]
