"""What Prometheus had of a lab when pictures were taken, so that dashboards can be opened when the lab is gone."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from portkit import free_port

from vigia_testing import eventually

__all__ = ["MOMENTS", "keep", "moments", "served"]

MOMENTS = ("quiet", "flood")
"""Names of the instants at which a site is looked at."""

_FILE, _DATA = "moments.json", "prometheus"


def keep(source: Path, folder: Path, when: Mapping[str, float]) -> None:
    """Copy a running Prometheus's data into a folder, and with it the Unix times that are looked at.

    Chunks before the log that they are read from, so that what is cut off is written there still.
    """
    goal = folder / _DATA
    shutil.rmtree(goal, ignore_errors=True)
    goal.mkdir(parents=True)
    for part in sorted(source.iterdir(), key=lambda p: p.name == "wal"):
        if part.is_dir():
            shutil.copytree(part, goal / part.name)
    (folder / _FILE).write_text(json.dumps(dict(when)))


def moments(folder: Path) -> dict[str, float]:
    """Return the Unix times that are looked at. Raises ValueError where nothing was kept."""
    try:
        found = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        raise ValueError(f"{folder} has no {_FILE}; name a folder that --keep has written") from None
    return {name: float(found[name]) for name in MOMENTS if name in found}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Start a Prometheus on what was kept, which scrapes nothing; yields its URL."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing; run tools/bootstrap.sh test"
    url = f"http://127.0.0.1:{free_port()}"
    (folder / "empty.yml").write_text("{}\n")
    words = [f"--config.file={folder / 'empty.yml'}", f"--storage.tsdb.path={folder / _DATA}"]
    words += ["--storage.tsdb.retention.time=100y", f"--web.listen-address={url.removeprefix('http://')}"]
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen([program, *words, "--enable-feature=native-histograms"], stderr=out)

    def ready() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/-/ready", trust_env=False, timeout=10).status_code == 200
        return False

    try:
        eventually(ready, f"Prometheus answers: {log}", 300)  # on a busy machine it reads its log for minutes
        yield url
    finally:
        process.terminate()
        process.wait(180)
