"""The systemd units, and the tree that make install puts together."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
EXPOSED = 40
"""Tenths of systemd-analyze's exposure level above which a unit is not hardened; 100 is the worst."""
PLUG = "vigia-plug"
"""A command of vigia-probe: it has no file of settings, and looks at the one of endpoints all the time."""
PLUG_EXPOSED = 45
"""It cannot have mounts of its own, which makes up most of the level."""


def settings(unit: Path) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z]+)=(.*)$", unit.read_text(), re.MULTILINE)
    return dict(found)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's file system, as the guide has it made."""
    folder = tmp_path_factory.mktemp("node")
    guide = (ROOT / "docs/how-to/node.md").read_text()
    match = re.search(r"<!-- test: install -->\n```sh\n(make install) DESTDIR=/tmp/vigia-node\n```", guide)
    assert match, "the guide no longer has the command that this test runs"
    subprocess.run([*match[1].split(), f"DESTDIR={folder}"], cwd=ROOT, check=True, capture_output=True)
    (folder / "bin").symlink_to("usr/bin")
    for program in ("true", "sh"):
        (folder / "usr/bin" / program).touch(mode=0o755)
    return folder


def verify(unit: Path, tmp_path: Path, present: Path) -> str:
    """systemd-analyze verify, with the program that make install brought in its place."""
    program = f"/usr/bin/{'vigia-probe' if unit.stem == PLUG else unit.stem}"
    there = present / program.lstrip("/")
    text = unit.read_text().replace(f"{program} ", f"{there if there.exists() else '/bin/true'} ")
    copy = tmp_path / unit.name
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.stem)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path, tree: Path) -> None:
    assert verify(unit, tmp_path, tree) == ""


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.stem)
def test_systemd_finds_the_unit_hardened(unit: Path) -> None:
    level = PLUG_EXPOSED if unit.stem == PLUG else EXPOSED
    argv = ["systemd-analyze", "security", "--offline=yes", f"--threshold={level}", "--no-pager", unit]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_what_plug_makes_can_be_seen_by_others() -> None:
    """Namespaces are mounts: a unit with mounts of its own would keep them to itself."""
    unit = next(u for u in UNITS if u.stem == PLUG)
    has = settings(unit)
    own = {
        *("PrivateTmp", "PrivateMounts", "PrivateDevices", "ProtectHome", "ProtectSystem", "ReadOnlyPaths"),
        *("ReadWritePaths", "InaccessiblePaths", "TemporaryFileSystem", "BindPaths", "RootDirectory"),
        *("ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups"),
        *("ProtectProc", "ProcSubset", "MountFlags"),
    }
    assert not own & set(has)
    assert has["CapabilityBoundingSet"] == "CAP_NET_ADMIN CAP_SYS_ADMIN"
    assert {"setns", "unshare", "mount", "umount2"} <= set(has["SystemCallFilter"].split())
    assert has["RuntimeDirectoryPreserve"] == "yes", "what it has plugged outlives it, and so must its note"


def test_a_unit_that_is_not_hardened_would_be_found(tmp_path: Path) -> None:
    bare = tmp_path / "bare.service"
    bare.write_text("[Service]\nExecStart=/bin/true\n")
    argv = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSED}", "--no-pager", bare]
    assert subprocess.run(argv, capture_output=True, check=False).returncode != 0


def test_the_programs_of_a_node_have_a_unit() -> None:
    assert {"vigia-probe", "vigia-exporter", "vigia-enforcer", "isolation-agent"} <= {u.stem for u in UNITS}


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.stem)
def test_units_check_the_configuration_before_they_start_and_can_reload(unit: Path) -> None:
    has = settings(unit)
    if unit.stem != PLUG:
        assert "check-config" in has["ExecStartPre"]
        assert has["ExecReload"] == "/bin/sh -c 'kill -HUP $MAINPID'"
    assert has["Restart"] == "always"
    assert (
        has["NotifyAccess"] == "main" and has["WatchdogSec"] == "90s"
    )  # after vigia_service.watchdog's own end
    assert has["NoNewPrivileges"] == "yes"
    assert "CapabilityBoundingSet" in has


def test_a_service_that_does_not_take_sighup_at_once_says_when() -> None:
    """Python takes its time to begin: a reload right after the start would end it."""
    says = {unit.stem for unit in UNITS if settings(unit)["Type"] == "notify"}
    assert says == {"isolation-agent", "vigia-compare", "vigia-identity"}


def test_the_tree_has_what_the_guide_says(tree: Path) -> None:
    assert (tree / "usr/lib/systemd/system" / f"{PLUG}.service").exists()
    for program in ("vigia-probe", "vigia-exporter", "vigia-enforcer"):
        done = subprocess.run(
            [tree / "usr/bin" / program, "--version"], capture_output=True, text=True, check=True
        )
        assert program in done.stdout + done.stderr
        assert (tree / "usr/lib/systemd/system" / f"{program}.service").exists()
    assert (tree / "etc/vigia").stat().st_mode & 0o777 == 0o750
    argv = ["systemd-sysusers", "--dry-run", f"--root={tree}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = set(re.findall(r"[Cc]reat\w* user '([a-z-]+)'", done.stdout + done.stderr))
    assert {"vigia", "vigia-probe", "isolation-agent"} <= made, done.stdout + done.stderr


def test_no_two_parts_share_a_user_but_those_that_have_to_be_root() -> None:
    users = {unit.stem: settings(unit).get("User", "root") for unit in UNITS}
    assert {part for part, user in users.items() if user == "root"} == {
        PLUG,
        "vigia-exporter",
        "vigia-enforcer",
    }
    others = [user for user in users.values() if user != "root"]
    assert len(set(others)) == len(others), users
    entries = (ROOT / "deploy/systemd/vigia.sysusers").read_text()
    assert set(others) == set(re.findall(r"^u +(\S+)", entries, re.MULTILINE))


def test_the_binaries_need_nothing_of_the_node(tree: Path) -> None:
    for program in ("vigia-probe", "vigia-exporter", "vigia-enforcer"):
        done = subprocess.run(
            ["ldd", tree / "usr/bin" / program], capture_output=True, text=True, check=False
        )
        assert "not a dynamic executable" in done.stdout + done.stderr
