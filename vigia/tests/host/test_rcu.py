"""The switch for expedited grace periods is on only meanwhile, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vigia.host import rcu


def switch(path: Path, value: str) -> Path:
    file = path / "rcu_expedited"
    file.write_text(value)
    return file


def test_it_is_on_meanwhile(tmp_path: Path) -> None:
    file = switch(tmp_path, "0\n")
    with rcu.expedited(file) as on:
        assert on
        assert file.read_text().strip() == "1"
    assert file.read_text().strip() == "0"


def test_it_is_off_after_an_error(tmp_path: Path) -> None:
    file = switch(tmp_path, "0\n")
    with pytest.raises(KeyError), rcu.expedited(file):
        raise KeyError
    assert file.read_text().strip() == "0"


def test_what_an_administrator_has_on_stays_on(tmp_path: Path) -> None:
    file = switch(tmp_path, "1\n")
    with rcu.expedited(file) as on:
        assert not on
    assert file.read_text() == "1\n"


def test_where_there_is_none_nothing_happens(tmp_path: Path) -> None:
    with rcu.expedited(tmp_path / "none") as on:
        assert not on
    assert not (tmp_path / "none").exists()


def test_it_is_off_after_the_caller_was_killed(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    file = switch(tmp_path, "0\n")
    code = (
        "import sys, time, pathlib; from vigia.host import rcu\n"
        "with rcu.expedited(pathlib.Path(sys.argv[1])): print('on', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"on\n"
        assert file.read_text().strip() == "1"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    wait_until(lambda: file.read_text().strip() == "0", "the switch to be off")
