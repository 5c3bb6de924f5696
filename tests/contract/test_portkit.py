"""Ports are given to one test alone, also where tests of several processes ask at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import portkit
import pytest
from labkit import ROOT

FEW = 6
OURS = range(32_000, 32_376, FEW)
"""First ports of a few each, between those of tests in Go, of benchmarks and the kernel's: nobody is given them meanwhile."""


def narrow(monkeypatch: pytest.MonkeyPatch) -> range:
    """Have only a few ports to give, which nobody has."""
    start = os.getpid() % len(OURS)
    first = next(p for p in (*OURS[start:], *OURS[:start]) if free(p))
    monkeypatch.setattr(portkit, "_FIRST", first)
    monkeypatch.setattr(portkit, "_LAST", first + FEW - 1)
    return range(first, first + FEW)


def free(first: int) -> bool:
    """Whether nobody has a port of a few, and no other test was given one."""
    if portkit._bound() & set(range(first, first + FEW)):
        return False
    for port in range(first, first + FEW):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            try:
                s.bind(f"\0vigia-test-port-{port}")
            except OSError:
                return False
    return True


def test_no_port_is_given_twice() -> None:
    first, second = portkit.free_ports(20), portkit.free_ports(20)
    assert len({*first, *second}) == 40


def test_a_port_that_a_socket_has_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    few = narrow(monkeypatch)
    with (
        socket.socket() as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp6,
    ):
        tcp.bind(("127.0.0.9", few[0]))
        tcp.listen()
        udp.bind(("127.0.0.1", few[1]))
        udp6.bind(("::1", few[2]))
        assert sorted(portkit.free_ports(FEW - 3)) == list(few[3:])
        with pytest.raises(AssertionError, match=f"fewer than 1 ports from {few[0]} on are free"):
            portkit.free_ports(1)


def test_another_process_is_not_given_it_until_this_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    few = narrow(monkeypatch)
    code = (
        "import portkit, sys; portkit._FIRST, portkit._LAST = int(sys.argv[1]), int(sys.argv[2])\n"
        "print(*portkit.free_ports(int(sys.argv[3])), flush=True); sys.stdin.read()"
    )

    def start(count: int) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", code, str(few[0]), str(few[-1]), str(count)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        return subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    with start(FEW - 1) as other:
        assert other.stdout is not None
        theirs = {int(word) for word in other.stdout.readline().split()}
        assert len(theirs) == FEW - 1
        ours = portkit.free_port()
        assert {ours, *theirs} == set(few)
        other.communicate()
    with start(FEW - 1) as again:
        assert again.stdout is not None
        assert {int(word) for word in again.stdout.readline().split()} == theirs
        again.communicate()
