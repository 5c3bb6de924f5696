"""A tenant's TCP transfer, by iperf3, with its throughput over time."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab.model import Endpoint
from vigia_service.patience import Patience

__all__ = ["Interval", "Transfer", "running"]

INTERVAL = 0.2
"""Seconds between two readings."""

_PORT = 5201
_START_SECONDS = 20.0


@dataclass(frozen=True)
class Interval:
    """Throughput over a short time."""

    begin: float
    """Unix time."""
    end: float
    bits_per_second: float
    retransmits: int


class Transfer:
    """A transfer from one endpoint to the same tenant's at the other node."""

    def __init__(self, client: subprocess.Popen[str], begin: float, seconds: float) -> None:
        self._client = client
        self.begin = begin
        """Unix time at which the client was started; its clock runs from a few milliseconds later."""
        self.seconds = seconds

    @property
    def over(self) -> bool:
        """Whether the transfer has ended."""
        return self._client.poll() is not None

    def stop(self) -> None:
        """End the transfer early; what was carried so far is still reported."""
        if self._client.poll() is None:
            self._client.send_signal(signal.SIGINT)

    def intervals(self) -> list[Interval]:
        """Wait for the end and return what was carried. Raises VigiaError if it broke."""
        try:
            out, err = self._client.communicate(timeout=self.seconds + 30)
        except subprocess.TimeoutExpired as e:
            raise VigiaError(f"iperf3 did not end after {self.seconds:g} s") from e
        try:
            report: dict[str, Any] = json.loads(out)
        except ValueError as e:
            raise VigiaError(f"iperf3 did not report: {err.strip() or out[:200]}") from e
        intervals = [_interval(self.begin, i["sum"]) for i in report["intervals"]]
        if not intervals:
            raise VigiaError(f"the TCP transfer broke: {report.get('error', 'no reading')}")
        return intervals


def _interval(start: float, given: dict[str, Any]) -> Interval:
    return Interval(
        begin=start + float(given["start"]),
        end=start + float(given["end"]),
        bits_per_second=float(given["bits_per_second"]),
        retransmits=int(given.get("retransmits", 0)),
    )


@contextmanager
def running(source: Endpoint, sink: Endpoint, seconds: float) -> Iterator[Transfer]:
    """Run a transfer while the body runs; nothing of it is left afterwards."""
    address = str(sink.address.ip)
    server = commands.spawn(
        ["iperf3", "--server", "--one-off", "--bind", address, "--port", str(_PORT), "--json"],
        netns=sink.netns,
    )
    try:
        client, begin = _connect(source, address, seconds, server)
        try:
            yield Transfer(client, begin, seconds)
        finally:
            _end(client)
    finally:
        _end(server)


def _connect(
    source: Endpoint, address: str, seconds: float, server: subprocess.Popen[str]
) -> tuple[subprocess.Popen[str], float]:
    """Start the client, again while the server is not listening yet."""
    argv = ["iperf3", "--client", address, "--port", str(_PORT), "--time", f"{seconds:.0f}"]
    argv += ["--interval", str(INTERVAL), "--connect-timeout", "5000", "--json"]
    patience = Patience(_START_SECONDS)
    while True:
        begin = time.time()
        client = commands.spawn(argv, netns=source.netns)
        try:
            client.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            return client, begin
        out, err = client.communicate()
        if server.poll() is not None:
            _, why = server.communicate()
            raise VigiaError(f"the iperf3 server ended: {why.strip()}")
        if patience.over():
            raise VigiaError(f"iperf3 cannot connect to {address}: {err.strip() or out.strip()[-200:]}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()
