"""The programs of the cluster: built from pinned Go modules and unpacked from Debian packages, once.

They are kept outside of the source tree, in a folder named by a hash of what they are made from.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.host.source import source_root
from vigia.lab import packages

__all__ = ["KUBERNETES", "NAMES", "PACKAGES", "ClusterPrograms", "find", "prepare"]

KUBERNETES = "1.34.1"
"""What tools/kubernetes/go.mod pins."""

NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")
"""What the one binary of tools/kubernetes is, by the name that it is started by."""

PACKAGES = (
    "busybox-static",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "etcd-server",
    "iptables",
    "libip4tc2",
    "libip6tc2",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libxtables12",
    "runc",
)
"""Debian packages of a node, which are unpacked and not installed."""

_VERSION = "k8s.io/component-base/version"
_LONG = 7200.0  # seconds: a build on a machine with other work takes an hour
_LEGACY = (
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
)


@dataclass(frozen=True)
class ClusterPrograms:
    """Where the cluster's programs are."""

    folder: Path

    @property
    def bin(self) -> Path:
        """Folder of what was built: NAMES, coredns, pause."""
        return self.folder / "bin"

    @property
    def root(self) -> Path:
        """What the Debian packages have, as below /."""
        return self.folder / "root"


def find() -> ClusterPrograms:
    """Return the programs, whether they are there or not. Raises VigiaError outside of a source tree."""
    return ClusterPrograms(packages.cache() / f"kubernetes-{_digest(source_root())}")


def prepare(steps: Steps) -> ClusterPrograms:
    """Build and unpack what is not there yet. Raises VigiaError."""
    programs = find()
    programs.bin.mkdir(parents=True, exist_ok=True)
    tools = source_root() / "tools"
    if not (programs.bin / "kubernetes").exists():
        with steps.step(f"building Kubernetes {KUBERNETES}", expected=900):
            _build(tools / "kubernetes", ".", programs.bin / "kubernetes", _stamps())
    for name in NAMES:
        _link(programs.bin / name, "kubernetes")
    if not (programs.bin / "pause").exists():
        with steps.step("building the program of sandboxes", expected=5):
            _build(tools / "kubernetes", "./pause", programs.bin / "pause")
    if not (programs.bin / "coredns").exists():
        with steps.step("building CoreDNS", expected=150):
            _build(tools / "coredns", ".", programs.bin / "coredns")
    if not programs.root.exists():
        with steps.step("unpacking the nodes' packages", expected=30) as done:
            _unpack(programs.root)
            done.append(f"unpacked {len(PACKAGES)} Debian packages for the nodes")
    return programs


def _digest(root: Path) -> str:
    """What the programs follow from: sources and versions, Go's own and those of Debian."""
    total = hashlib.sha256(f"{platform.machine()} {' '.join(PACKAGES)} {packages.release()}".encode())
    go = commands.find("go")
    if go is None:
        raise VigiaError("go is not installed; the cluster's programs are built with it")
    total.update(commands.run([go, "env", "GOVERSION"]).stdout.encode())
    for folder in ("kubernetes", "coredns"):
        for file in sorted((root / "tools" / folder).rglob("*")):
            if file.is_file():
                total.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return total.hexdigest()[:16]


def _stamps() -> str:
    major, minor, _ = KUBERNETES.split(".")
    values = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "lab",
    }
    return " ".join(f"-X {_VERSION}.{key}={value}" for key, value in values.items())


def _build(module: Path, package: str, to: Path, stamps: str = "") -> None:
    """Build a program; it is there as a whole or not at all."""
    new = to.with_name(f"{to.name}.{os.getpid()}")
    argv = ["go", "build", "-C", str(module), "-trimpath", "-buildvcs=false"]
    argv += [
        "-tags",
        "selinux,notest,grpcnotrace",
        "-ldflags",
        f"-s -w {stamps}".strip(),
        "-o",
        str(new),
        package,
    ]
    try:
        commands.run(argv, env={"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}, timeout=_LONG)
        new.replace(to)
    finally:
        new.unlink(missing_ok=True)


def _unpack(root: Path) -> None:
    """Take the packages as apt would and unpack them; apt's own state stays as it is."""
    with tempfile.TemporaryDirectory(dir=root.parent, prefix="packages-") as scratch:
        new = Path(scratch, "root")
        new.mkdir()
        _download(scratch, PACKAGES)
        for file in sorted(Path(scratch).glob("*.deb")):
            commands.run(["dpkg-deb", "-x", str(file), str(new)])
        for name in _LEGACY:
            _link(new / "usr/sbin" / name, "xtables-nft-multi")
        if root.exists():
            shutil.rmtree(root)
        new.replace(root)


def _download(folder: str, names: Sequence[str]) -> None:
    # apt-get downloads as the user _apt, who may not write here: it says so, and goes on as root.
    argv = ["env", "-C", folder, "apt-get", "--quiet", "download", *names]
    done = commands.run(argv, timeout=600, check=False)
    if done.status != 0:  # a machine whose lists of packages are empty or old
        commands.run(["apt-get", "--quiet", "update"], timeout=600)
        commands.run(argv, timeout=600)


def _link(at: Path, to: str) -> None:
    if not at.is_symlink():
        at.symlink_to(to)
