"""Debian packages that a lab's programs come from: fetched and unpacked into a cache, never installed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands

__all__ = ["cache", "release", "unpack_closure"]

_LONG = 1800.0
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders that are links into /usr on the machine, and that packages still have their files in."""


def cache() -> Path:
    """Return the folder of what is kept between labs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "vigia"


def release() -> str:
    """Return the version of the machine's Debian. Raises VigiaError on another system."""
    try:
        return Path("/etc/debian_version").read_text().strip()
    except OSError as e:
        raise VigiaError("the lab's programs are Debian packages, and this is no Debian system") from e


def unpack_closure(packages: Sequence[str], root: Path) -> int:
    """Unpack packages and all that they depend on below root; return how many there were.

    What the machine has installed does not count: root is complete. It is there as a whole or not
    at all. Nothing of apt's own state is changed but its lists, where they are empty or old. Raises
    CommandError.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix="packages-") as scratch:
        archives, new = Path(scratch, "archives"), Path(scratch, "root")
        _fetch(packages, archives, Path(scratch, "status"))
        new.mkdir()
        files = sorted(archives.glob("*.deb"))
        for file in files:
            commands.run(["dpkg-deb", "-x", str(file), str(new)], timeout=_LONG)
        for name in _MERGED:
            _merge(new, name)
        _compile(new)
        if root.exists():
            shutil.rmtree(root)
        new.replace(root)
    return len(files)


def _fetch(packages: Sequence[str], archives: Path, status: Path) -> None:
    (archives / "partial").mkdir(parents=True)
    status.touch()
    options = {
        "Dir::State::status": str(status),  # nothing is installed
        "Dir::Cache::archives": str(archives),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",  # who else may not write here
    }
    argv = ["apt-get", *(f"--option={key}={value}" for key, value in options.items())]
    argv += ["--quiet", "--yes", "--no-install-recommends", "--download-only", "install", *packages]
    done = commands.run(argv, timeout=_LONG, check=False)
    if done.status != 0:  # a machine whose lists of packages are empty or old
        commands.run(["apt-get", "--quiet", "update"], timeout=_LONG)
        commands.run(argv, timeout=_LONG)


def _merge(root: Path, name: str) -> None:
    """Move what is beside /usr into it, as on the machine."""
    if (root / name).is_dir() and not (root / name).is_symlink():
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        commands.run(["cp", "-a", f"{root / name}/.", str(root / "usr" / name)], timeout=_LONG)
        shutil.rmtree(root / name)


def _compile(root: Path) -> None:
    """Compile Python once: nobody can write there later."""
    folder = "usr/lib/python3/dist-packages"
    if (root / folder).is_dir():
        argv = ["/usr/bin/python3", "-m", "compileall", "-q", "-j", "2", "-s", str(root), "-p", "/"]
        # Some packages have tests for other versions of Python, which cannot be compiled.
        commands.run([*argv, str(root / folder)], env={"PYTHONPATH": ""}, timeout=_LONG, check=False)
