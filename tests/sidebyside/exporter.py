"""The exporter: vigia-exporter beside node_exporter's netdev collector, by the number of ports."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from sidebyside.figures import Figure
from sidebyside.part import Bench, PartError

ROUND = 20
"""Scrapes of ours in a round of the benchmark, and one of every other."""
SIZES = (12, 100, 1000, 5000)
"""Ports: half taps and half veth, so that a size is a multiple of four."""
NETDEV, BOTH = "node_exporter, netdev", "node_exporter, netdev and netclass"
OTHERWISE = "not the same contents: ours has identity, packets by class, drops and flows of each port"


def measured(bench: Bench) -> list[dict[str, Any]]:
    """Return a line for each size, measured once in a run: growth and floors read the same."""
    file = bench.folder / "ports.jsonl"
    if not file.exists():
        sizes = ",".join(map(str, (4, 12) if bench.short else SIZES))
        argv = ["go", "test", "./exporters/tenant/bench", "-run", "^$", "-bench", "BenchmarkSizes"]
        argv += ["-benchtime", "1x", "-timeout", "30m", "-v", "-args", "-sizes", sizes, "-json", str(file)]
        out = bench.run(*argv)
        if not file.exists():
            raise PartError(f"no size was measured: {out[-800:]}")
    return [json.loads(line) for line in file.read_text().splitlines()]


def rounds(values: Sequence[float]) -> list[float]:
    """Return the median of each round of scrapes."""
    size = ROUND if len(values) > ROUND else 1
    return [statistics.median(values[i : i + size]) for i in range(0, len(values), size)]


def beside(bench: Bench) -> Iterator[Figure]:
    """What a scrape costs each, how long its page is, and what it keeps in memory."""
    for line in measured(bench):
        ours, netdev, both = line["vigia"], line["netdev alone"], line["node_exporter"]
        for what, unit, key in (("processor time", "ms", "cpu_ms"), ("time", "ms", "wall_ms")):
            name = f"{what} of a scrape, {line['ports']} ports"
            for peer, theirs in ((NETDEV, netdev), (BOTH, both)):
                yield Figure("exporter", name, unit, rounds(ours[key]), peer, rounds(theirs[key]))
        sent, kept = (f"{what}, {line['ports']} ports" for what in ("page as it is sent", "resident memory"))
        pages = [[page["bytes"] / 1e3] for page in (ours, netdev)]
        memory = [[page["rss"] / 1e6] for page in (ours, both)]
        yield Figure("exporter", sent, "kB", pages[0], NETDEV, pages[1], note=OTHERWISE, exact=True)
        yield Figure("exporter", kept, "MB", memory[0], BOTH, memory[1])
