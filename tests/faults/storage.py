"""Disks that are full, and databases that are locked, damaged, lost or old."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from faults.invariants import on_record
from faults.registry import Course, Expected, Scene, fault
from faults.site import AGENT, SETTLED, Site, free_space
from vigia_testing import eventually

_BALLAST = "ballast"


def _fill(place: Path) -> Path:
    """Take all that is free on a file system; again, what its writer has given back since."""
    ballast = place / _BALLAST
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


def _sizes(place: Path) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in place.iterdir()}


def _fills_up(writer: str, notices: str) -> Course:
    """A disk that fills up; notices is what the log of its writer says then, if it writes at once."""

    def course(scene: Scene) -> Iterator[None]:
        site = scene.site
        place, before, refused = site.disk(writer), len(site.log(writer)), scene.load.refused
        ballast = _fill(place)
        try:
            if writer == AGENT:
                eventually(
                    lambda: _fill(place) and scene.load.refused > refused,
                    lambda: f"messages to be refused, not lost; in {place}: {_sizes(place)}",
                )
            elif notices:
                eventually(
                    lambda: notices in site.log(writer)[before:].lower() or free_space(place) > 0,
                    f"{writer} to say {notices!r}",
                    SETTLED,
                )
            yield
        finally:
            ballast.unlink(missing_ok=True)

    return course


for _writer, _notices in ((AGENT, ""), ("prometheus", "no space left"), ("vigia-compare", "no space left")):
    _what = {
        AGENT: "Messages are refused with 503, so that Alertmanager sends them again; none is lost that was "
        "acknowledged. Limits end by their time, guarantees stay. It goes on when there is room.",
        "prometheus": "Limits and guarantees do not depend on it; samples of that time are missing, none is wrong. It "
        "goes on when there is room.",
        "vigia-compare": "Verdicts go on in memory; the old state file stays whole, and the next one is written when there "
        "is room.",
    }[_writer]
    fault(
        f"disk full under {_writer}",
        "disks",
        f"The file system of {_writer} is full",
        _what,
        Expected(restarts="prometheus" if _writer == "prometheus" else ""),
        short=_writer == AGENT,
    )(_fills_up(_writer, _notices))


def _starts_on_full(service: str, writer: str) -> Course:
    def course(scene: Scene) -> Iterator[None]:
        site = scene.site
        ballast = _fill(site.disk(writer))
        try:
            old = site.pid(service)
            os.kill(old, signal.SIGKILL)
            eventually(lambda: site.pids()[service] != old, f"{service} to be started again")
            yield
        finally:
            ballast.unlink(missing_ok=True)
        site.works(service)

    return course


fault(
    "disk full under alertmanager",
    "disks",
    "The file system of alertmanager is full while it is killed",
    "It is started again; alerts go on being told.",
    Expected(restarts="alertmanager"),
)(_starts_on_full("alertmanager", "alertmanager"))
fault(
    "disk full under the logs",
    "disks",
    "The file system of all logs is full while a service is killed",
    "Every service goes on, and one that ends is started again: a log that cannot be written ends nothing.",
    Expected(restarts="vigia-exporter@node1"),
)(_starts_on_full("vigia-exporter@node1", "log"))


def _database(site: Site) -> Path:
    return site.disk(AGENT) / "agent.db"


@fault(
    "database locked",
    "databases",
    "Another process holds the write lock of the agent's database for some seconds",
    "Messages are refused with 503 meanwhile; the agent is not started again, and goes on.",
)
def locked(scene: Scene) -> Iterator[None]:
    refused = scene.load.refused
    with closing(sqlite3.connect(_database(scene.site), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        eventually(lambda: scene.load.refused > refused, "messages to be refused")
        other.execute("ROLLBACK")
    yield


def _all_on_record(scene: Scene) -> None:
    """Nothing waits in the inbox, but for what comes at this moment."""
    known = list(scene.load.acknowledged)
    eventually(lambda: set(known) <= on_record(scene.site), "what was acknowledged to be on record")


def _damaged(scene: Scene) -> Iterator[None]:
    site = scene.site
    old = site.pid(AGENT)
    with scene.load.quiet():
        _all_on_record(scene)
        with _database(site).open("r+b") as file:
            file.write(os.urandom(4096))
        for extra in ("-wal", "-shm"):
            log = _database(site).with_name(f"agent.db{extra}")
            with log.open("r+b") as file:
                file.write(os.urandom(min(4096, log.stat().st_size)))
    site.restarted(AGENT, old)
    assert list(site.disk(AGENT).glob("agent.db.damaged-*")), "what was damaged is kept"
    yield


fault(
    "database damaged",
    "databases",
    "Random bytes are written over the beginning of the agent's database and of its log",
    "The agent ends, puts the file aside for people to look at and begins a new one; kill switch and audit log go on; "
    "limits in force end by their time.",
    Expected(restarts=AGENT),
)(_damaged)


@fault(
    "database lost",
    "databases",
    "The agent's database is removed while it runs",
    "No message is acknowledged into a file that is gone: the agent ends, and begins a new database. Commands are obeyed "
    "after one turn, since the nodes' terms are learnt from them.",
    Expected(restarts=AGENT),
)
def lost(scene: Scene) -> Iterator[None]:
    site = scene.site
    old = site.pid(AGENT)
    with scene.load.quiet():
        _all_on_record(scene)
        for extra in ("", "-wal", "-shm"):
            _database(site).with_name(f"agent.db{extra}").unlink(missing_ok=True)
    site.restarted(AGENT, old)
    yield


@fault(
    "database restored",
    "databases",
    "The agent's database is replaced by an older copy while it runs",
    "As with a lost one: the agent is started again with the copy; the audit log is longer than the copy knows, and one chain.",
    Expected(restarts=AGENT),
)
def restored(scene: Scene) -> Iterator[None]:
    site = scene.site
    old, copy = site.pid(AGENT), site.disk(AGENT) / "yesterday.db"
    with closing(sqlite3.connect(_database(site))) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    known = len(scene.load.acknowledged)
    eventually(lambda: len(scene.load.acknowledged) > known + 4, "the copy to be old")
    with scene.load.quiet():
        _all_on_record(scene)
        for extra in ("-wal", "-shm"):
            _database(site).with_name(f"agent.db{extra}").unlink(missing_ok=True)
        shutil.move(copy, _database(site))
    site.restarted(AGENT, old)
    yield


@fault(
    "state of vigia-compare damaged",
    "databases",
    "The state file of vigia-compare is half a file when it starts",
    "It is refused as a whole and said on the page; evidence begins anew, no verdict is made of half a file.",
    Expected(restarts="vigia-compare"),
)
def half_a_state(scene: Scene) -> Iterator[None]:
    site = scene.site
    old, file = site.pid("vigia-compare"), site.disk("vigia-compare") / "state.json"
    eventually(file.exists, "a state file to be written", SETTLED)
    os.kill(old, signal.SIGSTOP)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    os.kill(old, signal.SIGKILL)
    site.restarted("vigia-compare", old)
    assert "cannot use the state file" in site.log("vigia-compare")
    yield
