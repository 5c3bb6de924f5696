"""The clouds that a lab can be: each row of the table is a module that checks, builds and names its daemons."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from labkit import own_topology

import vigia_config
from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import clouds, down, model, openvswitch, state, up
from vigia.lab.clouds import CLOUDS, Cloud
from vigia.lab.model import Datapath, Lab
from vigia.lab.naming import Layout
from vigia.lab.state import State
from vigia.lab.topology import Topology

NAME = "clouds"
MODULES = {p.stem for p in Path(clouds.__file__).parent.glob("*.py")} - {"__init__"}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return model.resolve(vigia_config.load(own_topology(tmp_path, NAME, "127.92.0.0/24"), Topology))


def test_every_module_is_a_row_of_the_table() -> None:
    assert {name.replace("-", "_") for name in CLOUDS} == MODULES


@pytest.mark.parametrize("name", CLOUDS)
def test_a_cloud_is_whole(name: str) -> None:
    cloud = clouds.load(name)
    assert isinstance(cloud, Cloud)
    doing = [words for words, _ in cloud.build]
    assert len(set(doing)) == len(doing) > 0
    assert all(callable(build) for _, build in cloud.build)
    assert set(cloud.daemons) <= set(clouds.daemons()), "or lab down leaves them running"
    assert CLOUDS[name], "help says what controls the network"


def test_the_daemons_of_the_plain_lab_are_stopped_in_their_order() -> None:
    found = [d for d in clouds.daemons() if d in openvswitch.DAEMONS]
    assert found == list(openvswitch.DAEMONS)


# --- a cloud of the tests' own, which makes one namespace ---


class Sparse:
    """One namespace, then a step that may fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = ""

    def check(self, lab: Lab, datapath: Datapath) -> None:
        self._note("check")

    def namespace(self, lab: Lab, datapath: Datapath) -> str:
        commands.ip_batch([f"netns add {lab.layout.prefix}only"])
        return self._note("namespace")

    def rules(self, lab: Lab, datapath: Datapath) -> str:
        return self._note("rules")

    def _note(self, what: str) -> str:
        self.asked.append(what)
        if what == self.fails:
            raise VigiaError(f"cannot do {what}")
        return f"did {what}"

    @property
    def CLOUD(self) -> Cloud:
        build = (("making a namespace", self.namespace), ("writing rules", self.rules))
        return Cloud(check=self.check, build=build, daemons=())


@pytest.fixture
def sparse(root: None, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sparse]:
    made = Sparse()
    monkeypatch.setitem(sys.modules, "vigia.lab.clouds.sparse", made)
    monkeypatch.setattr(clouds, "CLOUDS", {**CLOUDS, "sparse": "a namespace"})
    yield made
    with state.locked(lab.layout):
        down.remove(lab.layout)


def bring_up(lab: Lab, cloud: str) -> list[str]:
    """What is said meanwhile, without times."""
    said = io.StringIO()
    try:
        up.bring_up(lab, "auto", Steps(said), cloud)
    finally:
        lines = [line.split(None, 2)[-1] for line in said.getvalue().splitlines()]
    return lines


def test_a_lab_is_made_by_the_steps_of_its_cloud(sparse: Sparse, lab: Lab) -> None:
    lines = bring_up(lab, "sparse")
    assert sparse.asked == ["check", "namespace", "rules"]
    assert lines[-3:] == ["did namespace", "did rules", f"lab {NAME} is up"]
    assert netns.names(lab.layout.prefix) == [lab.layout.prefix + "only"]
    present = state.running(NAME)
    assert (present.cloud, present.phase) == ("sparse", "up")


def test_a_lab_does_not_become_another_cloud(sparse: Sparse, lab: Lab) -> None:
    bring_up(lab, "sparse")
    with pytest.raises(
        VigiaError, match=f"lab {NAME} is up as the cloud sparse; to replace it, run: vigia lab down"
    ):
        bring_up(lab, "plain")
    assert state.running(NAME).cloud == "sparse"


def test_a_cloud_that_lacks_something_makes_nothing(sparse: Sparse, lab: Lab) -> None:
    sparse.fails = "check"
    with pytest.raises(VigiaError, match="cannot do check"):
        bring_up(lab, "sparse")
    assert sparse.asked == ["check"]
    assert (netns.names(lab.layout.prefix), state.read(lab.layout)) == ([], None)
    assert not lab.layout.directory.exists()


def test_a_step_that_fails_takes_everything_back(sparse: Sparse, lab: Lab) -> None:
    sparse.fails = "rules"
    with pytest.raises(VigiaError, match="cannot do rules"):
        bring_up(lab, "sparse")
    assert sparse.asked == ["check", "namespace", "rules"]
    assert (netns.names(lab.layout.prefix), state.read(lab.layout)) == ([], None)
    assert not lab.layout.directory.exists()


def test_a_lab_from_before_there_were_clouds_is_plain(lab: Lab, tmp_path: Path) -> None:
    own = dataclasses.replace(lab, layout=Layout(NAME, tmp_path))
    own.layout.directory.mkdir()
    state.write(State("up", own, "kernel", 1.0, "plain"))
    record = json.loads(own.layout.state_file.read_text())
    assert record.pop("cloud") == "plain"
    own.layout.state_file.write_text(json.dumps(record))
    found = state.read(own.layout)
    assert found is not None
    assert found.cloud == "plain"
