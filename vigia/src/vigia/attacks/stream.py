"""One end of a stream of frames: python -m vigia.attacks.stream, its order as JSON on standard input.

It enters the guest's namespace for good, so it can reach nothing else, begins at a moment
of CLOCK_MONOTONIC, ends by itself, with its parent, and by an alarm, and prints what it counted.
"""

from __future__ import annotations

import json
import math
import random
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from signal import alarm
from typing import Any

from vigia.attacks.corpus import CORPUS, Stream
from vigia.attacks.frames import MARK, StreamEnds
from vigia.flood.packets import MessageRing
from vigia.host import netns, syscalls
from vigia.isolation.traffic import BIN

__all__ = ["Order", "command", "due", "encode", "main", "mark", "receive", "send"]

_ALL = 0x0003  # ETH_P_ALL
_RCVBUFFORCE = 33  # asm-generic/socket.h
_BATCH = 32  # frames to a system call
_PAUSE = 0.0005  # seconds
_CATCH_UP = 0.02  # seconds; after a delay no more than this is caught up with
_GRACE = 15  # seconds
_RING = 2048  # frames at least


@dataclass(frozen=True)
class Order:
    """What one end of a stream does."""

    role: str
    """send or receive"""
    entry: str
    """of the corpus"""
    index: int
    """of its streams"""
    namespace: str
    ends: StreamEnds
    link: float
    """rate of a link, bytes per second"""
    start: float
    """moment of CLOCK_MONOTONIC, seconds"""
    seconds: float
    overhead: int
    """bytes that an overlay adds to a frame, which the uplink's queue counts"""
    parent: int
    """process with which this one ends"""
    seed: int = 1


def mark(index: int) -> bytes:
    """Return what every frame of a stream ends with."""
    return b"vigia" + index.to_bytes(MARK - 5, "big")


def due(stream: Stream, seconds: float) -> float:
    """Return for how many seconds of its full rate a stream has sent after so long."""
    if stream.ramp:
        rising = min(seconds, stream.ramp)
        return rising * rising / (2 * stream.ramp) + max(0.0, seconds - stream.ramp)
    if stream.on:
        whole, rest = divmod(seconds, stream.period)
        return whole * stream.on + min(rest, stream.on)
    return seconds


def ring(stream: Stream, order: Order) -> list[bytes]:
    """Return the frames that a stream repeats, with their marks."""
    made = stream.maker(order.ends, random.Random(order.seed))  # noqa: S311 - a corpus, to be repeated
    return [frame + mark(order.index) for frame in made]


def beneath(order: Order) -> float:
    """Return the share that frames have of a stream's bytes on the uplink; the overlay adds the rest."""
    frames = ring(CORPUS[order.entry].streams[order.index], order)
    own = sum(map(len, frames))
    return own / (own + len(frames) * order.overhead)


def send(order: Order) -> list[int]:
    """Send, and return the bytes of frames on the uplink by BIN seconds since the start."""
    stream = CORPUS[order.entry].streams[order.index]
    frames = ring(stream, order)
    per_frame = sum(map(len, frames)) / len(frames) + order.overhead
    rate = stream.rate * order.link / per_frame  # frames per second
    bins = [0] * math.ceil(order.seconds / BIN)
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    opened.bind(("eth0", 0))
    train = MessageRing(opened, frames, max(_RING // len(frames), 1) * len(frames))
    taken = 0.0  # frames that were sent, or are not caught up with
    time.sleep(max(0.0, order.start - time.monotonic()))
    while (since := time.monotonic() - order.start) < order.seconds:
        wanted = rate * due(stream, since)
        taken = max(taken, wanted - rate * _CATCH_UP - 1)
        if wanted - taken < 1:
            time.sleep(_PAUSE)
            continue
        sent, failed = train.send(min(int(wanted - taken), _BATCH))
        taken += sent + failed
        bins[min(int(since / BIN), len(bins) - 1)] += round(sent * per_frame)
    train.close()
    return bins


def receive(order: Order) -> list[int]:
    """Count the bytes of frames that arrive by BIN seconds since the start."""
    bins = [0] * math.ceil(order.seconds / BIN)
    buffer = bytearray(1 << 16)
    wanted = mark(order.index)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)) as s:
        s.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 8 << 20)
        s.bind(("eth0", _ALL))
        while True:  # what has arrived by the end is counted, however late this process reads it
            left = order.start + order.seconds - time.monotonic()
            s.settimeout(max(left, 0.0))
            try:
                length, (_, _, kind, _, _) = s.recvfrom_into(buffer)
            except (TimeoutError, BlockingIOError):
                break
            place = min(int((time.monotonic() - order.start) / BIN), len(bins) - 1)
            if kind != socket.PACKET_OUTGOING and place >= 0 and buffer[length - MARK : length] == wanted:
                bins[place] += length + order.overhead
    return bins


def main() -> int:
    """Carry out the order on standard input."""
    given: dict[str, Any] = json.load(sys.stdin)
    order = Order(**{**given, "ends": StreamEnds(**given["ends"])})
    syscalls.die_with_parent(order.parent)
    alarm(round(order.start - time.monotonic() + order.seconds) + _GRACE)
    netns.enter(order.namespace)
    sys.stdout.write(json.dumps(send(order) if order.role == "send" else receive(order)))
    return 0


def command() -> Sequence[str]:
    """Return the command line of an end."""
    return [sys.executable, "-m", "vigia.attacks.stream"]


def encode(order: Order) -> str:
    """Return an order as an end reads it."""
    return json.dumps(asdict(order))


if __name__ == "__main__":
    sys.exit(main())
