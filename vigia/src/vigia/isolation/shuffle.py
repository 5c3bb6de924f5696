"""A job that shuffles: python -m vigia.isolation.shuffle, as the shuffle of a MapReduce job.

Every machine fetches a partition from every other one, a few at a time, and the job
is over when the last machine has its last one. Its order is JSON on standard input.
One process holds the sockets of all machines, each made inside its machine's
namespace: what the job takes of the processor does not grow with their number.
"""

from __future__ import annotations

import json
import random
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from vigia.host import netns

__all__ = ["ShuffleOrder", "ShuffleResult", "command", "encode", "main", "shuffle"]

_CHUNK = 64 << 10
_GRACE = 10  # seconds


@dataclass(frozen=True)
class ShuffleOrder:
    """What the job is."""

    machines: Sequence[tuple[str, str]]
    """namespace and address of each"""
    partition: int
    """bytes that each machine fetches from each other one"""
    parallel: int
    """fetches of one machine at a time"""
    port: int
    start: float
    """moment of CLOCK_MONOTONIC at which it begins, in seconds"""
    longest: float
    """seconds after which it is given up"""
    seed: int = 0
    """of the order in which machines fetch"""


@dataclass(frozen=True)
class ShuffleResult:
    """What became of the job."""

    seconds: float | None
    """until the last machine had everything; None if it was given up"""
    fetched: int
    """bytes that arrived"""
    machines: Sequence[float | None]
    """seconds until each machine had everything"""


@dataclass
class _Fetching:
    """What a machine still wants."""

    waiting: list[int]
    open: int = 0
    done: float | None = None


@dataclass
class _Job:
    order: ShuffleOrder
    selector: selectors.BaseSelector
    stack: ExitStack
    fetching: list[_Fetching] = field(default_factory=list)
    left: dict[socket.socket, int] = field(default_factory=dict)
    """what a served connection has not been given yet, or what a fetching one lacks"""
    fetched: int = 0
    buffer: bytearray = field(default_factory=lambda: bytearray(256 << 10))

    def listen(self) -> None:
        for place, (namespace, address) in enumerate(self.order.machines):
            netns.enter(namespace)
            server = self.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((address, self.order.port))
            server.listen(len(self.order.machines))
            server.setblocking(False)
            self.selector.register(server, selectors.EVENT_READ, ("accept", place))

    def plan(self) -> None:
        order = random.Random(self.order.seed)  # noqa: S311 - an order, not a secret
        count = len(self.order.machines)
        for place in range(count):
            others = [n for n in range(count) if n != place]
            order.shuffle(others)
            self.fetching.append(_Fetching(others))

    def fetch_more(self, place: int) -> None:
        machine = self.fetching[place]
        if machine.open >= self.order.parallel or not machine.waiting:
            return
        netns.enter(self.order.machines[place][0])
        while machine.open < self.order.parallel and machine.waiting:
            source = machine.waiting.pop()
            sock = self.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            sock.setblocking(False)
            with suppress(BlockingIOError):
                sock.connect((self.order.machines[source][1], self.order.port))
            self.left[sock] = self.order.partition
            machine.open += 1
            self.selector.register(sock, selectors.EVENT_READ, ("fetch", place))

    def accept(self, server: socket.socket) -> None:
        with suppress(BlockingIOError):
            sock, _ = server.accept()
            self.stack.enter_context(sock)
            sock.setblocking(False)
            self.left[sock] = self.order.partition
            self.selector.register(sock, selectors.EVENT_WRITE, ("serve", -1))

    def serve(self, sock: socket.socket, data: memoryview) -> None:
        with suppress(BlockingIOError):
            self.left[sock] -= sock.send(data[: self.left[sock]])
        if not self.left[sock]:
            self._close(sock)

    def fetch(self, sock: socket.socket, place: int) -> None:
        try:
            count = sock.recv_into(self.buffer)
        except BlockingIOError:
            return
        except OSError as e:
            raise SystemExit(f"machine {place + 1}: {e.strerror}") from e
        self.left[sock] -= count
        self.fetched += count
        if count and self.left[sock]:
            return
        if self.left[sock]:
            raise SystemExit(f"machine {place + 1}: a partition ended {self.left[sock]} bytes early")
        self._close(sock)
        machine = self.fetching[place]
        machine.open -= 1
        self.fetch_more(place)
        if not machine.open and not machine.waiting:
            machine.done = time.monotonic() - self.order.start

    def _close(self, sock: socket.socket) -> None:
        self.selector.unregister(sock)
        del self.left[sock]
        sock.close()


def shuffle(order: ShuffleOrder) -> ShuffleResult:
    """Run the job to its end, or for the longest time it may take."""
    end = order.start + order.longest
    data = memoryview(bytes(_CHUNK))
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        job = _Job(order, selector, stack)
        job.listen()
        job.plan()
        time.sleep(max(0.0, order.start - time.monotonic()))
        for place in range(len(order.machines)):
            job.fetch_more(place)
        while any(m.done is None for m in job.fetching) and (now := time.monotonic()) < end:
            for key, _ in selector.select(min(0.1, end - now)):
                kind, place = key.data
                sock = key.fileobj
                assert isinstance(sock, socket.socket)  # noqa: S101 - for the type checker
                if kind == "accept":
                    job.accept(sock)
                elif kind == "serve":
                    job.serve(sock, data)
                else:
                    job.fetch(sock, place)
        times = [m.done for m in job.fetching]
        known = [t for t in times if t is not None]
        return ShuffleResult(max(known) if len(known) == len(times) else None, job.fetched, times)


def main() -> int:
    """Carry out the order on standard input."""
    given: Mapping[str, Any] = json.load(sys.stdin)
    order = ShuffleOrder(**given)
    signal.alarm(round(order.start - time.monotonic() + order.longest) + _GRACE)
    sys.stdout.write(json.dumps(asdict(shuffle(order))))
    return 0


def command() -> list[str]:
    """Return the command line of a job."""
    return [sys.executable, "-m", "vigia.isolation.shuffle"]


def encode(order: ShuffleOrder) -> str:
    """Return an order as the job reads it."""
    return json.dumps(asdict(order))


if __name__ == "__main__":
    sys.exit(main())
