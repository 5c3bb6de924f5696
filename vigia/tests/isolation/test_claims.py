"""What a killed campaign leaves behind is removed by the next one, and nothing of a living one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vigia.errors import VigiaError
from vigia.host import commands, netns, processes
from vigia.isolation import claims

_OWNER = """
import signal, sys
from pathlib import Path
from vigia.host import commands
from vigia.isolation import claims
with claims.claim("test-claim", Path(sys.argv[1])) as mine:
    mine.mount_bpffs()
    commands.ip_batch([f"netns add {mine.name}-a", f"netns add {mine.name}-b"])
    inside = commands.start(["sleep", "300"], log=mine.folder / "log", netns=f"{mine.name}-a")
    print(mine.name, inside.pid, flush=True)
    signal.pause()
"""


class Owner:
    """A process that has claimed a name, with two namespaces, a mount and a process in one of them."""

    def __init__(self, root: Path) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(root)], stdout=subprocess.PIPE, text=True
        )
        assert self.child.stdout is not None
        self.name, inside = self.child.stdout.readline().split()
        self.inside = int(inside)
        self.folder = root / self.name

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def has_all(self) -> bool:
        there = netns.names(f"{self.name}-") == [f"{self.name}-a", f"{self.name}-b"]
        return there and (self.folder / "bpf").is_mount() and processes.alive(self.inside)

    def has_nothing(self) -> bool:
        return not (netns.names(f"{self.name}-") or self.folder.exists() or processes.alive(self.inside))


@pytest.fixture
def owner(root: None, tmp_path: Path) -> Iterator[Callable[[], Owner]]:
    made: list[Owner] = []

    def begin() -> Owner:
        made.append(Owner(tmp_path))
        return made[-1]

    yield begin
    for one in made:
        one.kill()
        assert one.child.stdout is not None
        one.child.stdout.close()
    claims.sweep(tmp_path)
    assert all(one.has_nothing() for one in made)


def test_only_beds_of_killed_processes_are_swept(owner: Callable[[], Owner], tmp_path: Path) -> None:
    dead, living = owner(), owner()
    assert dead.has_all()
    assert claims.sweep(tmp_path) == [], "both are alive"
    dead.kill()
    assert dead.has_all(), "a kill leaves everything behind"
    assert claims.sweep(tmp_path) == [dead.name]
    assert dead.has_nothing()
    assert living.has_all()


def test_the_next_claim_sweeps(owner: Callable[[], Owner], tmp_path: Path) -> None:
    dead = owner()
    dead.kill()
    with claims.claim("test-claim", tmp_path) as mine:
        assert dead.has_nothing()
        assert mine.folder.is_dir()
        assert mine.folder.stat().st_mode & 0o077 == 0, "there are secrets in it"


def test_a_claim_that_ends_leaves_nothing(root: None, tmp_path: Path) -> None:
    with pytest.raises(KeyError), claims.claim("test-claim", tmp_path) as mine:
        assert mine.mount_bpffs().is_mount()
        (mine.folder / "secret").write_text("x")
        raise KeyError
    assert not mine.folder.exists()
    assert str(tmp_path) not in commands.run(["cat", "/proc/self/mountinfo"]).stdout


def test_two_claims_have_names_of_their_own(
    root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(("00", "00", "01"))  # of 256, which may be drawn twice
    monkeypatch.setattr(claims.secrets, "token_hex", lambda size: next(drawn))
    with claims.claim("test-claim", tmp_path) as one, claims.claim("test-claim", tmp_path) as two:
        assert one.name != two.name
        monkeypatch.setattr(claims.secrets, "token_hex", lambda size: "00")
        with pytest.raises(VigiaError, match="cannot claim a name"), claims.claim("test-claim", tmp_path):
            pass
        assert {p.name for p in tmp_path.iterdir()} == {one.name, two.name}


def test_without_any_claim_there_is_nothing_to_sweep(tmp_path: Path) -> None:
    assert claims.sweep(tmp_path / "none") == []
