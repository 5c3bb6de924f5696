"""A run of several stages: a live view for who watches, and lines for everybody else."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time

import pytest
import terminalkit
from rich.console import Console

from vigia import course as courses
from vigia.cli import demo as command
from vigia.console import Bar, Step
from vigia.course import Course, Stage
from vigia.demo import scenario

STAGES = {"lab": 3.0, "stack": 200.0}

RUN = f"""{terminalkit.SCREEN}
from vigia.course import Course

def draws(): return c.is_terminal

c = Course('vigia demo', {{'lab': 3.0, 'stack': 200.0}}, screen)
with c.shown():
    with c.stage('lab'):
        with c.step('building') as done:
            until('building')
            done.append('built it')
        time.sleep(1)
    with c.stage('stack'):
        with c.step('starting 4 services', total=4) as done:
            done.advance()
            until('✓', '1/4, ')
            c.line('the first is ready')
            done.append('started 4 services')
print('the addresses')
"""
"""A run that goes on when what it does is drawn, if anything is."""


def on_a_terminal(body: str = RUN, columns: int = 120, **env: str) -> str:
    """What a pseudo terminal of so many columns is sent."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    return terminalkit.on_a_terminal(body, {**kept, "TERM": "xterm", "COLUMNS": str(columns), **env})


def plain(seen: str) -> str:
    """What is seen without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)


def lines_of(text: str) -> list[str]:
    """What Steps printed, without the times."""
    return re.findall(r"^ {0,6}\d+\.\d\d s  (.*?) *$", text.replace("\r", "\n"), re.MULTILINE)


def test_who_watches_sees_all_stages_and_what_is_left() -> None:
    seen = plain(on_a_terminal())
    assert re.search(r"vigia demo: \d s gone, about 3 min 2\d s left", seen)
    assert re.search(r"▸ lab: +building", seen)
    assert re.search(r"· stack, about 3 min 20 s", seen)
    assert re.search(r"✓ lab +[1-9]\d* s", seen)
    assert re.search(r"▸ stack: +starting 4 services +\S+ +1/4, ", seen)


def test_finished_steps_stay_above_the_view_and_the_view_goes() -> None:
    seen = on_a_terminal()
    assert lines_of(plain(seen)) == ["built it", "the first is ready", "started 4 services"]
    after = plain(seen).rpartition("started 4 services")[2]
    assert after.rstrip().endswith("the addresses")
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") == 1, "the cursor is back"


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_nothing_that_moves_gets_lines(env: dict[str, str]) -> None:
    seen = on_a_terminal(**env)
    assert "\x1b" not in seen
    assert lines_of(seen) == ["built it", "the first is ready", "started 4 services"]
    assert len(seen.splitlines()) == 4


def test_no_colour_that_is_empty_is_none() -> None:
    assert "▸ lab:" in plain(on_a_terminal(NO_COLOR=""))


def test_a_pipe_gets_lines() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout and "▸" not in done.stdout
    assert lines_of(done.stdout) == ["built it", "the first is ready", "started 4 services"]


def test_an_error_leaves_the_terminal_as_it_was() -> None:
    body = """
from vigia.course import Course
c = Course('vigia demo', {'lab': 3.0})
try:
    with c.shown(), c.stage('lab'), c.step('building'):
        raise ValueError('no')
except ValueError:
    print('it failed')
"""
    seen = on_a_terminal(body)
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") == 1
    assert lines_of(plain(seen)) == [], "nothing was built"
    assert plain(seen).rstrip().endswith("it failed")


def shown(course: Course, columns: int = 100) -> str:
    console = Console(file=io.StringIO(), width=columns, force_terminal=False)
    with console.capture() as captured:
        console.print(course.view())
    return captured.get()


def test_a_stage_at_work_without_a_step_says_since_when() -> None:
    course = Course("run", STAGES, io.StringIO())
    with course.stage("stack"):
        assert re.search(r"▸ stack: since \d s", shown(course))
    assert re.search(r"✓ stack \d s", shown(course))


def test_a_narrow_terminal_folds_nothing_into_chaos() -> None:
    """A line for the run and one for each stage, at forty columns as well."""
    assert len(shown(Course("run", STAGES, io.StringIO()), 40).rstrip().splitlines()) == 3


@pytest.mark.parametrize(
    ("begin", "end", "left"),
    [
        (0.0, 0.0, 30.0),  # before it
        (100.0, 0.0, 20.0),  # ten seconds in
        (10.0, 0.0, 1.0),  # far beyond what was expected: a moment longer, and not less than nothing
        (10.0, 20.0, 0.0),  # over
    ],
)
def test_what_a_stage_takes_further(begin: float, end: float, left: float) -> None:
    assert Stage("lab", 30.0, begin, end).left(110.0) == left


def test_an_error_does_not_end_a_stage() -> None:
    course = Course("run", STAGES, io.StringIO())
    with pytest.raises(ValueError, match="no"), course.stage("lab"):
        raise ValueError("no")
    assert "✓" not in shown(course)


def test_a_step_that_takes_longer_than_its_stage_counts() -> None:
    course = Course("run", {"lab": 1.0}, io.StringIO())
    stage = course._stages[0]
    stage.begin = time.monotonic()
    with course._as_current(Bar("building", Step(0), 50.0)):
        assert course._left(stage, time.monotonic()) > 40.0
    assert course._left(stage, time.monotonic()) <= 1.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119.4, "119 s"), (120.0, "2 min 0 s"), (205.0, "3 min 25 s")]
)
def test_times_are_spelled(seconds: float, text: str) -> None:
    assert courses._spelled(seconds) == text


def test_the_demo_expects_what_its_scenario_does() -> None:
    assert list(command._STAGES) == ["lab", "stack", "measurement", "flood"]
    assert command._STAGES["flood"] == scenario.EXPECTED
