"""An agent that hangs ends, so that whoever started it starts it again; one that does not stays."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vigia_testing import DEADLINE, start_python

from ..support.world import World

AGENT = """
import sys, threading
from pathlib import Path
from isolation_agent import serve
from isolation_agent.actions.controller import Controller
from isolation_agent.service import agent
from vigia_service import logs, watchdog

logs.setup()
watchdog._LOOKS = {looks}
serve.Watchdog = lambda hung: watchdog.Watchdog(hung, patience={patience})
{change}
sys.exit(serve.serve(Path(sys.argv[1])))
"""

HANGS = {
    "the controller has not taken a turn": """
agent._STUCK = 0.5
Controller.step = lambda self: threading.Event().wait()
""",
    "the controller's thread has ended": "agent.Agent._control = lambda self: None",
    "the web server has not taken its turn": """
watchdog._ANSWER_WITHIN = 0.5
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
"""What is said, and what hangs; only that is missed soon, since a busy machine holds up the rest, too."""

COUNTED = """
set_timer = watchdog.Watchdog._set_timer
def counted(self):
    set_timer(self)
    print("set", flush=True)
watchdog.Watchdog._set_timer = counted
"""


@contextmanager
def agents(folder: Path, *codes: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Agents of their own configurations, side by side."""
    worlds, started = [], []
    try:
        for number, code in enumerate(codes):
            place = folder / str(number)
            place.mkdir()
            worlds.append(World(place))
            started.append(start_python(code, worlds[-1].write_files()))
        yield started
    finally:
        for process in started:
            with process:  # closes its pipes
                process.kill()
        for world in worlds:
            world.close()


def test_an_agent_that_hangs_ends_and_says_why(tmp_path: Path) -> None:
    codes = [AGENT.format(change=hang, looks=200, patience=20) for hang in HANGS.values()]
    with agents(tmp_path, *codes) as started:
        for said, process in zip(HANGS, started, strict=True):
            _, err = process.communicate(timeout=2 * DEADLINE)
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
