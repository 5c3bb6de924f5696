"""Floors: each fast path beside what it cannot do without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sidebyside import exporter, probes
from sidebyside.exporter import rounds
from sidebyside.figures import Figure
from sidebyside.part import Bench, each, go_metrics

MOST = 2.0
EXPLAINED = {
    "probe": "schedule, deadline, four stamps, histograms and the record of every probe",
    "scrape": "ours reads the counters of every port from the kernel, puts them into words and compresses them; memory does none of it",
    "tick": "decoding of every class's message, and deciding",
    "Vport": "an empty program is the cost of the test run alone; signals read headers and keep sketches of destinations",
    "Classify": "an empty program is the cost of the test run alone; a classifier reads outer and inner headers and counts the source",
}


def beside(bench: Bench) -> Iterator[Figure]:
    """Measure each path that is fast and its floor, in turns."""
    yield from _probe(bench)
    yield from _programs(bench)
    yield from _scrape(bench)
    yield from _tick(bench)


def _figure(what: str, unit: str, ours: list[float], peer: str, theirs: list[float], note: str) -> Figure:
    return Figure("floors", what, unit, ours, peer, theirs, note=note, most=MOST)


def _probe(bench: Bench) -> Iterator[Figure]:
    found = probes.study(bench, "floor")
    yield _figure(
        "processor time of a probe at 10 000/s",
        "µs",
        found["ours"],
        "sendmmsg, recvmmsg, stamps",
        found["bare"],
        EXPLAINED["probe"],
    )


def _programs(bench: Bench) -> Iterator[Figure]:
    argv = ["go", "test", "-run", "^$", "-bench", "BenchmarkClassify|BenchmarkVport", "./internal/bpf/..."]
    if bench.short:
        argv += ["-benchtime", "10000x"]
    rounds_: dict[str, list[dict[str, float]]] = {}
    for name, lines in go_metrics(bench.once("programs.txt", lambda: bench.run(*argv))).items():
        rounds_.setdefault(name.removeprefix("Benchmark").partition("#")[0], []).extend(lines)
    for name, lines in rounds_.items():
        what, why = f"a packet in the kernel's test run, {name}", EXPLAINED[name.partition("/")[0]]
        yield _figure(what, "ns", each(lines, "raw-ns"), "an empty program", each(lines, "empty-ns"), why)


def _scrape(bench: Bench) -> Iterator[Figure]:
    for line in exporter.measured(bench):
        ours, memory = rounds(line["vigia"]["cpu_ms"]), rounds(line["memory"]["cpu_ms"])
        what = f"processor time of a scrape, {line['ports']} ports"
        yield _figure(what, "ms", ours, "the same bytes from memory", memory, EXPLAINED["scrape"])


def ticks(bench: Bench) -> dict[int, list[dict[str, float]]]:
    """Return, by tenants, what ticks and their system calls take: us for 20 ticks, once for each round."""
    sizes = "4,8,16" if bench.short else "10,100,1000,5000"
    argv = ["go", "test", "./isolation-agent/enforcer/fastloop", "-run", "^$", "-bench", "BenchmarkFloor"]
    argv += ["-benchtime", "5x", "-count", "1" if bench.short else str(bench.repetitions), "-timeout", "20m"]
    argv += ["-args", "-tenants", sizes]
    return by_size(go_metrics(bench.once("ticks.txt", lambda: bench.run(*argv))))


def by_size(found: Mapping[str, list[dict[str, float]]]) -> dict[int, list[dict[str, float]]]:
    """Return what was reported by the size at the end of each name."""
    return {int(name.rpartition("/")[2]): lines for name, lines in found.items()}


def _tick(bench: Bench) -> Iterator[Figure]:
    for tenants, lines in ticks(bench).items():
        ours, bare = ([v / 20 for v in each(lines, unit)] for unit in ("ours-us", "bare-us"))
        what = f"a tick that finds every class moved, {tenants} tenants"
        yield _figure(what, "µs", ours, "its system calls", bare, EXPLAINED["tick"])
