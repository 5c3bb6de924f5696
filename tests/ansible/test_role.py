"""docs/how-to/ansible.md: the role, run on a Debian of its own, whose systemd runs what it installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansiblekit import Playbook
from labkit import ROOT
from nodekit import AGENTS, ENDPOINT, TAP, Node, booted
from pagekit import blocks, page

from vigia_testing import eventually

GUIDE = blocks(page("how-to/ansible.md"))
WITH_PYTHON = "systemd python3 libstdc++6"


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The programs of two versions."""
    found = {}
    for version in ("0.0.9", (ROOT / "VERSION").read_text().strip()):
        found[version] = tmp_path_factory.mktemp("bin")
        argv = ["make", "--no-print-directory", "build", f"VERSION={version}", f"BIN={found[version]}"]
        subprocess.run(argv, cwd=ROOT, check=True)
    return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with booted(tmp_path_factory.mktemp("node"), WITH_PYTHON) as found:
        yield found


@pytest.fixture(scope="module")
def playbook(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Playbook:
    return Playbook(node, tmp_path_factory.mktemp("ansible"))


@pytest.fixture(scope="module")
def variables() -> dict[str, Any]:
    """What the guide has in group_vars."""
    found: dict[str, Any] = yaml.safe_load(GUIDE["compute.yml"])
    found["vigia_node_exporter"]["node"] = "compute1"
    return found


def users(node: Node) -> str:
    return node.run("getent passwd; getent group")


def pids(node: Node) -> dict[str, str]:
    return {a: node.shown(a, "MainPID") for a in AGENTS}


@dataclass(frozen=True)
class Story:
    """A node that is installed, changed and removed again by the tests in their order: each begins where the one before ended."""

    node: Node
    playbook: Playbook
    variables: dict[str, Any]
    old: str
    new: str
    pristine: set[str]
    users: str

    @property
    def changed(self) -> dict[str, Any]:
        """The variables with another threshold of the exporter."""
        return {**self.variables, "vigia_node_exporter": self.exporter(300)}

    def exporter(self, packets: int) -> dict[str, Any]:
        return {**self.variables["vigia_node_exporter"], "flood": {"packets": packets}}


@pytest.fixture(scope="module")
def story(node: Node, playbook: Playbook, binaries: dict[str, Path], variables: dict[str, Any]) -> Story:
    old, new = (str(folder) for folder in binaries.values())
    for words in (("add", "tap0", "type", "veth", "peer", "name", "vm0"), ("set", "tap0", "up")):
        subprocess.run(["nsenter", f"--target={node.pid}", "--net", "ip", "link", *words], check=True)
    return Story(node, playbook, variables, old, new, node.files(), users(node))


def test_check_mode_changes_nothing(story: Story) -> None:
    checked = story.playbook.run("--check", "--diff", **story.variables, vigia_node_binaries=story.old)
    assert (checked.status, checked.failed) == (0, 0), checked.said
    assert checked.changed > 5
    assert story.node.files() == story.pristine


def test_it_installs_configures_and_runs(story: Story) -> None:
    first = story.playbook.run(**story.variables, vigia_node_binaries=story.old)
    assert first.status == 0, first.said
    assert first.changed > 5
    for program in AGENTS:
        assert story.node.shown(program, "ActiveState") == "active"
        assert story.node.shown(program, "UnitFileState") == "enabled"
        assert "0.0.9" in story.node.run(f"{program} --version 2>&1")
    rights = "stat -c %a:%U:%G /etc/vigia/enforcer.token /etc/vigia/exporter.yaml"
    assert story.node.run(rights).split() == ["600:root:root", "640:root:vigia"]
    assert len(story.node.run("cat /etc/vigia/enforcer.token").strip()) == 64


def test_a_second_run_changes_nothing(story: Story) -> None:
    token, running = story.node.run("cat /etc/vigia/enforcer.token"), pids(story.node)
    again = story.playbook.run(**story.variables, vigia_node_binaries=story.old)
    assert (again.status, again.changed) == (0, 0), again.said
    assert pids(story.node) == running
    assert story.node.run("cat /etc/vigia/enforcer.token") == token


def test_a_changed_configuration_is_reloaded(story: Story) -> None:
    running = pids(story.node)
    ran = story.playbook.run(**story.changed, vigia_node_binaries=story.old, vigia_node_on_change="reloaded")
    assert (ran.status, ran.changed) == (0, 2), ran.said
    assert pids(story.node) == running, "a reload keeps the process"


def test_a_wrong_configuration_is_refused(story: Story) -> None:
    running = pids(story.node)
    wrong = {**story.variables, "vigia_node_exporter": story.exporter(-1)}
    refused = story.playbook.run(**wrong, vigia_node_binaries=story.old)
    assert refused.status != 0
    assert "a number is wanted here" in refused.said, refused.said
    assert pids(story.node) == running
    assert "packets: 300" in story.node.run("cat /etc/vigia/exporter.yaml"), "what was refused is not written"


def test_an_upgrade_restarts_what_has_changed(story: Story) -> None:
    running = pids(story.node)
    checked = story.playbook.run("--check", **story.changed, vigia_node_binaries=story.new)
    assert checked.status == 0, checked.said
    assert checked.changed >= 3
    assert pids(story.node) == running
    upgraded = story.playbook.run(**story.changed, vigia_node_binaries=story.new)
    assert upgraded.status == 0, upgraded.said
    assert all(pid != running[a] for a, pid in pids(story.node).items())
    version = (ROOT / "VERSION").read_text().strip()
    assert all(version in story.node.run(f"{a} --version 2>&1") for a in AGENTS)
    again = story.playbook.run(**story.changed, vigia_node_binaries=story.new)
    assert (again.status, again.changed) == (0, 0), again.said


def test_a_program_that_is_not_wanted_is_stopped(story: Story) -> None:
    wanted = ["vigia-exporter", "vigia-probe"]
    fewer = story.playbook.run(**story.changed, vigia_node_binaries=story.new, vigia_node_programs=wanted)
    assert fewer.status == 0, fewer.said
    assert story.node.shown("vigia-enforcer", "ActiveState") == "inactive"
    assert story.node.shown("vigia-exporter", "ActiveState") == "active"


def test_endpoints_of_probes_come_and_go(story: Story) -> None:
    """Of a network with a Linux bridge, whose device waits for the agent of Neutron."""
    node, kept = story.node, "/srv/endpoints.yaml"
    node.run(f"printf '%s' '{ENDPOINT}' > {kept}; chmod 644 {kept}")
    wanted = {**story.changed, "vigia_node_binaries": story.new, "vigia_node_plug_file": kept}
    for plugged, changes in ((True, None), (True, 0), (False, None), (False, 0), (True, None)):
        ran = story.playbook.run(**wanted, vigia_node_plug=plugged)
        assert ran.status == 0 and changes in (None, ran.changed), ran.said
        assert node.shown("vigia-plug", "ActiveState") == ("active" if plugged else "inactive")
        assert node.shown("vigia-plug", "UnitFileState") == ("enabled" if plugged else "disabled")
        eventually(lambda p=plugged: bool(node.run(f"cat {TAP} 2> /dev/null || true")) == p, "its device")
        eventually(
            lambda p=plugged: ("/run/netns/vigia-probe-vxlan" in node.run("cat /proc/mounts")) == p,
            "its namespace",
        )


def test_removal_leaves_nothing(story: Story) -> None:
    checked = story.playbook.run("--check", vigia_node_state="absent")
    assert checked.status == 0, checked.said
    assert story.node.shown("vigia-exporter", "ActiveState") == "active"
    removed = story.playbook.run(vigia_node_state="absent")
    assert removed.status == 0, removed.said
    assert story.node.files() == story.pristine
    assert users(story.node) == story.users
    assert not story.node.run(f"cat {TAP} 2> /dev/null || true"), "endpoints of probes are gone"
    assert "vigia-probe" not in story.node.run("cat /proc/mounts; ls /run /run/netns 2> /dev/null || true")
    left = set(story.node.run("ls -A /sys/fs/bpf").split())
    assert left <= {"maps.debug", "progs.debug"}, "the kernel's own"
    again = story.playbook.run(vigia_node_state="absent")
    assert (again.status, again.changed) == (0, 0), again.said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"vigia_node_state": "gone"}, "vigia_node_state is gone; set it to present or absent"),
        ({}, "set vigia_node_binaries to the folder"),
        ({"vigia_node_binaries": "/a", "vigia_node_programs": ["vigia-prob"]}, "known are vigia-exporter"),
        ({"vigia_node_binaries": "/a", "vigia_node_on_change": "x"}, "set it to restarted or reloaded"),
        (
            {"vigia_node_binaries": "/a", "vigia_node_files": {"../passwd": {}}},
            "has a name with a slash: ../passwd",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_changes(
    node: Node, playbook: Playbook, given: dict[str, Any], said: str
) -> None:
    before = node.files()
    ran = playbook.run(**given)
    assert ran.status != 0
    assert said in ran.said, ran.said
    assert ran.changed == 0 and node.files() == before


def test_a_given_token_is_never_shown(
    node: Node, playbook: Playbook, binaries: dict[str, Path], variables: dict[str, Any]
) -> None:
    secret = "5" * 40
    ran = playbook.run(
        "-vvv",
        "--diff",
        **variables,
        vigia_node_binaries=str(binaries["0.0.9"]),
        vigia_node_enforcer_token=secret,
    )
    try:
        assert ran.status == 0, ran.said
        assert node.run("cat /etc/vigia/enforcer.token").strip() == secret
        tasks = ran.said.split("TASK [")
        assert [t.splitlines()[0] for t in tasks if secret in t] == []
    finally:
        assert playbook.run(vigia_node_state="absent").status == 0


def test_ansible_lint_finds_nothing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy/ansible", tmp_path / "ansible")
    argv = [
        str(Path(sys.executable).with_name("ansible-lint")),
        "--offline",
        "--nocolor",
        "--profile=production",
        "ansible",
    ]
    env = {**os.environ, "HOME": str(tmp_path), "ANSIBLE_HOME": f"{tmp_path}/home"}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
