"""A service that hangs ends, so that whoever started it starts it again; one that does not stays."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from vigia_testing import DEADLINE, start_python

WATCHED = """
import itertools, threading
from vigia_service import watchdog
watchdog._LOOKS = {looks}
with watchdog.Watchdog({hung}, patience={patience}):
    print("running", flush=True)
    {work}
print("done", flush=True)
"""

FOREVER = "threading.Event().wait()"


def under_systemd(notify: str, code: str, watched: str = "os.getpid()") -> str:
    """A program as systemd starts it with WatchdogSec=."""
    return f"""
import os
os.environ.update(NOTIFY_SOCKET={notify!r}, WATCHDOG_PID=str({watched}))
from vigia_service import logs
logs.setup()
{code}"""


@pytest.mark.parametrize(
    ("hung", "work"),
    [
        ('lambda: "nothing moves"', "threading.Event().wait()"),
        ('lambda: threading.Event().wait() or ""', "threading.Event().wait()"),
        ('lambda: ""', "max(itertools.repeat(0))"),
    ],
    ids=["told", "who tells hangs too", "no Python code runs"],
)
def test_what_hangs_ends_and_says_where(hung: str, work: str) -> None:
    process = start_python(WATCHED.format(hung=hung, work=work, looks=50, patience=10))
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (1, "running\n")
    assert "Timeout (" in err
    assert "most recent call first" in err
    assert 'File "<string>", line 7' in err, "where the main thread stood"


def test_what_does_not_hang_stays_and_may_recover() -> None:
    code = """
looks, seen = iter([*["busy"] * 3, *[""] * 3, *["busy"] * 3, ""]), threading.Event()
def hung():
    why = next(looks, None)
    if why is None:
        seen.set()
    return why or ""
"""
    watched = WATCHED.format(hung="hung", work="seen.wait()", looks=600, patience=30)
    imports, _, rest = watched.partition("with ")
    process = start_python(f"{imports}{code}with {rest}")
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (0, "running\ndone\n")
    assert err.count("cannot go on") == 2, "once each time"
    assert "Timeout (" not in err


@pytest.mark.parametrize("abstract", [False, True])
def test_the_watchdog_of_systemd_is_told_while_nothing_hangs(tmp_path: Path, abstract: bool) -> None:
    address = f"\0vigia-test-{tmp_path}" if abstract else str(tmp_path / "notify")
    notify = address.replace("\0", "@")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(DEADLINE)
        works = start_python(
            under_systemd(notify, WATCHED.format(hung='lambda: ""', work=FOREVER, looks=80, patience=8))
        )
        try:
            assert [systemd.recv(64) for _ in range(3)] == [b"WATCHDOG=1"] * 3, (
                "at the start, and again and again"
            )
        finally:
            works.kill()
            works.communicate()
        systemd.setblocking(False)
        with suppress(BlockingIOError):
            while systemd.recv(64):
                pass
        hangs = start_python(
            under_systemd(notify, WATCHED.format(hung='lambda: "why"', work=FOREVER, looks=20, patience=4))
        )
        hangs.communicate(timeout=DEADLINE)
        assert systemd.recv(64) == b"WATCHDOG=1"
        with pytest.raises(BlockingIOError):  # it was told at the start alone
            systemd.recv(64)


@pytest.mark.parametrize(
    ("notify", "watched", "says"),
    [
        ("/nowhere/notify", "1", ""),
        ("", "os.getpid()", ""),
        ("/nowhere/notify", "os.getpid()", "cannot tell systemd's watchdog"),
    ],
    ids=["another process is watched", "no systemd", "it does not listen"],
)
def test_a_watchdog_that_cannot_be_told_ends_nothing(notify: str, watched: str, says: str) -> None:
    code = WATCHED.format(hung='lambda: ""', work="pass", looks=6, patience=60)
    out, err = start_python(under_systemd(notify, code, watched)).communicate(timeout=DEADLINE)
    assert out == "running\ndone\n"
    assert says in err and bool(says) == bool(err), err


SERVED = """
import threading
from vigia_service import logs, watchdog
from vigia_service.server import Limits, Server, listen
watchdog._LOOKS = {looks}
watchdog._ANSWER_WITHIN = {within}
logs.setup()
def application(environ, start_response):
    start_response("204 No Content", [])
    return []
server = Server(application, [listen("127.0.0.1:0")], Limits(threads=1))
def hang():
    server._ready.wait()
    server.loop.call_soon_threadsafe({work})
threading.Thread(target=hang, daemon=True).start()
with watchdog.Watchdog(lambda: watchdog.web_server_hung(server), patience={patience}):
    server.run()
print("done", flush=True)
"""


def test_a_web_server_whose_loop_hangs_is_told_from_one_that_serves() -> None:
    hangs = start_python(SERVED.format(work="threading.Event().wait", looks=150, patience=15, within=0.5))
    stops = start_python(SERVED.format(work="server.stop", looks=600, patience=60, within=60))
    out, err = hangs.communicate(timeout=DEADLINE)
    assert (hangs.returncode, out) == (1, "")
    assert "cannot go on" in err and "the web server has not taken its turn for 0.5s" in err
    out, err = stops.communicate(timeout=DEADLINE)
    assert (stops.returncode, out, err) == (0, "done\n", "")
