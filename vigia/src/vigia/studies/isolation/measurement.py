"""E3: round trips of ICMP echoes, small and of the largest size, and bandwidth, on each path."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vigia.campaign import jobs, results
from vigia.campaign.model import Settings
from vigia.campaign.samples import Series
from vigia.campaign.testbed import Pair, Testbed
from vigia.studies.study import Estimate, Factors, Measurement, level

__all__ = ["LARGEST", "MEASUREMENT", "SMALL", "Isolation"]

SMALL = 56
"""Payload of a 64-byte ICMP message."""

LARGEST = 65507
"""Payload of the largest ICMP message, 65 515 bytes; with the IP header that is 65 535."""

_PORT = 5201
_FASTEST = 10e9
_SMALL_RATE = 1_000_000_000  # bits per second of 64-byte datagrams: more than a host sends
_OVERHEAD = 0.5


class Isolation(Measurement):
    """ping while nothing else runs, then iperf3: TCP, and UDP with packets of 64 bytes."""

    factors: Mapping[str, Sequence[str] | None] = {"path": None}

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""
        echoes = 2 * (settings.probes + 1) * settings.interval
        seconds = settings.warm_up + settings.duration
        return Estimate(echoes + 2 * seconds + _OVERHEAD, _FASTEST / 8 * seconds * 1.2)

    def described(self, settings: Settings) -> str:
        """Return how one repetition is made."""
        return (
            f"{settings.probes} ICMP echoes of 64 bytes, then as many of 65 515, one every "
            f"{settings.interval * 1e3:g} ms; then {settings.duration:g} s of TCP by iperf3, and as long of "
            f"UDP in 64-byte datagrams, {math.ceil(settings.warm_up)} s before each left out"
        )

    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""
        pair = testbed.pairs(level(factors, "path"), "cross-node", 2)[0]
        return [
            Series("rtt_small", "s", _echoes(pair, settings, SMALL)),
            Series("rtt_saturated", "s", _echoes(pair, settings, LARGEST)),
            *_bandwidth(pair, settings),
        ]


MEASUREMENT = Isolation()


def _echoes(pair: Pair, settings: Settings, payload: int) -> list[float]:
    """Return the round trips of settings.probes echoes after a first one, which finds addresses."""
    source, sink = pair
    printed = source.host.run(
        jobs.Ping(
            netns=source.netns,
            source=source.address,
            address=sink.address,
            count=settings.probes + 1,
            interval=settings.interval,
            payload=payload,
        )
    )
    return results.echoes(printed, settings.probes + 1)[1:]


def _bandwidth(pair: Pair, settings: Settings) -> list[Series]:
    tcp = _run(pair, settings, "tcp", 0)
    udp = _run(pair, settings, "udp", 64)
    packets = (udp.packets or 0) * (1 - (udp.lost or 0.0)) / udp.seconds
    return [
        Series("bandwidth", "bit/s", [tcp.received]),
        Series("small_packets", "packets/s", [packets]),
        Series("small_packets_lost", "ratio", [udp.lost or 0.0]),
    ]


def _run(pair: Pair, settings: Settings, protocol: str, message: int) -> results.Traffic:
    source, sink = pair
    with sink.host.serving(jobs.IperfServer(netns=sink.netns, address=sink.address, port=_PORT)):
        client = jobs.IperfClient.model_validate(
            {
                "netns": source.netns,
                "address": sink.address,
                "port": _PORT,
                "protocol": protocol,
                "duration": settings.duration,
                "warm_up": settings.warm_up,
                "rate": _SMALL_RATE if protocol == "udp" else 0,
                "buffer": settings.buffer if protocol == "udp" else 0,
                "message": message,
            }
        )
        return results.traffic(source.host.run(client))
