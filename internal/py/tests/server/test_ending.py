"""How a server ends, and what signals do."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from vigia_service.server.threads import Threads
from vigia_testing import eventually

from .serving import PATIENCE, head, read_all, read_answer, serving, status_of


def test_requests_at_work_are_answered_and_idle_connections_are_closed() -> None:
    with serving(stop_seconds=PATIENCE) as running, running.connect() as idle, running.connect() as working:
        idle.sendall(head("GET", "/-/healthy"))
        read_answer(idle)
        working.sendall(head("GET", "/wait"))
        eventually(lambda: running.gate.inside, "a request at work")
        running.server.stop()
        assert read_all(idle) == b""
        assert running.thread.is_alive()
        running.gate.opened.set()
        raw = read_all(working)
        assert raw.endswith(b"waited\n") and b"Connection: close" in raw
        running.thread.join(PATIENCE)
        assert not running.thread.is_alive()
        with pytest.raises(ConnectionRefusedError):
            running.connect()


def test_requests_that_never_end_are_cut_off() -> None:
    with serving(stop_seconds=0.2) as running, running.connect() as working:
        working.sendall(head("GET", "/wait"))
        eventually(lambda: running.gate.inside, "a request at work")
        running.server.stop()
        running.thread.join(PATIENCE)
        assert not running.thread.is_alive(), "though its thread still waits"
        assert read_all(working) == b""


def test_stopping_twice_does_no_harm() -> None:
    with serving() as running:
        assert status_of(running.get()) == 200
        running.server.stop()
        running.thread.join(PATIENCE)
        running.server.stop()


def test_a_loop_that_is_held_up_does_not_answer() -> None:
    held = threading.Event()
    with serving() as running:
        assert status_of(running.get()) == 200, "it runs"
        running.server.loop.call_soon_threadsafe(held.wait)
        try:
            assert not running.server.answers(0.05)
        finally:
            held.set()
        assert running.server.answers(PATIENCE)
        running.server.stop()
        running.thread.join(PATIENCE)
        assert running.server.answers(0.0), "it need not: it has ended"


PROGRAM = """
import signal, sys
from vigia_service.server import Server, listen

def hung_up():
    print("hung up", flush=True)

def app(environ, start):
    start("200 OK", [])
    return [b"served"]

server = Server(app, [listen(sys.argv[1])], signals={signal.SIGHUP: hung_up})
print(server.addresses[0], flush=True)
server.run()
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals(number: signal.Signals, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, f"unix:{tmp_path}/s"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"unix:{tmp_path}/s\n"
        eventually(lambda: _handles(process.pid, signal.SIGHUP), "the handlers in place")
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "hung up\n"
        process.send_signal(number)
        assert process.stdout.readline() == "ended\n"
        assert process.wait(PATIENCE) == 0


def _handles(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_threads_do_their_work_in_order_and_survive_mistakes(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    finished = threading.Event()

    def fail() -> None:
        raise RuntimeError("a mistake of the work")

    threads = Threads("worker", 1)
    threads.submit(fail)
    for i in range(10):
        threads.submit(lambda i=i: done.append(i))  # type: ignore[misc]
    threads.submit(finished.set)
    assert finished.wait(PATIENCE)
    assert done == list(range(10))
    assert "a mistake of the work" in caplog.text
    threads.close()
    eventually(lambda: not any(t.is_alive() for t in threads._threads), "the threads to end")
