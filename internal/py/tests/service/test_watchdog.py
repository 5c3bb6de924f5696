"""A service that hangs ends, so that whoever started it starts it again; one that does not stays."""

from __future__ import annotations

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
    process = start_python(WATCHED.format(hung=hung, work=work, looks=5, patience=0.5))
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


SERVED = """
import threading
from vigia_service import logs, watchdog
from vigia_service.server import Limits, Server, listen
watchdog._LOOKS = {looks}
watchdog._ANSWER_WITHIN = 0.5
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
    hangs = start_python(SERVED.format(work="threading.Event().wait", looks=40, patience=4))
    stops = start_python(SERVED.format(work="server.stop", looks=600, patience=60))
    out, err = hangs.communicate(timeout=DEADLINE)
    assert (hangs.returncode, out) == (1, "")
    assert "cannot go on" in err and "the web server has not taken its turn for 0.5s" in err
    out, err = stops.communicate(timeout=DEADLINE)
    assert (stops.returncode, out, err) == (0, "done\n", "")
