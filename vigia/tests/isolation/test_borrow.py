"""What TCP sends again is counted from the neighbours' beginning on."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from vigia.host import commands, netns
from vigia.isolation.borrow import _ALONE, _Counter
from vigia_testing import eventually

NOBODY_HERE = "192.0.2.9"


@pytest.fixture
def silent(root: None) -> Iterator[str]:
    """A namespace in which what is sent to NOBODY_HERE gets no answer."""
    name = f"vigia-borrow-{os.getpid()}"
    commands.ip_batch([f"netns add {name}"])
    try:
        neighbour = f"neigh add {NOBODY_HERE} lladdr 02:00:00:00:00:09 dev void"
        for command in (
            "link add void type veth peer name far",
            "addr add 192.0.2.1/24 dev void",
            "link set void up",
            "link set far up",
            neighbour,
        ):
            commands.run(["ip", *command.split()], netns=name)
        yield name
    finally:
        commands.ip_batch([f"netns del {name}"])


def calling(namespace: str) -> socket.socket:
    """Begin a connection that nobody answers: the kernel sends its SYN again and again."""

    def begin() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.connect_ex((NOBODY_HERE, 9))
        return sock

    return netns.inside(namespace, begin)


def test_what_was_sent_again_before_the_neighbours_began_is_left_out(silent: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        early, late = _Counter(silent, pool), _Counter(silent, pool)
        early.begin(time.monotonic() - _ALONE)  # neighbours begin now
        assert early.share() == 0
        with calling(silent):
            eventually(lambda: early.share() >= 1, lambda: f"a SYN to be sent again: {early.share()}")
            late.begin(time.monotonic() - _ALONE)
            assert late.share() < early.share(), "the first is not the neighbours'"
            eventually(lambda: late.share() >= 1, lambda: f"it to be sent once more: {late.share()}")
            again = late.share()
            assert again < early.share()


def test_nothing_is_counted_until_the_neighbours_begin(silent: str) -> None:
    with ThreadPoolExecutor(1) as pool, calling(silent):
        counter = _Counter(silent, pool)
        begin = time.monotonic()
        counter.begin(begin + 2 - _ALONE)
        counter.share()
        assert time.monotonic() >= begin + 2, "the flows' own beginning was counted"
