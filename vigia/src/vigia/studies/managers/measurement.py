"""E4: what a site gives: network, memory, processor, disk, on the host or inside a tenant."""

from __future__ import annotations

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
        "benchmark": ("network", "stream", "linpack", "disk"),
    }

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""
        traffic = settings.duration + settings.warm_up
        match factors["benchmark"]:
            case "network":
                return Estimate(traffic + _START, _FASTEST / 8 * traffic)
            case "linpack":
                return Estimate(settings.benchmark**3 * 2 / 3 / _FLOPS + _START, 0.0)
            case "disk":
                return Estimate(4 * settings.file / 500 + 4 * _START, 0.0)
            case _:
                return Estimate(2 * _START, 0.0)

    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""
        pair = testbed.pairs(level(factors, "site"), "cross-node", 2)[0]
        what = level(factors, "benchmark")
        if what == "network":
            return _network(pair, settings)
        sizes = {"stream": ELEMENTS, "linpack": settings.benchmark, "disk": settings.file}
        job = jobs.Benchmark.model_validate({"netns": pair[0].netns, "what": what, "size": sizes[what]})
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
