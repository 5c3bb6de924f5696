"""E4: what a site gives: network, memory, processor, disk, on the host or inside a tenant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vigia.campaign import jobs, results
from vigia.campaign.model import Settings
from vigia.campaign.samples import Series
from vigia.campaign.testbed import Pair, Testbed
from vigia.studies.study import Estimate, Factors, Measurement, level

__all__ = ["ELEMENTS", "MEASUREMENT", "Managers"]

ELEMENTS = 2_000_000
"""Doubles in each of STREAM's arrays."""

_PORT = 5201
_FASTEST = 10e9
_FLOPS = 5e9  # for the estimate
_START = 1.0  # seconds to start a benchmark


class Managers(Measurement):
    """One benchmark at a site; a site is the first end of the path of that name."""

    factors: Mapping[str, Sequence[str] | None] = {
        "site": None,
        "benchmark": ("network", "stream", "linpack", "disk", "disk-direct", "disk-fsync"),
    }
    """disk is that of the page cache; disk-direct goes past it, disk-fsync waits for every block."""

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""
        traffic = settings.duration + settings.warm_up
        match factors["benchmark"]:
            case "network":
                return Estimate(traffic + _START, _FASTEST / 8 * traffic)
            case "linpack":
                return Estimate(settings.benchmark**3 * 2 / 3 / _FLOPS + _START, 0.0)
            case "disk" | "disk-direct" | "disk-fsync" as disk:
                slowest = {"disk": 500, "disk-direct": 200, "disk-fsync": 100}[disk]  # MB/s
                return Estimate(4 * settings.file / slowest + 4 * _START, 0.0)
            case _:
                return Estimate(2 * _START, 0.0)

    def described(self, settings: Settings) -> str:
        """Return how one repetition is made."""
        return (
            f"{settings.duration:g} s of TCP by iperf3, {math.ceil(settings.warm_up)} s before it left out; "
            f"STREAM on arrays of {ELEMENTS} doubles, the best of ten; a dense system of order "
            f"{settings.benchmark}; a file of {settings.file} MB in blocks of 128 KiB"
        )

    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""
        pair = testbed.pairs(level(factors, "site"), "cross-node", 2)[0]
        what = level(factors, "benchmark")
        if what == "network":
            return _network(pair, settings)
        size = {"stream": ELEMENTS, "linpack": settings.benchmark}.get(what, settings.file)
        job = jobs.Benchmark.model_validate({"netns": pair[0].netns, "what": what, "size": size})
        unit = "MFLOPS" if what == "linpack" else "MB/s"
        return [Series(k, unit, [v]) for k, v in results.benchmark(pair[0].host.run(job)).items()]


MEASUREMENT = Managers()


def _network(pair: Pair, settings: Settings) -> list[Series]:
    source, sink = pair
    with sink.host.serving(jobs.IperfServer(netns=sink.netns, address=sink.address, port=_PORT)):
        client = jobs.IperfClient(
            netns=source.netns,
            address=sink.address,
            port=_PORT,
            duration=settings.duration,
            warm_up=settings.warm_up,
        )
        return [Series("network", "bit/s", [results.traffic(source.host.run(client)).received])]
