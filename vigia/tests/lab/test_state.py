"""The run directory: what is remembered, and one command at a time."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from vigia.errors import VigiaError
from vigia.lab import state
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia.lab.state import State

Children = list[subprocess.Popen[str]]


@pytest.fixture
def lab(pairs: Lab, tmp_path: Path) -> Lab:
    """The demo with its files elsewhere."""
    layout = Layout("demo", tmp_path / "run")
    layout.directory.mkdir(parents=True)
    return Lab(pairs.topology, layout, pairs.nodes, pairs.links)


def test_what_is_written_is_read(lab: Lab) -> None:
    state.write(State("starting", lab, "userspace", 1.5))
    state.write(State("up", lab, "kernel", 2.5))
    got = state.read(lab.layout)
    assert got is not None
    assert (got.phase, got.datapath, got.since) == ("up", "kernel", 2.5)
    assert got.lab.topology == lab.topology
    assert [p.name for p in lab.layout.directory.iterdir()] == ["state.json"], "no half-written file stays"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "{",
        lambda text: "[]",
        lambda text: text.replace('"version": 1,\n "phase"', '"version": 2,\n "phase"'),
        lambda text: text.replace('"phase"', '"fase"'),
        lambda text: text.replace('"linuxbridge"', '"vpp"'),
    ],
)
def test_a_record_that_makes_no_sense_is_no_record(lab: Lab, change: Callable[[str], str]) -> None:
    state.write(State("up", lab, "userspace", 1.0))
    text = lab.layout.state_file.read_text()
    assert change(text) != text
    lab.layout.state_file.write_text(change(text))
    assert state.read(lab.layout) is None


def test_no_record(tmp_path: Path) -> None:
    assert state.read(Layout("demo", tmp_path)) is None


def test_a_record_is_plain_json(lab: Lab) -> None:
    state.write(State("up", lab, "userspace", 1.0))
    record = json.loads(lab.layout.state_file.read_text())
    assert (record["version"], record["phase"], record["topology"]["name"]) == (1, "up", "demo")


def test_a_lab_that_is_not_up() -> None:
    with pytest.raises(VigiaError) as e:
        state.running("never")
    assert str(e.value) == "lab never is not up; bring it up: vigia lab up"


HOLD = """
import sys
from pathlib import Path
from vigia.lab import state
from vigia.lab.naming import Layout
with state.locked(Layout("demo", Path(sys.argv[1]))):
    print("locked", flush=True)
    sys.stdin.read()
"""

HOLD_IN_A_COMMAND = """
import sys
from pathlib import Path
from vigia.host import commands
from vigia.lab import state
from vigia.lab.naming import Layout
with state.locked(Layout("demo", Path(sys.argv[1]))):
    print("locked", flush=True)
    commands.run(["timeout", "300", "sh", "-c", "echo > $0/begun; read line < $0/go; echo > $0/ended", sys.argv[1]])
"""


def hold(children: Children, root: Path, code: str = HOLD) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    children.append(child)
    assert child.stdout
    assert child.stdout.readline() == "locked\n"
    return child


def test_the_lock_is_gone_afterwards(tmp_path: Path) -> None:
    layout = Layout("demo", tmp_path / "run")
    with state.locked(layout):
        assert layout.lock_file.read_text() == f"{os.getpid()}\n"
    assert not layout.root.exists()


def test_the_lock_stays_beside_another_lab(tmp_path: Path) -> None:
    layout = Layout("demo", tmp_path / "run")
    (layout.root / "other").mkdir(parents=True)
    with state.locked(layout):
        pass
    assert [p.name for p in layout.root.iterdir()] == ["other"]


def test_a_busy_lock_names_its_holder(tmp_path: Path, children: Children) -> None:
    child = hold(children, tmp_path)
    with pytest.raises(VigiaError) as e, state.locked(Layout("demo", tmp_path)):
        pass
    assert str(e.value) == f"another command (process {child.pid}) is working on lab demo; wait for its end"


def test_another_lab_is_not_locked(tmp_path: Path, children: Children) -> None:
    hold(children, tmp_path)
    with state.locked(Layout("other", tmp_path)):
        pass


def test_the_lock_of_a_killed_command_is_free(tmp_path: Path, children: Children) -> None:
    child = hold(children, tmp_path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with state.locked(Layout("demo", tmp_path)):
        assert (tmp_path / "demo.lock").read_text() == f"{os.getpid()}\n"


def test_a_killed_commands_last_program_is_waited_for(
    tmp_path: Path, children: Children, wait_until: Callable[..., None]
) -> None:
    """Whoever comes next must not work beside what is still being made."""
    os.mkfifo(tmp_path / "go")
    child = hold(children, tmp_path, HOLD_IN_A_COMMAND)
    wait_until((tmp_path / "begun").exists, "the program begins")
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "ended").exists(), "the program still runs"
    later = threading.Timer(1.0, (tmp_path / "go").write_text, ["go\n"])
    later.start()
    with state.locked(Layout("demo", tmp_path)):
        assert (tmp_path / "ended").exists()
    later.join()


def test_a_lock_that_its_holder_removes_is_not_taken_for_the_next_ones(tmp_path: Path) -> None:
    """Many take turns, each with a new file: never are two of them inside."""
    layout = Layout("demo", tmp_path / "run")
    inside: list[int] = []
    entered: list[int] = []

    def work(number: int) -> None:
        while number not in entered:
            try:
                with state.locked(layout):
                    inside.append(number)
                    assert inside == [number]
                    inside.remove(number)
                    entered.append(number)
            except VigiaError:
                continue  # busy

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entered) == list(range(8))


def test_the_lock_needs_rights(tmp_path: Path, root: None) -> None:
    tmp_path.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from vigia import errors; from vigia.lab import state\n"
        "from vigia.lab.naming import Layout\n"
        "os.setuid(65534)\n"
        "try:\n    with state.locked(Layout('demo', Path('/run/vigia-test'))): pass\n"
        "except errors.VigiaError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "/run/vigia-test/demo.lock cannot be opened: Permission denied; run as root\n"


def test_the_lock_is_a_lock(tmp_path: Path) -> None:
    layout = Layout("demo", tmp_path)
    with state.locked(layout), layout.lock_file.open() as f, pytest.raises(BlockingIOError):
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
