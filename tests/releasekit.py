"""A copy of the project with a history of its own, from which releases can be made while the tree is being changed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from extendkit import copy_tree, git

__all__ = ["GUIDE", "ROOT", "WHO", "Made", "blocks", "cloned", "commit", "copied", "key", "release"]

ROOT = Path(__file__).resolve().parents[1]
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


def copied(to: Path, version: str | None = None) -> Path:
    """Copy the project with what is changed in it, and commit it, with another version if one is given."""
    to.mkdir(parents=True)
    copy_tree(to)
    if version:
        (to / "VERSION").write_text(f"{version}\n")
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
