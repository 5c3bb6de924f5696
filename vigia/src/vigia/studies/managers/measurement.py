"""E4: what a site gives: network, memory, processor, disk, on the host or inside a tenant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vigia.campaign import jobs, results
from vigia.campaign.model import Settings
from vigia.campaign.samples import Series
from vigia.campaign.testbed import Pair, Testbed
from vigia.studies.study import Estimate, Factors, Measurement, level

__all__ = ["COMPILED_ELEMENTS", "ELEMENTS", "HPCC_ORDER", "MEASUREMENT", "Managers"]

ELEMENTS = 2_000_000
"""Doubles in each of the arrays of numpy's STREAM, as many as in the study."""

COMPILED_ELEMENTS = 16_777_216
"""Doubles in each of the arrays of STREAM in C: 128 MiB, by STREAM's rule enough for a cache of 32 MiB."""

HPCC_ORDER = 2000
"""Of hpcc's matrix: 32 MB; its vectors have half of that."""

_PORT = 5201
_FASTEST = 10e9
_FLOPS = 5e9  # for the estimate
_START = 1.0  # seconds to start a benchmark
_UNITS = {"linpack": "MFLOPS", "hpcc_fft": "MFLOPS"}  # of metrics; others are MB/s


class Managers(Measurement):
    """One benchmark at a site; a site is the first end of the path of that name."""

    factors: Mapping[str, Sequence[str] | None] = {
        "site": None,
        "benchmark": (
            "network",
            "stream",
            "stream-c",
            "hpcc",
            "linpack",
            "disk",
            "disk-direct",
            "disk-fsync",
        ),
    }
    """stream is numpy's, stream-c compiled from C where it runs, hpcc kernels of the HPC Challenge; disk is
    that of the page cache; disk-direct goes past it, disk-fsync waits for every block."""

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""
        traffic = settings.duration + settings.warm_up
        match factors["benchmark"]:
            case "network":
                return Estimate(traffic + _START, _FASTEST / 8 * traffic)
            case "stream-c" | "hpcc":
                return Estimate(4 * _START, 0.0)
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
            f"STREAM, the best of ten: by numpy on arrays of {ELEMENTS} doubles (stream), compiled from C "
            f"where it runs, with one thread, on arrays of {COMPILED_ELEMENTS} (stream-c); Debian's hpcc on "
            f"a matrix of order {HPCC_ORDER}, one process; a dense system of order {settings.benchmark} by "
            f"numpy; "
            f"a file of {settings.file} MB in blocks of 128 KiB, timed in nanoseconds"
        )

    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""
        pair = testbed.pairs(level(factors, "site"), "cross-node", 2)[0]
        what = level(factors, "benchmark")
        if what == "network":
            return _network(pair, settings)
        sizes = {
            "stream": ELEMENTS,
            "stream-c": COMPILED_ELEMENTS,
            "hpcc": HPCC_ORDER,
            "linpack": settings.benchmark,
        }
        size = sizes.get(what, settings.file)
        job = jobs.Benchmark.model_validate({"netns": pair[0].netns, "what": what, "size": size})
        found = results.benchmark(pair[0].host.run(job))
        return [Series(k, _UNITS.get(k, "MB/s"), [v]) for k, v in found.items()]


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
