"""An agent that hangs ends, so that whoever started it starts it again; one that does not stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vigia_testing import DEADLINE

from ..support.world import World

WATCHED = """
import itertools, threading
from isolation_agent.service import watchdog
watchdog._LOOKS = {looks}
with watchdog.Watchdog({hung}, patience={patience}):
    print("running", flush=True)
    {work}
print("done", flush=True)
"""

AGENT = """
import sys, threading
from pathlib import Path
from isolation_agent import serve
from isolation_agent.actions.controller import Controller
from isolation_agent.service import agent, watchdog
from vigia_service import logs

logs.setup()
watchdog._LOOKS = {looks}
serve.Watchdog = lambda hung: watchdog.Watchdog(hung, patience={patience})
{change}
sys.exit(serve.serve(Path(sys.argv[1])))
"""

QUICK = """
serve._ANSWER_WITHIN = agent._STUCK = 0.5
"""

HANGS = {
    "the controller has not taken a turn": "Controller.step = lambda self: threading.Event().wait()",
    "the controller's thread has ended": "agent.Agent._control = lambda self: None",
    "the web server has not taken its turn": """
run = serve.Server.run
def hang(self):
    self._ready.wait()
    self.loop.call_soon_threadsafe(threading.Event().wait)
def run_and_hang(self):
    threading.Thread(target=hang, args=(self,), daemon=True).start()
    run(self)
serve.Server.run = run_and_hang
""",
}
"""What is said, and what hangs."""

COUNTED = """
set_timer = watchdog.Watchdog._set_timer
def counted(self):
    set_timer(self)
    print("set", flush=True)
watchdog.Watchdog._set_timer = counted
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def agents(folder: Path, *codes: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Agents of their own configurations, side by side."""
    worlds, started = [], []
    try:
        for number, code in enumerate(codes):
            place = folder / str(number)
            place.mkdir()
            worlds.append(World(place))
            started.append(start(code, worlds[-1].write_files()))
        yield started
    finally:
        for process in started:
            with process:  # closes its pipes
                process.kill()
        for world in worlds:
            world.close()


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
    process = start(WATCHED.format(hung=hung, work=work, looks=5, patience=0.5))
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
    process = start(f"{imports}{code}with {rest}")
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (0, "running\ndone\n")
    assert err.count("cannot go on") == 2, "once each time"
    assert "Timeout (" not in err


def test_an_agent_that_hangs_ends_and_says_why(tmp_path: Path) -> None:
    codes = [AGENT.format(change=QUICK + hang, looks=80, patience=8) for hang in HANGS.values()]
    with agents(tmp_path, *codes) as started:
        for said, process in zip(HANGS, started, strict=True):
            _, err = process.communicate(timeout=DEADLINE)
            assert process.returncode == 1, (said, err)
            assert (
                f'msg="cannot go on; unless that changes, the process ends to be started again" err="{said}'
                in err
            )
            assert "Timeout (" in err


def test_an_agent_that_works_stays(tmp_path: Path) -> None:
    with agents(tmp_path, AGENT.format(change=COUNTED, looks=600, patience=60)) as (process,):
        assert process.stdout
        assert [process.stdout.readline() for _ in range(5)] == ["set\n"] * 5, "anew while all is well"
        process.terminate()
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, err
        assert "Timeout (" not in err
        assert "cannot go on" not in err
