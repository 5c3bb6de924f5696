"""The closed list of programs that a campaign runs, on this machine or through a node's agent.

A job is data with bounds; its command line is made from it where it runs, so
nothing that comes over the network becomes a command.
"""

from __future__ import annotations

import ipaddress
import math
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from vigia.errors import VigiaError
from vigia.host import commands
from vigia_config import Strict

__all__ = ["Benchmark", "IperfClient", "IperfServer", "Job", "Ping", "Probe", "adapter", "argv"]

Port = Annotated[int, Field(ge=1024, le=65535)]
Duration = Annotated[float, Field(ge=1, le=3600)]
Netns = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class _Place(Strict):
    netns: Netns | None = Field(default=None, description="Network namespace, a name in /run/netns.")


class IperfServer(_Place):
    """Answers one iperf3 client, then ends."""

    kind: Literal["iperf3-server"] = "iperf3-server"
    address: ipaddress.IPv4Address
    port: Port


class IperfClient(_Place):
    """Sends to an iperf3 server."""

    kind: Literal["iperf3-client"] = "iperf3-client"
    address: ipaddress.IPv4Address
    port: Port
    protocol: Literal["tcp", "udp"] = "tcp"
    duration: Duration
    warm_up: Annotated[float, Field(ge=0, le=60)] = 0
    threads: Annotated[int, Field(ge=1, le=64)] = 1
    rate: Annotated[
        int, Field(ge=0, description="Bits per second of all streams together; 0 is unbounded.")
    ] = 0
    both_ways: bool = False
    buffer: Annotated[int, Field(ge=0, le=1 << 26)] = 0
    message: Annotated[int, Field(ge=0, le=65507)] = 0


class Ping(_Place):
    """Sends ICMP echoes and prints each round trip."""

    kind: Literal["ping"] = "ping"
    source: ipaddress.IPv4Address
    address: ipaddress.IPv4Address
    count: Annotated[int, Field(ge=1, le=100_000)]
    interval: Annotated[float, Field(ge=0.002, le=60)] = 0.2
    payload: Annotated[int, Field(ge=0, le=65507)] = 56


class Probe(_Place):
    """Sends timed packets to a STAMP reflector, by vigia-probe."""

    kind: Literal["probe"] = "probe"
    source: ipaddress.IPv4Address
    address: ipaddress.IPv4Address
    port: Annotated[int, Field(ge=1, le=65535)] = 862
    source_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """0 lets the kernel choose."""
    count: Annotated[int, Field(ge=1, le=1_000_000)]
    interval: Annotated[float, Field(ge=0.0001, le=60)]
    size: Annotated[int, Field(ge=44, le=65507)] = 64
    dscp: Annotated[int, Field(ge=0, le=63)] = 0


class Benchmark(_Place):
    """Measures the host itself; see vigia.campaign.benchmarks."""

    kind: Literal["benchmark"] = "benchmark"
    what: Literal["stream", "stream-c", "hpcc", "linpack", "disk", "disk-direct", "disk-fsync"]
    size: Annotated[int, Field(ge=1, le=100_000_000)]


Job = Annotated[IperfServer | IperfClient | Ping | Probe | Benchmark, Field(discriminator="kind")]

adapter: TypeAdapter[Job] = TypeAdapter(Job)
"""Reads a job from JSON, strictly."""

_PACKAGES = {"iperf3": "iperf3", "ping": "iputils-ping"}


def seconds(job: Job) -> float:
    """Return how long a job may take before it is taken for hung."""
    match job:
        case IperfServer():
            return 7200.0
        case IperfClient():
            return job.duration + math.ceil(job.warm_up) + 30
        case Ping() | Probe():
            return job.count * job.interval + 30
        case Benchmark():
            return 900.0


def argv(job: Job, probe: str, python: str) -> list[str]:
    """Return a job's command line; probe and python are where these programs are. Raises VigiaError."""
    match job:
        case IperfServer():
            words = ["iperf3", "--server", "--one-off", "--json"]
            words += ["--bind", str(job.address), "--port", str(job.port)]
        case IperfClient():
            words = _iperf_client(job)
        case Ping():
            words = ["ping", "-n", "-c", str(job.count), "-i", f"{job.interval:g}", "-W", "2"]
            words += ["-s", str(job.payload), "-I", str(job.source), str(job.address)]
        case Probe():
            words = [
                probe,
                "once",
                "--json",
                "--to",
                f"{job.address}:{job.port}",
                "--source",
                _source(job),
            ]
            words += ["--count", str(job.count), "--interval", f"{job.interval * 1e6:.0f}us"]
            words += ["--size", str(job.size), "--dscp", str(job.dscp)]
        case Benchmark():
            words = [python, "-m", "vigia.campaign.benchmarks", job.what, str(job.size)]
    if "/" not in words[0] and commands.find(words[0]) is None:
        raise VigiaError(f"{words[0]} is not installed; run: apt-get install {_PACKAGES[words[0]]}")
    return words


def _source(job: Probe) -> str:
    return f"{job.source}:{job.source_port}" if job.source_port else str(job.source)


def _iperf_client(job: IperfClient) -> list[str]:
    words = ["iperf3", "--client", str(job.address), "--port", str(job.port), "--json"]
    words += ["--connect-timeout", "10000", "--time", f"{job.duration:.0f}", "--parallel", str(job.threads)]
    if job.protocol == "udp":
        # iperf3 counts the rate per stream.
        words += ["--udp", "--bitrate", str(job.rate // job.threads)]
    elif job.rate:
        words += ["--bitrate", str(job.rate // job.threads)]
    # iperf3 takes whole seconds, and would read a part of one as none.
    for option, value in (
        ("--omit", math.ceil(job.warm_up)),
        ("--window", job.buffer),
        ("--length", job.message),
    ):
        if value:
            words += [option, str(value)]
    return [*words, "--bidir"] if job.both_ways else words
