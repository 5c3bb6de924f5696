"""What is released: a commit with a clean tree and a right version, exported to a folder of its own."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Refused", "Source", "export", "look", "run"]

VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-rc\.[1-9]\d*)?")
"""What Go, Helm, Debian and Python can all have as a version, each in its own writing."""


class Refused(Exception):
    """It cannot be released; the message says why, and what to do."""


@dataclass(frozen=True)
class Source:
    """The commit that is released."""

    version: str
    revision: str
    epoch: int
    """When it was committed, in Unix seconds: the time of every file."""

    @property
    def python(self) -> str:
        """The version as PEP 440 has it."""
        return self.version.replace("-rc.", "rc")

    @property
    def debian(self) -> str:
        """The version as Debian has it: a release candidate comes before the release."""
        return self.version.replace("-", "~")


def run(
    argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None, umask: int = 0o022
) -> str:
    """Run a program and return its standard output. Raises Refused with what it said if it fails."""
    words = [str(a) for a in argv]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            umask=umask,
        )
    except FileNotFoundError:
        raise Refused(
            f"cannot run {words[0]}: it is not installed; make tools installs what is needed"
        ) from None
    if done.returncode != 0:
        raise Refused(f"cannot run {' '.join(words)}:\n{(done.stdout + done.stderr).strip()[-4000:]}")
    return done.stdout


def look(root: Path) -> Source:
    """Return what is checked out in a folder. Raises Refused unless it can be released."""
    changed = run(["git", "status", "--porcelain"], root).splitlines()
    if changed:
        named = ", ".join(line[3:] for line in changed[:3]) + (", ..." if len(changed) > 3 else "")
        raise Refused(f"cannot release a tree with changes ({named}): commit or remove them")
    version = (root / "VERSION").read_text().strip()
    if not VERSION.fullmatch(version):
        raise Refused(
            f"cannot release VERSION {version!r}: write X.Y.Z or X.Y.Z-rc.N, as 0.2.0 or 0.2.0-rc.1"
        )
    _tags(root, version)
    revision = run(["git", "rev-parse", "--short=12", "HEAD"], root).strip()
    return Source(version, revision, int(run(["git", "log", "-1", "--format=%ct"], root)))


def _tags(root: Path, version: str) -> None:
    """Compare the version with tags, as v0.2.0, and a tagged commit with the changelog."""
    here = [t for t in run(["git", "tag", "--points-at", "HEAD"], root).split() if re.match(r"v\d", t)]
    if here and here != [f"v{version}"]:
        raise Refused(
            f"cannot release VERSION {version}: this commit has the tag {', '.join(here)}; make them equal"
        )
    if here:
        if not re.search(
            rf"^## {re.escape(version)} \(\d{{4}}-", (root / "CHANGELOG.md").read_text(), re.MULTILINE
        ):
            raise Refused(
                f"cannot release v{version}: CHANGELOG.md has no heading of it with a date; "
                f"run .venv/bin/towncrier build --version {version}, and commit before the tag"
            )
    elif run(["git", "tag", "--list", f"v{version}"], root).strip():
        raise Refused(f"cannot release VERSION {version}: v{version} is another commit; raise VERSION")


def export(root: Path, folder: Path) -> None:
    """Write the commit's files to a folder, with no file that git does not know of."""
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for entry in tar:
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            tar.extract(
                entry, folder, filter="fully_trusted"
            )  # of this repository; the chart's links lead upwards
