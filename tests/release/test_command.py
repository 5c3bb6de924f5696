"""The vigia command from its Debian package, on a Debian of its own: what it does there, upgrades, and what removing leaves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nodekit import Node, booted
from releasekit import NEW, OLD, architecture, blocks, versions

from vigia.cli.main import COMMANDS
from vigia.doctor.kernel import FEATURES, NEEDED

pytestmark = [pytest.mark.long, pytest.mark.release]

PACKAGE, FOLDER = "vigia-cli", "/usr/lib/vigia-cli"
PROGRAMS = ("vigia", "kubectl-vigia")
GONE = "vigia/src/vigia/gone.py"
"""A module that only the older version has."""

AS_NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The package of this tree, and of the same tree when it had a lower version and a module more."""
    return versions(tmp_path_factory.mktemp("release"), "cli-packages", {GONE: '"""Gone since."""\n'})


@contextmanager
def running(root: Path, packages: dict[str, Path]) -> Iterator[Node]:
    """A Debian with Python and nothing else that the command may use, and both packages in /srv."""
    root.mkdir()
    with booted(root, "systemd python3 libstdc++6") as node:
        for version, folder in packages.items():
            shutil.copytree(folder, root / "srv" / version)
        yield node


@pytest.fixture
def machine(tmp_path: Path, packages: dict[str, Path]) -> Iterator[Node]:
    """A machine that does not have the command yet."""
    with running(tmp_path / "machine", packages) as node:
        yield node


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory, packages: dict[str, Path]) -> Iterator[Node]:
    """A machine that has it, which no test changes."""
    with running(tmp_path_factory.mktemp("equipped") / "machine", packages) as node:
        install(node, NEW)
        yield node


def install(machine: Node, version: str) -> str:
    """Install a version as the guide says; some thousand modules are compiled."""
    (script,) = blocks("command")
    return machine.run(f"cd /srv/{version} && {script}", seconds=900)


def stray(machine: Node) -> set[str]:
    """Return what is in the package's folder and neither of the package nor compiled from what is."""
    listed = set(machine.run(f"dpkg --listfiles {PACKAGE}").splitlines())
    there = machine.run(f"find {FOLDER} -not -name __pycache__").splitlines()
    compiled = re.compile(r"(.*)/__pycache__/([^/]+)\.cpython-311\.pyc")
    return {f for f in there if f not in listed and compiled.sub(r"\1/\2.py", f) not in listed}


def test_every_command_starts(equipped: Node) -> None:
    for program in PROGRAMS:
        assert equipped.run(f"{program} --version") == f"{program}, version {NEW}\n"
        assert equipped.run(f"{AS_NOBODY} {program} --version") == f"{program}, version {NEW}\n"
    helped = equipped.run(f"for c in {' '.join(COMMANDS)}; do vigia $c --help; done")
    assert helped.count("Usage: vigia ") == len(COMMANDS)
    assert stray(equipped) == set()


def test_what_cannot_be_done_is_a_line(equipped: Node) -> None:
    refused = equipped.run("vigia top --once --url http://127.0.0.1:1 2>&1 || true")
    assert "http://127.0.0.1:1" in refused and "Traceback" not in refused
    refused = equipped.run("vigia demo 2>&1 || true")
    assert "this needs the source tree" in refused and "Traceback" not in refused


def test_all_that_it_brings_finds_what_it_is_linked_to(equipped: Node) -> None:
    compiled = equipped.run(f"find {FOLDER} -name '*.so*' -type f").splitlines()
    assert len(compiled) > 100, "numpy, pyarrow and others bring compiled parts"
    linked = equipped.run(f"find {FOLDER} -name '*.cpython-311-*.so' -exec ldd {{}} + 2>&1")
    assert "libc.so.6" in linked and "not found" not in linked
    equipped.run(
        f"cd / && /usr/bin/python3 -I -c \"import sys; sys.path.insert(0, '{FOLDER}'); import pyarrow, numpy\""
    )


def test_it_examines_the_machine_and_changes_nothing(equipped: Node) -> None:
    before = equipped.files()
    report = json.loads(equipped.run("vigia doctor --json || test $? = 1"))
    findings = report["findings"]
    assert report["count"] == Counter(f["state"] for f in findings)
    assert all(f["fix"] for f in findings if f["state"] in ("warning", "fault"))
    by_check = {f["check"]: [g for g in findings if g["check"] == f["check"]] for f in findings}
    assert [f["state"] for f in by_check["ovs"]] == ["absent"]
    assert [f["state"] for f in by_check["capabilities"]] == ["ok"] * len(NEEDED)
    assert {f["state"] for f in by_check["ports"]} == {"ok"}
    features = by_check["features"]
    assert len(features) == len(FEATURES)
    for found, feature in zip(features, FEATURES, strict=True):
        program = feature.command.split()[0]
        assert found["found"] == f"{feature.module} cannot be tested without {program}"
        assert found["fix"] == "apt-get install iproute2"
    assert equipped.files() == before


def test_who_is_not_root_is_told_what_would_be_lacking(equipped: Node) -> None:
    report = json.loads(equipped.run(f"{AS_NOBODY} vigia doctor --json || test $? = 1"))
    lacking = [f["found"] for f in report["findings"] if f["check"] == "capabilities"]
    assert lacking == [f"{program} would lack {', '.join(needed)}" for program, needed in NEEDED.items()]
    said = equipped.run(f"{AS_NOBODY} vigia doctor || test $? = 1")
    assert f"{report['count']['fault']} faults" in said and "Traceback" not in said


EVERYTHING = (
    r"find / -xdev \( -path /old -o -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/log "
    r"-o -path /var/lib/dpkg -o -path /var/lib/systemd \) -prune -o -print | sort"
)
"""All files, those at home among them, but the kernel's and the records of Debian's own programs."""


def test_an_upgrade_leaves_nothing_of_the_version_before_and_removal_nothing_at_all(machine: Node) -> None:
    pristine, about = machine.run(EVERYTHING), f"ls {FOLDER} | grep '^vigia-'"
    install(machine, OLD)
    assert machine.run("vigia --version") == f"vigia, version {OLD}\n"
    assert machine.run(f"find {FOLDER} -name 'gone*'").count("\n") == 2, (
        "a module, and what was compiled of it"
    )
    assert machine.run(about).split() == [f"vigia-{OLD}.dist-info"]

    assert f"vigia, version {NEW}" in install(machine, NEW)

    assert machine.run("kubectl-vigia --version") == f"kubectl-vigia, version {NEW}\n"
    assert machine.run(f"find {FOLDER} -name 'gone*'") == ""
    assert machine.run(about).split() == [f"vigia-{NEW}.dist-info"]
    assert stray(machine) == set()
    machine.run("vigia doctor --json > /dev/null || test $? = 1")
    machine.run("vigia top --once --url http://127.0.0.1:1 2> /dev/null || test $? = 1")

    install(machine, OLD)  # and back
    assert machine.run("vigia --version") == f"vigia, version {OLD}\n"
    assert machine.run(about).split() == [f"vigia-{OLD}.dist-info"]
    assert stray(machine) == set()

    machine.run(f"dpkg --remove {PACKAGE}")
    assert machine.run(EVERYTHING) == pristine
    assert machine.run(f"dpkg-query --show {PACKAGE} 2>&1 || true").startswith(
        "dpkg-query: no packages found"
    )


def test_it_says_what_it_needs_and_is(packages: dict[str, Path]) -> None:
    file = packages[NEW] / f"{PACKAGE}_{NEW}_{architecture()}.deb"

    def said(*argv: str) -> str:
        return subprocess.run(["dpkg-deb", *argv], capture_output=True, text=True, check=True).stdout

    fields = said("--field", str(file), "Package", "Version", "Architecture", "Depends", "Recommends")
    assert f"Package: {PACKAGE}\nVersion: {NEW}\nArchitecture: {architecture()}\n" in fields
    assert "python3 (>= 3.11~), python3 (<< 3.12~)" in fields and "iproute2" in fields
    lines = said("--contents", str(file)).splitlines()
    assert all(line.split()[1] == "root/root" for line in lines)
    names = [line.split(maxsplit=5)[5] for line in lines]
    assert all(
        n in ("./", "./usr/") or n.startswith(("./usr/bin/", "./usr/lib/", "./usr/share/")) for n in names
    )
    assert not [n for n in names if "__pycache__" in n or n.endswith("direct_url.json")], (
        "made when it is installed"
    )
