"""docs/how-to/node.md, done as it says: on a Debian of its own with nothing but systemd, which runs the units."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import debiankit
import pytest
from labkit import VIGIA, need_root

from vigia.host import processes
from vigia_testing import eventually

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/how-to/node.md").read_text()
AGENTS = ("vigia-exporter", "vigia-enforcer", "vigia-probe")

BOOT = r"""
set -e
cgroup=$1 root=$2
echo $$ > "$cgroup/cgroup.procs"
exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child --propagation private sh -e -c '
  root=$1
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  mount -t bpf bpf "$root/sys/fs/bpf"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  mkdir "$root/dev/shm" "$root/dev/pts" "$root/old"
  for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 ptmx:5:2; do
    number=${device#*:}
    mknod -m 666 "$root/dev/${device%%:*}" c "${number%:*}" "${number#*:}"
  done
  ip link set lo up
  hostname node
  cd "$root"
  pivot_root . old
  exec chroot . sh -c "umount -l /old && exec env -i container=test /lib/systemd/systemd --log-target=null"
' sh "$root"
"""
"""Starts systemd in namespaces of its own, with no network but loopback and nothing of the machine's files."""


def blocks(name: str) -> list[str]:
    """Return the guide's blocks of commands with a name."""
    return re.findall(
        rf"^<!-- test: {re.escape(name)} -->\n```sh\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL
    )


@dataclass(frozen=True)
class Node:
    """A machine with systemd that runs beside this one."""

    pid: int
    """Its systemd."""

    @property
    def entering(self) -> list[str]:
        kinds = ("mount", "pid", "net", "uts", "ipc", "cgroup", "root", "wd")
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        return ["nsenter", f"--target={self.pid}", *(f"--{k}" for k in kinds), "env", "-i", path]

    def run(self, script: str) -> str:
        """Run commands as a person there would type them, stopping at the first that fails."""
        done = subprocess.run(
            [*self.entering, "timeout", "120", "sh", "-eu", "-c", script],
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{script}\n{said}\n{self.troubles()}"
        return said

    def troubles(self) -> str:
        argv = [*self.entering, "systemctl", "status", "--no-pager", "--full", *AGENTS]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout

    def shown(self, unit: str, setting: str) -> str:
        return self.run(f"systemctl show --property={setting} --value {unit}").strip()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    need_root()
    root = tmp_path_factory.mktemp("node")
    root.chmod(0o755)
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-xpf", debiankit.tree("systemd")], check=True)
    (root / "etc/machine-id").write_text("")
    cgroup = Path(unified(), f"vigia-test-node-{os.getpid()}")
    cgroup.mkdir()
    # Nothing of it outlives the test, however that ends.
    program = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "sh", "-c", BOOT, "sh", cgroup, root])
    try:
        eventually(lambda: children(program.pid), "systemd is started", 60)
        found = Node(children(program.pid)[0])
        up = [*found.entering, "systemctl", "is-system-running", "--wait"]
        eventually(lambda: started(program, up), "systemd is up", 120)
        yield found
    finally:
        program.send_signal(signal.SIGKILL)  # which takes all that runs there with it
        program.wait(60)
        eventually(lambda: gone(cgroup), "the node is gone", 60)
        shutil.rmtree(root)


def unified() -> str:
    """Return where the machine has its cgroup v2."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = [m[1] for m in mounts if m[2] == "cgroup2"]
    if not found:
        pytest.skip("the machine has no cgroup v2 mounted, which systemd needs")
    return found[0]


def children(pid: int) -> list[int]:
    """Return the systemd that a process started."""
    below = [p for p in processes.all_pids() if processes.parent(p) == pid]
    return [p for p in below if Path((processes.arguments(p) or [""])[0]).name == "systemd"]


def started(program: subprocess.Popen[bytes], up: list[str]) -> bool:
    assert program.poll() is None, "systemd ended"
    done = subprocess.run(up, capture_output=True, text=True, check=False)
    return done.stdout.strip() in ("running", "degraded")


def gone(cgroup: Path) -> bool:
    try:
        for folder in sorted(cgroup.rglob("*/"), key=lambda p: len(p.parts), reverse=True):
            folder.rmdir()
        cgroup.rmdir()
    except OSError:
        return not cgroup.exists()
    return True


@pytest.fixture(scope="module")
def installed(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The node after all that the guide says, but TLS."""
    tree = tmp_path_factory.mktemp("tree")
    for block in (*blocks("install"), *blocks("copy")):
        here(node, re.sub(r"/tmp/\S+", str(tree), block), ROOT, tree.parent)  # noqa: S108 - the guide says so
    for block in blocks("node"):
        node.run(block)
    return node


def here(node: Node, script: str, folder: Path, scratch: Path) -> None:
    """Run commands on this machine, from which ssh leads to the node."""
    ssh = scratch / "bin" / "ssh"
    ssh.parent.mkdir(exist_ok=True)
    ssh.write_text(f'#!/bin/sh\nshift\nexec {" ".join(node.entering)} sh -c "$*"\n')
    ssh.chmod(0o755)
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def test_the_guide_has_what_is_run_here() -> None:
    counts = {
        name: len(blocks(name)) for name in ("install", "copy", "node", "certificates", "node with TLS")
    }
    assert counts == {"install": 1, "copy": 1, "node": 3, "certificates": 1, "node with TLS": 1}
    assert GUIDE.count("```sh") == sum(counts.values())


@pytest.mark.parametrize("program", AGENTS)
def test_the_unit_runs_and_reloads(installed: Node, program: str) -> None:
    assert installed.shown(program, "ActiveState") == "active"
    assert installed.shown(program, "UnitFileState") == "enabled"
    pid = installed.shown(program, "MainPID")
    installed.run(f"systemctl reload {program}; until {program} healthcheck; do sleep 1; done")
    assert installed.shown(program, "MainPID") == pid
    assert installed.shown(program, "NRestarts") == "0"


@pytest.mark.parametrize("program", AGENTS)
def test_the_program_has_the_rights_of_its_unit(installed: Node, program: str) -> None:
    pid = installed.shown(program, "MainPID")
    status = dict(line.split(":", 1) for line in installed.run(f"cat /proc/{pid}/status").splitlines())
    wanted = installed.shown(program, "CapabilityBoundingSet").split()
    held = installed.run(f"awk '/^CapBnd/ {{ print $2 }}' /proc/{pid}/status").strip()
    assert bin(int(held, 16)).count("1") == len(wanted) <= 4
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    user = installed.run(f"stat -c %U /proc/{pid}").strip()
    assert user == ("vigia-probe" if program == "vigia-probe" else "root")


def test_secrets_are_nobody_elses(installed: Node) -> None:
    assert installed.run("stat -c %a:%U /etc/vigia/enforcer.token").strip() == "600:root"
    assert installed.run("stat -c %a:%U:%G /etc/vigia").strip() == "750:root:vigia"


def test_a_wrong_configuration_is_refused_before_anything_is_stopped(installed: Node) -> None:
    said = installed.run(
        "cp /etc/vigia/exporter.yaml /tmp/good; echo 'nod: x' > /etc/vigia/exporter.yaml; "
        "systemctl reload vigia-exporter; vigia-exporter check-config --config=/etc/vigia/exporter.yaml || true; "
        "cp /tmp/good /etc/vigia/exporter.yaml; systemctl reload vigia-exporter; "
        "until vigia-exporter healthcheck; do sleep 1; done"
    )
    assert "nod" in said
    assert installed.shown("vigia-exporter", "NRestarts") == "0"


def test_tls_as_the_guide_has_it(installed: Node, tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/vigia").symlink_to(VIGIA)
    here(installed, blocks("certificates")[0], tmp_path, tmp_path)
    installed.run(blocks("node with TLS")[0])
    for program in AGENTS:
        web = f"--web.config.file=/etc/vigia/tls/{program}.web.yml"
        installed.run(f"until {program} healthcheck {web}; do sleep 1; done")
        plain = installed.run(f"{program} healthcheck 2>&1 || echo refused")
        assert plain.splitlines()[-1] == "refused"
    keys = installed.run("ls -l /etc/vigia/tls/").splitlines()
    assert not [line for line in keys if "ca.key" in line]
    assert all(line.startswith("-rw-------") for line in keys if line.endswith(".key"))


@pytest.mark.parametrize("program", AGENTS)
def test_a_program_that_is_stopped_is_started_again(installed: Node, program: str) -> None:
    """By systemd's watchdog, here sooner than the unit says."""
    installed.run(
        f"mkdir -p /run/systemd/system/{program}.service.d; "
        f"printf '[Service]\\nWatchdogSec=4s\\nTimeoutAbortSec=4s\\n' > /run/systemd/system/{program}.service.d/soon.conf; "
        f"systemctl daemon-reload; systemctl restart {program}; until systemctl is-active {program}; do sleep 1; done"
    )
    pid = installed.shown(program, "MainPID")
    installed.run(f"kill -STOP {pid}")
    eventually(lambda: installed.shown(program, "NRestarts") == "1", "it is started again", 120)
    eventually(lambda: installed.shown(program, "ActiveState") == "active", "it runs", 120)
    assert installed.shown(program, "MainPID") not in ("0", pid)
    installed.run(
        f"rm -r /run/systemd/system/{program}.service.d; systemctl daemon-reload; systemctl restart {program}"
    )
