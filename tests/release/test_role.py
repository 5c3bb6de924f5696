"""docs/how-to/ansible.md with the packages of a release, on a Debian of its own: install, upgrade, go back, remove."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansiblekit import Playbook
from nodekit import AGENTS, Node, booted
from pagekit import blocks, page
from releasekit import NEW, OLD, versions

pytestmark = [pytest.mark.long, pytest.mark.release]

GUIDE = blocks(page("how-to/ansible.md"))
INSTALLED = r"dpkg-query --show --showformat='${db:Status-Status} ${Package} ${Version}\n' 'vigia-*' || true"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return versions(tmp_path_factory.mktemp("release"), "node-packages")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with booted(tmp_path_factory.mktemp("node"), "systemd python3 libstdc++6") as found:
        for words in (("add", "tap0", "type", "veth", "peer", "name", "vm0"), ("set", "tap0", "up")):
            subprocess.run(["nsenter", f"--target={found.pid}", "--net", "ip", "link", *words], check=True)
        yield found


@dataclass(frozen=True)
class Story:
    """A node that is installed, changed and removed by the tests in their order."""

    node: Node
    playbook: Playbook
    variables: dict[str, Any]
    packages: dict[str, Path]
    pristine: set[str]
    users: str

    def given(self, version: str) -> dict[str, Any]:
        return {**self.variables, "vigia_node_packages": str(self.packages[version])}

    def versions(self) -> set[str]:
        """Return the versions of the packages that are installed; each must be that of all."""
        lines = [line.split() for line in self.node.run(INSTALLED).splitlines()]
        return {version for status, _, version in (w for w in lines if len(w) == 3) if status == "installed"}

    def runs(self, version: str) -> None:
        for agent in AGENTS:
            assert self.node.shown(agent, "ActiveState") == "active"
            pid = self.node.shown(agent, "MainPID")
            assert f"{agent} {version} (" in self.node.run(f"/proc/{pid}/exe --version 2>&1")


@pytest.fixture(scope="module")
def story(node: Node, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Story:
    variables: dict[str, Any] = yaml.safe_load(GUIDE["compute.yml"])
    variables["vigia_node_exporter"]["node"] = "compute1"
    playbook = Playbook(node, tmp_path_factory.mktemp("ansible"))
    users = node.run("getent passwd; getent group")
    return Story(node, playbook, variables, packages, node.files(), users)


def test_check_mode_changes_nothing(story: Story) -> None:
    checked = story.playbook.run("--check", "--diff", **story.given(OLD))
    assert (checked.status, checked.failed) == (0, 0), checked.said
    assert story.node.files() == story.pristine and story.versions() == set()


def test_it_installs_the_packages_and_runs_them(story: Story) -> None:
    first = story.playbook.run(**story.given(OLD))
    assert first.status == 0, first.said
    assert story.versions() == {OLD}
    story.runs(OLD)
    assert not {f for f in story.node.files() if f.endswith(".deb")}, "no copies stay"
    again = story.playbook.run(**story.given(OLD))
    assert (again.status, again.changed) == (0, 0), again.said


def test_binaries_are_refused_beside_packages(story: Story, tmp_path: Path) -> None:
    refused = story.playbook.run(**story.variables, vigia_node_binaries=str(tmp_path))
    assert refused.status != 0 and refused.changed == 0
    assert "the node has the package vigia-node; set vigia_node_packages" in refused.said, refused.said


@pytest.mark.parametrize(
    ("files", "said"), [((), "which has 0 files vigia-base_*_all.deb"), (("1", "2"), "which has 2 files")]
)
def test_a_folder_of_no_release_or_of_two_is_refused(
    story: Story, tmp_path: Path, files: tuple[str, ...], said: str
) -> None:
    for version in files:
        (tmp_path / f"vigia-base_{version}_all.deb").touch()
    refused = story.playbook.run(**story.variables, vigia_node_packages=str(tmp_path))
    assert refused.status != 0 and refused.changed == 0
    assert said in refused.said, refused.said
    assert story.versions() == {OLD}


def test_an_upgrade_and_the_way_back(story: Story) -> None:
    token = story.node.run("cat /etc/vigia/enforcer.token")
    checked = story.playbook.run("--check", **story.given(NEW))
    assert checked.status == 0 and checked.changed > 0, checked.said
    assert story.versions() == {OLD}
    for version in (NEW, OLD, NEW):
        ran = story.playbook.run(**story.given(version))
        assert ran.status == 0, ran.said
        assert story.versions() == {version}
        story.runs(version)
    assert story.node.run("cat /etc/vigia/enforcer.token") == token


def test_removal_without_purging_keeps_the_configuration(story: Story) -> None:
    token = story.node.run("cat /etc/vigia/enforcer.token")
    removed = story.playbook.run(vigia_node_state="absent", vigia_node_purge=False)
    assert removed.status == 0, removed.said
    assert story.versions() == set()
    assert story.node.run("cat /etc/vigia/enforcer.token; ls /usr/bin/vigia-* || true").startswith(token)
    back = story.playbook.run(**story.given(NEW))
    assert back.status == 0, back.said
    assert story.node.run("cat /etc/vigia/enforcer.token") == token
    story.runs(NEW)


def test_removal_leaves_nothing(story: Story) -> None:
    checked = story.playbook.run("--check", vigia_node_state="absent")
    assert checked.status == 0, checked.said
    assert story.versions() == {NEW}
    removed = story.playbook.run(vigia_node_state="absent")
    assert removed.status == 0, removed.said
    assert story.node.files() == story.pristine
    assert story.node.run("getent passwd; getent group") == story.users
    left = set(story.node.run("ls -A /sys/fs/bpf").split())
    assert left <= {"maps.debug", "progs.debug"}, "the kernel's own"
    again = story.playbook.run(vigia_node_state="absent")
    assert (again.status, again.changed) == (0, 0), again.said


def test_packages_take_over_what_was_installed_as_binaries(story: Story, tmp_path: Path) -> None:
    (package,) = story.packages[OLD].glob("vigia-node_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path], check=True)
    first = story.playbook.run(**story.variables, vigia_node_binaries=str(tmp_path / "usr/bin"))
    assert first.status == 0, first.said
    assert story.versions() == set()
    story.runs(OLD)
    taken = story.playbook.run(**story.given(NEW))
    assert taken.status == 0, taken.said
    assert story.versions() == {NEW}
    story.runs(NEW)
    assert story.playbook.run(vigia_node_state="absent").status == 0
    assert story.node.files() == story.pristine
