"""A Debian of the tests' own with nothing but systemd, which runs beside this machine and touches nothing of it."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import debiankit
import pytest
from labkit import need_root

from vigia.host import processes
from vigia_testing import eventually

__all__ = ["AGENTS", "ENDPOINT", "TAP", "Node", "booted", "here"]

LISTED = r"find / -xdev \( -path /old -o -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /srv \) -prune -o -print"
"""Files of a node, but those that are of the kernel or of the test."""

KEPT_BY_DEBIAN = re.compile(
    r"/var/(lib/(dpkg|systemd|apt)|log|cache|backups)\b.*|/etc/(passwd|shadow|group|gshadow|subuid|subgid)-?|/etc/\.pwd\.lock|"
    r"/etc/systemd/system(/multi-user\.target\.wants)?|/root/.*|/etc/machine-id"
)
"""Records of Debian's own, which every package leaves."""

ENDPOINT = """version: 1
endpoints:
  - {network: vxlan, port: 0a4f2c11-5a0e-4a5f-8c0d-0f1e2d3c4b5a, mac: "fa:16:3e:00:00:01", mtu: 1450,
     addresses: [10.40.0.5/20], switch: linuxbridge, bridge: brq0a4f2c11-5a}
"""
"""What vigia-plug follows: a network with a Linux bridge, whose device waits for the agent of Neutron."""

TAP = "/sys/class/net/tap0a4f2c11-5a/ifindex"

_BOOTS = itertools.count()

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

    def run(self, script: str, seconds: int = 300) -> str:
        """Run commands as a person there would type them, stopping at the first that fails, or after some seconds."""
        done = subprocess.run(
            [*self.entering, "timeout", str(seconds), "sh", "-eu", "-c", script],
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

    def files(self) -> set[str]:
        """Return what is there, but what Debian keeps for itself."""
        return {f for f in self.run(LISTED).splitlines() if not KEPT_BY_DEBIAN.fullmatch(f)}

    def shown(self, unit: str, setting: str) -> str:
        return self.run(f"systemctl show --property={setting} --value {unit}").strip()


@contextmanager
def booted(root: Path, packages: str = "systemd") -> Iterator[Node]:
    """Unpack a Debian with packages into a folder and start it; it is gone, and the folder with it, after the block."""
    need_root()
    root.chmod(0o755)
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-xpf", debiankit.tree(packages)], check=True)
    (root / "etc/machine-id").write_text("")
    cgroup = Path(unified(), f"vigia-test-node-{os.getpid()}-{next(_BOOTS)}")
    cgroup.mkdir(exist_ok=True)
    # Nothing of it outlives the test, however that ends.
    program = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "sh", "-c", BOOT, "sh", cgroup, root])
    try:
        eventually(lambda: children(program.pid), "systemd is started", 120)
        found = Node(children(program.pid)[0])
        up = [*found.entering, "systemctl", "is-system-running", "--wait"]
        eventually(lambda: started(program, up), "systemd is up", 300)
        yield found
    finally:
        program.send_signal(signal.SIGKILL)  # which takes all that runs there with it
        program.wait(60)
        eventually(lambda: gone(cgroup), "the node is gone", 120)
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
