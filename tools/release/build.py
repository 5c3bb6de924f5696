"""What every step of a release needs: the exported tree, where its files go, and settings of its own."""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from release.source import Refused, Source, run

__all__ = ["ARCHITECTURES", "COMMANDS", "PROGRAMS", "SITE", "Build", "packed"]

PROGRAMS = ("vigia-probe", "vigia-exporter", "vigia-enforcer")
"""Go programs: one binary each."""

SITE = {
    "isolation-agent": "isolation_agent",
    "vigia-compare": "vigia_compare",
    "vigia-identity": "vigia_identity",
}
"""Python services and their modules."""

COMMANDS = {"vigia": "vigia.cli.main", "kubectl-vigia": "vigia.cli.kubectl"}
"""What people run, and the modules of its main()."""

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""As Go, Debian and OCI call them, and as Python does."""

PYTHON = "3.11"
"""Debian 12's, for which packages and images are made."""


@dataclass(frozen=True)
class Build:
    """One build of a release."""

    source: Source
    tree: Path
    """The commit's files."""
    work: Path
    """For what is between them and the release."""
    out: Path
    """What users download."""
    uv: Path
    architectures: tuple[str, ...] = tuple(ARCHITECTURES)
    debian: tuple[str, ...] = ()
    """Lines of sources.list for the images' Debian; none: where this machine has it from."""

    def path(self, name: str) -> Path:
        """Return where a file of the release goes."""
        return self.out / name

    def run(self, *argv: str | Path, env: dict[str, str] | None = None) -> str:
        """Run a program in the exported tree; nothing of the caller's settings gets into what it makes."""
        fixed = {
            "SOURCE_DATE_EPOCH": str(self.source.epoch),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            **dict.fromkeys(
                ("GOFLAGS", "GOEXPERIMENT", "VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL"), ""
            ),
        }
        return run(argv, self.tree, {**fixed, **(env or {})})

    def node(self, architecture: str) -> Path:
        """Return the tree that make install puts together for a node, built when it is first asked for."""
        root = self.work / f"node-{architecture}"
        if root.exists():
            return root
        self._toolchain()
        self.run(
            *("make", "--no-print-directory", "install", f"VERSION={self.source.version}"),
            *(f"REVISION={self.source.revision}", f"BIN={self.work}/bin-{architecture}", f"DESTDIR={root}"),
            env={
                "GOARCH": architecture,
                "GOOS": "linux",
                "GOAMD64": "v1",
                "GOARM64": "v8.0",
                "GOFLAGS": "-buildvcs=false",
            },
        )
        return root

    def _toolchain(self) -> None:
        """Compare this machine's Go with the one that images are built with: another writes other bytes."""
        line = re.search(r"^toolchain (\S+)", (self.tree / "go.mod").read_text(), re.MULTILINE)
        wanted = line[1] if line else "unknown"
        found = run(["go", "env", "GOVERSION"], self.tree).strip()
        if found != wanted:
            raise Refused(
                f"cannot build with {found}: releases are built with {wanted}; set GOTOOLCHAIN={wanted}"
            )


def packed(archive: Path, files: Iterable[tuple[Path, str]], epoch: int) -> Path:
    """Write files, by their names in it, to a .tar.gz that depends on what is in them and the time alone."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for source, name in sorted(files, key=lambda f: f[1]):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = source.stat().st_size, epoch
            entry.mode = 0o755 if source.stat().st_mode & 0o100 else 0o644
            entry.uname = entry.gname = "root"
            with source.open("rb") as content:
                tar.addfile(entry, content)
    return archive
