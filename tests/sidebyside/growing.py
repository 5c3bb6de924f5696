"""Growth: what each part costs at 10, 100, 1 000 and 5 000 of its unit, and the exponent that fits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from sidebyside import exporter, floors, probes
from sidebyside.exporter import rounds
from sidebyside.figures import Growth
from sidebyside.part import Bench, each, go_metrics

SIZES = (10, 100, 1000, 5000)
SHORT = (2, 4, 8)
TICK = "the kernel walks all classes again for every 32 KiB of its list: the bare system calls grow alike"


def grown(bench: Bench) -> Iterator[Growth]:
    """Measure every part."""
    yield from _probe(bench)
    yield from _exporter(bench)
    yield from _tick(bench)
    yield from _agent(bench)
    yield from _plan(bench)


def _sizes(bench: Bench) -> tuple[int, ...]:
    return SHORT if bench.short else SIZES


def _probe(bench: Bench) -> Iterator[Growth]:
    found = probes.study(bench, "growth", f"--sizes={','.join(map(str, _sizes(bench)))}")
    for name, what, unit in (
        ("cpu", "vigia-probe, processor time, a probe a second to each", "ms/s"),
        ("rss", "vigia-probe, resident memory", "MB"),
        ("scrape", "vigia-probe, processor time of a scrape", "ms"),
        ("start", "vigia-probe, start until it answers", "s"),
    ):
        yield Growth("growth", what, unit, "targets", {int(k): v for k, v in found[name].items()})


def _exporter(bench: Bench) -> Iterator[Growth]:
    lines = exporter.measured(bench)
    for what, unit, value in (
        ("vigia-exporter, processor time of a scrape", "ms", lambda line: rounds(line["vigia"]["cpu_ms"])),
        ("vigia-exporter, time of a scrape", "ms", lambda line: rounds(line["vigia"]["wall_ms"])),
        ("vigia-exporter, resident memory", "MB", lambda line: [line["vigia"]["rss"] / 1e6]),
        (
            "vigia-exporter, start until every port has its programs",
            "s",
            lambda line: [line["attach_seconds"]],
        ),
    ):
        yield Growth("growth", what, unit, "ports", {line["ports"]: value(line) for line in lines})


def _tick(bench: Bench) -> Iterator[Growth]:
    for what, unit in (
        ("a tick that finds every class moved", "ours-us"),
        ("that tick's system calls", "bare-us"),
    ):
        points = {n: [v / 20 for v in each(lines, unit)] for n, lines in floors.ticks(bench).items()}
        yield Growth("growth", f"fast loop, {what}", "µs", "tenants of a link", points, TICK)


def _agent(bench: Bench) -> Iterator[Growth]:
    """One message with all alerts, and as many messages: the storm's benchmark at each size."""
    stored: dict[int, list[float]] = {}
    many: dict[int, list[float]] = {}
    memory: dict[int, list[float]] = {}
    for size in _sizes(bench):
        for number in range(1 if bench.short else min(2, bench.repetitions)):
            argv = [sys.executable, "-m", "tests.bench_storm", "--json", f"--alerts={size}", "--limits=2"]

            def storm(argv: list[str] = argv) -> str:
                return bench.run("env", "-C", "isolation-agent", *argv)

            found = json.loads(bench.once(f"storm-{size}-{number}.json", storm))
            one, each_ = found["one message"], found["many messages"]
            stored.setdefault(size, []).append(one["cpu"])
            many.setdefault(size, []).append(each_["cpu"])
            memory.setdefault(size, []).append(each_["rss"] / 2**20)
    yield Growth("growth", "agent, processor time of one message of all", "s", "alerts", stored)
    yield Growth("growth", "agent, processor time of a message for each", "s", "alerts", many)
    yield Growth("growth", "agent, most resident memory", "MiB", "alerts", memory)


def _plan(bench: Bench) -> Iterator[Growth]:
    """What every node works out of a mesh, by its nodes."""
    argv = ["go", "test", "./probes/mesh", "-run", "^$", "-bench", "BenchmarkPlan"]
    argv += ["-benchtime", "10x"] if bench.short else ["-count", str(bench.repetitions)]
    found = floors.by_size(go_metrics(bench.once("plans.txt", lambda: bench.run(*argv))))
    points = {size: [ns / 1e3 for ns in each(lines, "ns/op")] for size, lines in found.items()}
    yield Growth("growth", "mesh, a node's plan from the list of all", "µs", "nodes", points)
