"""Probes: vigia-probe beside fping, SmokePing's way of running it, and blackbox_exporter."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from sidebyside.figures import Figure
from sidebyside.part import Bench

PROGRAM = "probes/bench/bench.py"


def beside(bench: Bench) -> Iterator[Figure]:
    """All tools in turns on one link, against the kernel's stamps of every packet."""
    for line in study(bench, "peers"):
        yield Figure(part="probes", **line)


def study(bench: Bench, name: str, *more: str) -> Any:
    """Run one study of the probe's benchmark, which takes no precedence over others here."""
    words = ["--repetitions=1", "--rounds=1"] if bench.short else [f"--repetitions={bench.repetitions}"]

    def measure() -> str:
        argv = [sys.executable, PROGRAM, "--nice=0", f"--study={name}", *words, *more]
        return json.dumps(bench.document(*argv)[name])

    return json.loads(bench.once(f"probe-{name}.json", measure))
