"""A PostgreSQL server of the tests' own."""

from __future__ import annotations

import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class Cluster:
    """A server in a folder, on a socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        shutil.chown(folder, "postgres")
        self._run("initdb", "-D", "data", "-A", "trust", "-U", "vigia", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c shared_buffers=16MB"
        self._run("pg_ctl", "-D", "data", "-w", "-t", "120", "-o", options, "-l", "log", "start")

    def _run(self, name: str, *arguments: str) -> None:
        user = pwd.getpwnam("postgres")
        subprocess.run(
            [str(BINARIES[-1] / name), *arguments],
            cwd=self.folder,
            user=user.pw_uid,
            group=user.pw_gid,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def create(self, database: str) -> str:
        """Make a database and return its URL."""
        self._run("createdb", "-h", str(self.folder), "-U", "vigia", database)
        return f"postgresql://vigia@/{database}?host={self.folder}"

    def stop(self) -> None:
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "stop")


@contextmanager
def running() -> Iterator[Cluster]:
    """Run a server for as long as the block lasts."""
    assert BINARIES, "postgresql is missing; run tools/bootstrap.sh test"
    # Not below pytest's folder, which is closed to the server's user; and short, for the socket's name.
    with tempfile.TemporaryDirectory(prefix="vigia-pg-") as folder:
        Path(folder).chmod(0o755)
        made = Cluster(Path(folder, "server"))
        try:
            yield made
        finally:
            made.stop()
