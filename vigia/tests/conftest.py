"""Fixtures: the command as people run it, a lab of the tests' own, the machine's state."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from labkit import DEMO, Machine, Ran, invoke_vigia, need_root, own_topology, run_vigia

from vigia.host import commands
from vigia.lab import model, topology
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia_testing import eventually

TESTDATA = Path(__file__).parent / "testdata"
PAIRS = TESTDATA / "topologies/pairs.yaml"


@pytest.fixture
def testdata() -> Path:
    return TESTDATA


@pytest.fixture
def demo() -> Lab:
    """The demo's lab, resolved; nothing of it is made."""
    return model.resolve(topology.default())


@pytest.fixture
def pairs() -> Lab:
    """A lab with a pair of nodes for each virtual switch, resolved; nothing of it is made."""
    return model.resolve(topology.load(PAIRS))


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Path]:
    """Write the topology of pairs with pieces of text replaced; each piece must be there once."""

    def write(*pieces: tuple[str, str], name: str = "bad.yaml") -> Path:
        text = PAIRS.read_text()
        for old, new in pieces:
            assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {PAIRS}"
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def vigia() -> Callable[..., Ran]:
    """Run the vigia command to its end, in this process."""
    return invoke_vigia


@pytest.fixture
def vigia_process() -> Callable[..., Ran]:
    """Run the vigia command to its end, as a process: where it becomes another program, or is killed."""
    return run_vigia


@pytest.fixture
def root() -> None:
    """Ends the test where it cannot run: without root it is skipped, as root it never is."""
    need_root()


@dataclass(frozen=True)
class TestLab:
    """A lab that belongs to the tests: t1, with a pair of nodes for each virtual switch."""

    __test__ = False

    file: Path
    lab: Lab

    @property
    def layout(self) -> Layout:
        return self.lab.layout

    def vigia(self, *arguments: str) -> Ran:
        if arguments[:2] == ("lab", "exec"):  # becomes another program
            return self.process(*arguments)
        return invoke_vigia(*arguments, env={"VIGIA_LAB": self.lab.name})

    def process(self, *arguments: str, **options: Any) -> Ran:
        """Run the command as a process of its own."""
        return run_vigia(*arguments, **{"env": {"VIGIA_LAB": self.lab.name}, **options})

    def well(self, *arguments: str) -> Ran:
        """Run a command that tries the lab's paths until it ends well.

        Each echo has a second, which a busy machine may not keep to.
        """
        ran: list[Ran] = []

        def ends_well() -> bool:
            ran.append(self.vigia(*arguments))
            return ran[-1].status == 0

        eventually(ends_well, lambda: f"{arguments} to end well: {ran[-1].stdout}{ran[-1].stderr}")
        return ran[-1]

    def up_again(self, *options: str) -> Ran:
        """Have the lab that is up found as it should be."""
        return self.well("lab", "up", "--topology", str(self.file), *options)

    def up(self) -> Ran:
        return self.vigia("lab", "up", "--topology", str(self.file))

    def down(self) -> Ran:
        return self.vigia("lab", "down")

    def netns(self, place: str) -> str:
        """The namespace of NODE or NODE/TENANT/PATH."""
        node, *machine = place.split("/")
        return self.lab.endpoint(node, *machine).netns if machine else self.lab.node(node).netns

    def inside(self, place: str, *command: str) -> commands.CommandResult:
        """Run a command there; what the vigia command itself does is tested with lab exec."""
        return commands.run(command, netns=self.netns(place), check=False)


def make_test_lab(
    directory: Path, name: str = "t1", agents: str = "127.78.0.0/24", given: Path = PAIRS
) -> TestLab:
    file = own_topology(directory, name, agents, given)
    return TestLab(file, model.resolve(topology.load(file)))


@pytest.fixture
def lab_t1(root: None, tmp_path: Path) -> Iterator[TestLab]:
    """The lab t1, not up; whatever the test makes of it is removed."""
    lab = make_test_lab(tmp_path)
    lab.down()
    yield lab
    assert lab.down().status == 0


@pytest.fixture(scope="module")
def lab_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLab]:
    """The lab t1, up for all tests of a module."""
    need_root()
    lab = make_test_lab(tmp_path_factory.mktemp("lab"))
    lab.down()
    done = lab.up()
    assert done.status == 0, done.stderr
    yield lab
    assert lab.down().status == 0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLab]:
    """The demo's own lab as t9, up for all tests of a module: both switches on the same two nodes."""
    need_root()
    lab = make_test_lab(tmp_path_factory.mktemp("shared"), "t9", "127.98.0.0/24", DEMO)
    lab.down()
    before = Machine.now("t9")
    done = lab.up()
    assert done.status == 0, done.stderr
    yield lab
    assert lab.down().status == 0
    assert Machine.now("t9") == before, "strongSwan and Open vSwitch are gone, and all that they made"


@pytest.fixture
def sixth(root: None, tmp_path: Path) -> Iterator[TestLab]:
    """A lab like the demo's with an underlay of IPv6, not up; whatever the test makes of it is removed."""
    text = DEMO.read_text()
    for old, new in (("10.99.1.", "fd00:99:1::"), ("10.99.3.", "fd00:99:3::")):
        for side in "12":
            text = text.replace(f"{old}{side}/24", f'"{new}{side}/64"')
    for side in "12":
        text = text.replace(f', underlay6: "fd00:99::{side}/64"', "")
    given = tmp_path / "sixth-demo.yaml"
    given.write_text(text)
    lab = make_test_lab(tmp_path, "t6", "127.98.6.0/24", given)
    lab.down()
    yield lab
    assert lab.down().status == 0


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    return eventually


@pytest.fixture
def machine() -> Callable[[str], Machine]:
    return Machine.now


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[Any]]]:
    """Processes to end after the test."""
    started: list[subprocess.Popen[Any]] = []
    yield started
    for child in started:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream:
                stream.close()
