"""What a person sees of a campaign: a line for each repetition, or a bar on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from vigia.campaign import folder
from vigia.campaign.engine import Progress
from vigia.campaign.folder import Folder
from vigia.campaign.model import Campaign
from vigia.campaign.samples import Record
from vigia.campaign.watch import Watcher
from vigia.console import Steps
from vigia_testing import eventually

PLAN = {"designs": [{"factors": {"path": ["a", "b"]}}], "stop": {"repetitions": 2}}


@pytest.fixture
def present(tmp_path: Path) -> Folder:
    about = {"version": 1, "name": "t", "title": "T", "question": "Q?", "study": "overlays"}
    campaign = Campaign.model_validate({**about, "topology": "e1", "standard": PLAN})
    return folder.create(tmp_path, campaign, "standard", {})


def progress(done: int, left: float, failed: int = 0, reason: str = "") -> Progress:
    status = "failed" if reason else "done"
    record = Record(done, 0, 0, {"path": "a", "size": 64}, 0.0, 1.0, 12, status, reason)
    return Progress(done, 4, failed, left, record)


def lines(*told: Progress, present: Folder) -> list[str]:
    said = io.StringIO()
    with Watcher(Steps(said), present) as watcher:
        for one in told:
            watcher.recorded(one, [])
    return [line.split(" s  ", 1)[1] for line in said.getvalue().splitlines()]


def test_each_repetition_is_a_line(present: Folder) -> None:
    assert lines(progress(1, 30.0), progress(2, 600.0), present=present) == [
        "1/4  a 64: 12 samples; about 30 s left",
        "2/4  a 64: 12 samples; about 10 min left",
    ]


def test_a_failure_says_why_and_is_counted(present: Folder) -> None:
    (line,) = lines(progress(3, 1.0, failed=2, reason="no route to host"), present=present)
    assert line.startswith("3/4  ")
    assert line.endswith(": FAILED: no route to host; about 1 s left, 2 failed")


class Terminal:
    """A pseudo terminal; what is written to it is read by a thread, so that nobody waits."""

    def __init__(self) -> None:
        leader, follower = pty.openpty()
        self.stream: TextIO = os.fdopen(follower, "w")
        self._seen: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(leader,))
        self._reader.start()

    def _read(self, leader: int) -> None:
        while True:
            try:
                more = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            self._seen.append(more)
        os.close(leader)

    @property
    def seen(self) -> str:
        """What was written until now, without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(self._seen).decode(errors="replace"))

    def text(self) -> str:
        """Everything that was written, once nobody writes any more."""
        self.stream.close()
        self._reader.join()
        return self.seen


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal()
    yield made
    made.text()


def test_a_bar_on_a_terminal_leaves_nothing_behind(present: Folder, terminal: Terminal) -> None:
    steps = Steps(terminal.stream)
    assert steps.is_terminal
    with Watcher(steps, present) as watcher:
        eventually(lambda: re.search(r"0/4 .*starting", terminal.seen), "the bar is drawn")
        watcher.recorded(progress(1, 30.0), [])
    steps.line("done")
    seen = terminal.text()
    assert re.search(r"1/4 .*about 30 s left", seen)
    assert re.search(r"\d s  done", seen.splitlines()[-1])
    assert "12 samples" not in seen, "lines are for logs"


def test_an_error_ends_the_bar(present: Folder, terminal: Terminal) -> None:
    steps = Steps(terminal.stream)
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), Watcher(steps, present):
        assert set(threading.enumerate()) - before
        raise ZeroDivisionError
    eventually(lambda: set(threading.enumerate()) <= before, "the bar's thread has ended")
