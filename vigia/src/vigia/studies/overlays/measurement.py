"""E1: throughput of simultaneous connections, with timed packets beside them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from vigia.campaign import jobs, results
from vigia.campaign.model import Settings
from vigia.campaign.samples import Series
from vigia.campaign.testbed import Pair, Testbed
from vigia.errors import VigiaError
from vigia.studies.study import Estimate, Factors, Measurement, level, whole
from vigia_config import parse_rate

__all__ = ["MEASUREMENT", "Overlays"]

UNLIMITED = "unlimited"
_PORT = 5201
_FASTEST = 10e9  # bits per second, for the estimate of an unlimited rate
_OVERHEAD = 0.6  # seconds to start and end the programs of a repetition


class Overlays(Measurement):
    """Traffic by iperf3 between all pairs at once, and the probe's packets on each pair meanwhile."""

    factors: Mapping[str, Sequence[str] | None] = {
        "path": None,
        "placement": ("same-node", "cross-node"),
        "machines": None,
        "protocol": ("tcp", "udp"),
        "direction": ("one-way", "both-ways"),
        "rate": None,
        "datagram": ("fits", "fragments"),
    }
    """datagram is of UDP: it fits the MTU, or has settings.message bytes and goes in fragments."""

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""
        seconds = settings.warm_up + settings.duration
        connections = whole(factors, "machines") // 2
        rate = bits(factors) or _FASTEST / connections
        ways = 2 if factors["direction"] == "both-ways" else 1
        return Estimate(seconds + _OVERHEAD, rate / 8 * seconds * connections * ways)

    def described(self, settings: Settings) -> str:
        """Return how one repetition is made."""
        left_out = math.ceil(settings.warm_up)
        return (
            f"{settings.duration:g} s of iperf3 between all pairs at once, {left_out} s before it left out, "
            f"{settings.threads} streams for each pair, socket buffers of {settings.buffer} bytes, writes of "
            f"{settings.message} bytes (TCP, and UDP in fragments) or {settings.datagram} bytes (UDP that "
            f"fits the MTU); a timed packet every {settings.interval * 1e3:g} ms on each pair meanwhile"
        )

    def completed(self, factors: Factors, settings: Settings) -> Factors:
        """Return a cell with its datagram: earlier versions sent UDP as they sent TCP."""
        too_large = factors["protocol"] == "udp" and settings.message > settings.datagram
        return {**factors, "datagram": factors.get("datagram", "fragments" if too_large else "fits")}

    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""
        pairs = testbed.pairs(level(factors, "path"), level(factors, "placement"), whole(factors, "machines"))
        with ExitStack() as stack:
            for i, (_, sink) in enumerate(pairs):
                server = jobs.IperfServer(netns=sink.netns, address=sink.address, port=_PORT + i)
                stack.enter_context(sink.host.serving(server))
            pool = stack.enter_context(ThreadPoolExecutor(max_workers=2 * len(pairs)))
            traffic = [pool.submit(_traffic, i, pair, factors, settings) for i, pair in enumerate(pairs)]
            time.sleep(settings.warm_up)
            timed = [pool.submit(_timed, i, pair, settings) for i, pair in enumerate(pairs)]
            return [series for done in (*traffic, *timed) for series in done.result()]


MEASUREMENT = Overlays()


def bits(factors: Factors) -> int:
    """Return the rate of one connection in bits per second, 0 for unlimited. Raises VigiaError."""
    text = level(factors, "rate")
    if text == UNLIMITED:
        return 0
    try:
        return parse_rate(text) * 8
    except ValueError as e:
        raise VigiaError(f'the rate "{text}" {e}; or write {UNLIMITED}') from e


def _traffic(connection: int, pair: Pair, factors: Factors, settings: Settings) -> list[Series]:
    source, sink = pair
    udp = factors["protocol"] == "udp"
    done = results.traffic(
        source.host.run(
            jobs.IperfClient(
                netns=source.netns,
                address=sink.address,
                port=_PORT + connection,
                protocol="udp" if udp else "tcp",
                duration=settings.duration,
                warm_up=settings.warm_up,
                threads=settings.threads,
                rate=bits(factors),
                both_ways=factors["direction"] == "both-ways",
                buffer=settings.buffer,
                message=settings.datagram if udp and factors["datagram"] == "fits" else settings.message,
            )
        )
    )
    series = [Series("throughput", "bit/s", [done.received], connection)]
    if done.received_back is not None:
        series.append(Series("throughput_back", "bit/s", [done.received_back], connection))
    if done.lost is not None:
        series.append(Series("traffic_loss", "ratio", [done.lost], connection))
    if done.retransmits is not None:
        series.append(Series("retransmits", "segments", [float(done.retransmits)], connection))
    return series


def _timed(connection: int, pair: Pair, settings: Settings) -> list[Series]:
    source, sink = pair
    printed = source.host.run(
        jobs.Probe(
            netns=source.netns,
            source=source.address,
            address=sink.address,
            count=max(2, int(settings.duration / settings.interval)),
            interval=settings.interval,
        )
    )
    kernel, application = results.probes(printed)
    return [
        Series("rtt", "s", kernel, connection),
        Series("rtt_application", "s", application, connection),
    ]
