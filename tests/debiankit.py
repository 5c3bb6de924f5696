"""Debian trees of the tests' own, from the machine's package sources and with apt's settings; kept in .build."""

from __future__ import annotations

import fcntl
import hashlib
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".build" / "debian"


def tree(packages: str) -> Path:
    """Return a tar file with a minimal Debian and these packages."""
    wanted = hashlib.sha256(packages.encode()).hexdigest()[:12]
    file = CACHE / f"tree-{wanted}.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{wanted}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            new = file.with_name(f"new-{file.name}")
            make = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages.split())}"]
            suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
            _run([*make, *settings(), suite, str(new), *sources(suite)])
            new.replace(file)
    return file


def sources(suite: str) -> list[str]:
    """Return where this machine has Debian from, as lines of sources.list; none: the program's own default."""
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    lines = _run(["apt-get", "indextargets", "--format", form, "Created-By: Packages", "Origin: Debian"])
    return sorted({line for line in lines.splitlines() if line.split()[2].startswith(suite)})


def settings() -> list[str]:
    """Return apt's settings for downloads, as options: proxies, authorities, time limits; and to try again."""
    lines = _run(["apt-config", "dump"]).splitlines()
    own = [line for line in lines if line.startswith("Acquire::http") and not line.endswith('"";')]
    return [f"--aptopt={line}" for line in ('Acquire::Retries "5";', *own)]


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"$ {' '.join(argv)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
