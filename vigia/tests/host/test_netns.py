"""Entering namespaces, and keeping hold of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vigia.errors import VigiaError
from vigia.host import netns

pytestmark = pytest.mark.netns


@pytest.fixture
def namespaces(root: None) -> Iterator[list[str]]:
    names = [f"vigia-test-netns-{os.getpid()}-{i}" for i in range(2)]
    for name in names:
        subprocess.run(["ip", "netns", "add", name], check=True)
    yield names
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def own() -> str:
    return str(Path("/proc/thread-self/ns/net").readlink())


def test_inside(namespaces: list[str]) -> None:
    before, threads = own(), set(threading.enumerate())
    assert netns.inside(namespaces[0], own) == f"net:[{netns.inode(namespaces[0])}]"
    assert own() == before, "the caller stays where it is"
    assert set(threading.enumerate()) <= threads, "nothing is left running"


def test_inside_gives_sockets_of_the_namespace(namespaces: list[str]) -> None:
    """Only there port 9 of this address can be taken twice."""
    listeners = [netns.inside(name, lambda: socket.create_server(("0.0.0.0", 9))) for name in namespaces]
    for s in listeners:
        s.close()
    assert len(listeners) == 2


def test_inside_hands_on_errors(namespaces: list[str]) -> None:
    def fail() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        netns.inside(namespaces[0], fail)


def test_inside_of_nothing(root: None) -> None:
    with pytest.raises(VigiaError, match="network namespace vigia-test-none does not exist"):
        netns.inside("vigia-test-none", own)


def test_interrupted_inside_leaves_nothing_running(namespaces: list[str]) -> None:
    """A signal that raises while a namespace is entered waits for the work to end."""
    code = f"""
import signal, threading, time
from vigia.host import netns
def stop(number, frame): raise InterruptedError
signal.signal(signal.SIGALRM, stop)
done = []
def work():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
    time.sleep(0.3)
    done.append(True)
try:
    netns.inside({namespaces[0]!r}, work)
except InterruptedError:
    print("interrupted", done, threading.active_count())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "interrupted [True] 1\n"


def test_names(namespaces: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert netns.names(f"vigia-test-netns-{os.getpid()}-") == namespaces
    assert netns.names("vigia-test-nothing-") == []
    monkeypatch.setattr(netns, "DIRECTORY", tmp_path / "absent")
    assert netns.names("") == []


def test_inode(namespaces: list[str]) -> None:
    first, second = map(netns.inode, namespaces)
    assert first and second and first != second
    assert netns.inode("vigia-test-none") is None


def test_who_is_inside(namespaces: list[str], wait_until: Callable[..., None]) -> None:
    child = subprocess.Popen(["ip", "netns", "exec", namespaces[0], "sleep", "60"])
    here, other = ({number} for number in map(netns.inode, namespaces) if number)
    try:
        wait_until(lambda: netns.is_inside(child.pid, here), "ip enters the namespace")
        assert not netns.is_inside(child.pid, other)
        assert not netns.is_inside(os.getpid(), here)
    finally:
        child.kill()
        child.wait()
    assert not netns.is_inside(child.pid, here)


def test_held_namespaces_keep_their_numbers(namespaces: list[str]) -> None:
    """A number that is given to another namespace would have a stranger's processes stopped."""
    number = netns.inode(namespaces[0])
    assert number is not None
    with netns.held([*namespaces, "vigia-test-none"]) as held:
        assert held == {number, netns.inode(namespaces[1])}
        for name in namespaces:
            subprocess.run(["ip", "netns", "del", name], check=True)
        for name in namespaces:
            subprocess.run(["ip", "netns", "add", name], check=True)
        assert {netns.inode(name) for name in namespaces}.isdisjoint(held)


def test_entering_needs_root(namespaces: list[str]) -> None:
    """Without rights there is a line that says so, no traceback."""
    code = (
        "import os; from vigia import errors; from vigia.host import netns\n"
        "os.setuid(65534)\n"
        f"try: netns.inside({namespaces[0]!r}, lambda: None)\n"
        "except errors.VigiaError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"network namespace {namespaces[0]} cannot be entered: setns: Operation not permitted; run as root\n"
    )
