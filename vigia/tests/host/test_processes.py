"""Stopping processes: the right ones, for certain, and no others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vigia.host import processes

Children = list[subprocess.Popen[bytes]]

DEAF = (
    "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)


def yes(pid: int) -> bool:
    return True


def test_processes_end_when_they_are_asked_to(children: Children) -> None:
    children += [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    pids = [child.pid for child in children]
    assert processes.stop(pids, yes) == sorted(pids)
    assert [child.wait(timeout=0) for child in children] == [-15, -15, -15]


def test_a_process_that_does_not_listen_is_killed(children: Children) -> None:
    child = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
    children.append(child)
    assert child.stdout
    assert child.stdout.readline() == b"deaf\n"
    assert processes.stop([child.pid], yes, grace=0.2) == [child.pid]
    assert child.wait(timeout=0) == -9


def test_another_process_with_the_same_number_is_left_alone(children: Children) -> None:
    """ours is asked when the process is held and cannot be exchanged any more."""
    child = subprocess.Popen(["sleep", "60"])
    children.append(child)
    assert processes.stop([child.pid], lambda pid: False) == []
    assert child.poll() is None


def test_only_those_that_are_ours(children: Children) -> None:
    children += [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    mine, foreign = children
    assert processes.stop([mine.pid, foreign.pid], lambda pid: pid == mine.pid) == [mine.pid]
    assert mine.wait(timeout=0) == -15
    assert foreign.poll() is None


def test_a_process_that_has_ended() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert processes.stop([child.pid], yes) == []
    assert not processes.alive(child.pid)
    assert processes.parent(child.pid) == 0
    assert processes.arguments(child.pid) == []


def test_a_zombie_is_not_alive(children: Children, wait_until: Callable[..., None]) -> None:
    child = subprocess.Popen(["true"])
    children.append(child)
    wait_until(lambda: not processes.alive(child.pid), "the child ends, nobody waits for it")
    assert Path(f"/proc/{child.pid}").exists(), "it is a zombie, not gone"


def test_what_a_process_does(children: Children, wait_until: Callable[..., None]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    children.append(child)

    def seconds() -> float:
        found = re.fullmatch(rf"process {child.pid}: state R, processor time (\d+\.\d\d) s", doing())
        return float(found[1]) if found else 0.0

    def doing() -> str:
        return processes.activity(child.pid)

    wait_until(lambda: seconds() >= 0.3, "it uses the processor")
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: "state T" in doing(), "it is stopped")
    child.kill()
    child.wait()
    assert doing() == f"process {child.pid} has ended"


def test_what_is_known_of_a_process(children: Children, wait_until: Callable[..., None]) -> None:
    child = subprocess.Popen(["sleep", "61"])
    children.append(child)
    assert processes.alive(child.pid)
    assert processes.parent(child.pid) == os.getpid()
    wait_until(lambda: processes.arguments(child.pid) == ["sleep", "61"], "it runs")
    assert {child.pid, os.getpid(), 1} <= set(processes.all_pids())


@pytest.mark.parametrize("name", ["a b) S 1 1", "x"])
def test_the_parent_of_a_process_with_an_odd_name(children: Children, name: str) -> None:
    """The name in /proc/PID/stat may hold blanks and brackets."""
    code = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name.encode()!r}); print(1, flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    children.append(child)
    assert child.stdout
    child.stdout.readline()
    assert processes.parent(child.pid) == os.getpid()
    assert processes.alive(child.pid)


def test_a_process_in_a_container_sees_other_files(
    root: None, children: Children, wait_until: Callable[..., None]
) -> None:
    child = subprocess.Popen(["unshare", "--mount", "sleep", "60"])
    children.append(child)
    wait_until(lambda: processes.arguments(child.pid) == ["sleep", "60"], "it runs")
    assert not processes.same_files(child.pid)
    assert processes.same_files(os.getppid())
    assert not processes.same_files(1 << 22)


LISTENER = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"


def test_who_listens_is_the_process_that_has_the_socket(children: Children) -> None:
    """Another one that holds the port in the same namespace does not count: a server may yet fail to get it."""
    child = subprocess.Popen([sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    children.append(child)
    assert child.stdout
    port = int(child.stdout.readline())
    assert processes.listens(child.pid, port)
    assert not processes.listens(os.getpid(), port)
    assert not processes.listens(child.pid, port + 1 if port < 65535 else port - 1)
    child.kill()
    child.wait()
    assert not processes.listens(child.pid, port)
