"""What people see."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest
import terminalkit

from vigia import console
from vigia.console import Steps


def test_a_step_is_a_line_with_its_time() -> None:
    out = io.StringIO()
    steps = Steps(out)
    with steps.step("counting"):
        pass
    with steps.step("building") as done:
        done.append("built 3 things")
    steps.line("all done")
    lines = out.getvalue().splitlines()
    assert [re.sub(r"^ {0,6}\d+\.\d\d s  ", "", line) for line in lines] == [
        "counting",
        "built 3 things",
        "all done",
    ]


def test_a_step_that_fails_is_not_reported_as_done() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="no"), Steps(out).step("building"):
        raise ValueError("no")
    assert out.getvalue() == ""


def test_times_grow() -> None:
    steps = Steps(io.StringIO())
    first = steps.elapsed
    assert 0 <= first <= steps.elapsed


BUILDING = "with s.step('building'): time.sleep(0.3)"

WATCHED = f"""{terminalkit.SCREEN}
from vigia.console import Steps
s = Steps(screen)
"""
"""Steps on a terminal of which the program knows when they are drawn."""


def on_a_terminal(env: dict[str, str], body: str = BUILDING) -> str:
    """Output of a step on a pseudo terminal."""
    code = WATCHED + body
    environment = {**os.environ, "TERM": "xterm", **env}
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in env else None
    return terminalkit.on_a_terminal(code, environment)


def test_progress_on_a_terminal() -> None:
    seen = on_a_terminal({})
    assert "building" in seen
    assert re.search(r"\x1b\[[0-9;]*3\dm", seen), "the spinner has a colour"
    assert re.search(r"\d\.\d\d s  building", seen)


def test_no_color_on_a_terminal() -> None:
    seen = on_a_terminal({"NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*3\dm", seen)
    assert re.search(r"\d\.\d\d s  building", seen)


def plain(seen: str) -> str:
    """What is seen without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)


def test_a_step_of_known_length_shows_what_is_left() -> None:
    seen = plain(on_a_terminal({}, "with s.step('measuring', expected=90): until('s left')"))
    assert re.search(r"measuring .*about (90|[1-8]\d) s left", seen)
    assert re.search(r"\d\.\d\d s  measuring", seen)


def test_a_step_that_takes_longer_than_expected_does_not_count_backwards() -> None:
    seen = plain(on_a_terminal({}, "with s.step('measuring', expected=0.1): until('a moment longer')"))
    assert "a moment longer" in seen
    assert "-" not in seen.partition("measuring")[2].partition("\n")[0]


def test_a_step_of_several_parts_counts_them() -> None:
    body = """with s.step('starting', total=4) as done:
    until('0/4, ')
    for _ in range(2):
        done.advance()
    until('2/4, ')
    done.append('started 2 of 4')"""
    seen = plain(on_a_terminal({}, body))
    assert "0/4, " in seen
    assert re.search(r"2/4, (about \d+ s left|a moment longer)", seen)
    assert re.search(r"\d\.\d\d s  started 2 of 4", seen)


def test_progress_is_for_terminals_alone() -> None:
    out = io.StringIO()
    with Steps(out).step("starting", total=4) as done:
        done.advance()
    assert re.fullmatch(r" +\d+\.\d\d s  starting\n", out.getvalue())
    assert done.parts == 1


def test_no_progress_elsewhere() -> None:
    code = "from vigia.console import Steps; s = Steps()\nwith s.step('building'): pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r" +\d+\.\d\d s  building\n", done.stdout)


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(["NAME", "COUNT"], [("red", 7), ("bluish", 1234)])
    assert capsys.readouterr().out == "NAME    COUNT\nred         7\nbluish   1234\n"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"a": [1, None]}


def test_a_step_that_has_nothing_to_say_is_no_line() -> None:
    stream = io.StringIO()
    steps = Steps(stream)
    with steps.step("looking") as done:
        done.append("")
    with steps.step("working"):
        pass
    assert [line.split(" s  ")[1] for line in stream.getvalue().splitlines()] == ["working"]
