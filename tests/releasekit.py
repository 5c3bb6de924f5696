"""A copy of the project with a history of its own, from which releases can be made while the tree is being changed."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from extendkit import copy_tree, git

__all__ = [
    "GUIDE",
    "NEW",
    "OLD",
    "ROOT",
    "WHO",
    "Made",
    "architecture",
    "blocks",
    "cloned",
    "commit",
    "copied",
    "foreign",
    "key",
    "release",
    "segments",
    "versions",
]

ROOT = Path(__file__).resolve().parents[1]
OLD = "0.0.9"
NEW = (ROOT / "VERSION").read_text().strip()
GUIDE = (ROOT / "docs/how-to/release.md").read_text()
WHO = "vigia-release"
DATE = "2026-01-31T12:00:00+00:00"


@dataclass(frozen=True)
class Made:
    """What a run of the program said, and where its files are."""

    status: int
    said: str
    folder: Path

    def sums(self) -> dict[str, str]:
        """Checksums by name, as SHA256SUMS has them."""
        lines = (self.folder / "SHA256SUMS").read_text().splitlines()
        return {name: digest for digest, name in (line.split("  ") for line in lines)}

    def file(self, ending: str) -> Path:
        (found,) = [p for p in self.folder.iterdir() if p.name.endswith(ending)]
        return found


def blocks(name: str) -> list[str]:
    """Return the guide's blocks of commands with a name."""
    return [
        part.split("```sh\n", 1)[1].split("```", 1)[0] for part in GUIDE.split(f"<!-- test: {name} -->\n")[1:]
    ]


def commit(tree: Path, message: str = "a change") -> None:
    """Commit all that a tree has; the same tree gives the same commit."""
    git(tree, "add", "--all")
    who = [word for part in ("name", "email") for word in ("-c", f"user.{part}=test")]
    fixed = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
    argv = [
        "git",
        *who,
        "-c",
        "commit.gpgsign=false",
        "commit",
        "--quiet",
        "--allow-empty",
        "--message",
        message,
    ]
    done = subprocess.run(
        argv, cwd=tree, capture_output=True, text=True, check=False, env={**os.environ, **fixed}
    )
    assert done.returncode == 0, done.stderr


def copied(to: Path, version: str | None = None, more: Mapping[str, str] | None = None) -> Path:
    """Copy the project with what is changed in it, and commit it, with another version if one is given.

    ``more`` has what further files of the copy contain, by their paths.
    """
    to.mkdir(parents=True)
    copy_tree(to)
    if version:
        (to / "VERSION").write_text(f"{version}\n")
    for name, text in (more or {}).items():
        (to / name).write_text(text)
    commit(to, "the tree")
    return to


def cloned(tree: Path, to: Path) -> Path:
    """Check the commit of a tree out elsewhere: the project itself may change while tests run."""
    to.parent.mkdir(parents=True, exist_ok=True)
    git(tree, "clone", "--quiet", "--no-hardlinks", str(tree), str(to))
    return to


def key(folder: Path, name: str = "key", passphrase: str = "") -> Path:
    """Make a key to sign with."""
    file = folder / name
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(file)]
    subprocess.run(argv, check=True)
    return file


def release(root: Path, output: Path, *arguments: str | Path, env: dict[str, str] | None = None) -> Made:
    """Run it as make release does."""
    argv = [sys.executable, "-m", "release", "--root", root, "--output", output, *arguments]
    done = subprocess.run(
        [str(a) for a in argv],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools"), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    version = (root / "VERSION").read_text().strip()
    return Made(done.returncode, done.stdout + done.stderr, output / f"vigia-{version}")


def architecture() -> str:
    """Return what Debian calls this machine's kind of processor."""
    argv = ["dpkg", "--print-architecture"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def versions(folder: Path, part: str, more: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Make a part of this tree's release, and of the same tree when it had a lower version; return their folders.

    ``more`` has files, by their paths, that the lower version had and this one has not.
    """
    found = {}
    for version, extra in ((OLD, more), (NEW, None)):
        tree = copied(folder / f"tree-{version}", version, extra)
        arguments = ("--key", "none", "--only", part, "--architecture", architecture())
        made = release(tree, folder / version, *arguments)
        assert made.status == 0, made.said
        found[version] = made.folder
    return found


def foreign(kind: str) -> list[str]:
    """Return what programs of another kind of processor are run by here; nothing for those of this one."""
    if kind == architecture():
        return []
    emulator = "qemu-" + {"amd64": "x86_64", "arm64": "aarch64"}[kind]
    assert shutil.which(emulator), f"{emulator} is missing; run tools/bootstrap.sh test"
    return [emulator]


def segments(program: Path) -> set[int]:
    """Return p_type of the segments of a 64-bit little-endian ELF file (elf(5))."""
    content = program.read_bytes()
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    return {struct.unpack_from("<I", content, offset + size * i)[0] for i in range(count)}
