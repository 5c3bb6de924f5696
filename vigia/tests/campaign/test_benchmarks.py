"""Benchmarks of the host, in small: what they print, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vigia.campaign import benchmarks
from vigia.errors import VigiaError
from vigia.host import commands


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "vigia.campaign.benchmarks", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)


def test_memory_has_four_kernels() -> None:
    done = run("stream", "20000")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"stream_copy", "stream_scale", "stream_add", "stream_triad"}
    assert all(v > 10 for v in found.values()), "MB/s"


def test_kernels_compute_what_stream_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the kernels in their order, a, b and c have the values that STREAM checks for."""
    made: list[np.ndarray] = []
    full, zeros = np.full, np.zeros

    def keep(array: np.ndarray) -> np.ndarray:
        made.append(array)
        return array

    monkeypatch.setattr(np, "full", lambda *a: keep(full(*a)))
    monkeypatch.setattr(np, "zeros", lambda *a: keep(zeros(*a)))
    benchmarks.stream(10)
    a, b, c = 1.0, 2.0, 0.0
    for name in ("copy", "scale", "add", "triad"):
        for _ in range(10):
            match name:
                case "copy":
                    c = a
                case "scale":
                    b = 3.0 * c
                case "add":
                    c = a + b
                case "triad":
                    a = b + 3.0 * c
    assert [set(array) for array in made] == [{a}, {b}, {c}]


def test_a_linear_system_is_solved_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert benchmarks.linpack(60)["linpack"] > 1
    solve = np.linalg.solve
    monkeypatch.setattr(np.linalg, "solve", lambda a, b: solve(a, b) + 1e-3)
    with pytest.raises(VigiaError, match="the solution is wrong: scaled residual"):
        benchmarks.linpack(60)


def test_a_file_is_written_and_read_and_removed(tmp_path: Path) -> None:
    if commands.find("fio") is None:
        pytest.skip("needs fio")
    done = run("disk", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["disk_write", "disk_rewrite", "disk_read", "disk_reread"]
    assert all(v > 0.1 for v in found.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ("disk-direct", ["direct_write", "direct_rewrite", "direct_read", "direct_reread"]),
        ("disk-fsync", ["fsync_write", "fsync_rewrite"]),
    ],
)
def test_a_file_past_the_cache(tmp_path: Path, what: str, wanted: list[str]) -> None:
    if commands.find("fio") is None:
        pytest.skip("needs fio")
    done = run(what, "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == wanted
    assert all(v > 0.01 for v in found.values())


def test_how_fio_is_asked_and_its_nanoseconds_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 blocks of 128 KiB, each 1 ms and an fsync of 3 ms: 32.768 MB/s, whatever its milliseconds say."""
    asked: list[list[str]] = []

    def answer(argv: list[str], **_: object) -> commands.CommandResult:
        asked.append(argv)
        kind = next(w.partition("=")[2] for w in argv if w.startswith("--rw="))
        synced = 3e6 if "--fsync=1" in argv else 0.0
        job = {
            kind: {"io_bytes": 8 << 17, "lat_ns": {"mean": 1e6, "N": 8}},
            "sync": {"lat_ns": {"mean": synced}},
        }
        return commands.CommandResult(0, json.dumps({"jobs": [job]}), "")

    monkeypatch.setattr(commands, "run", answer)
    assert benchmarks.synced(1) == {
        "fsync_write": pytest.approx(32.768),
        "fsync_rewrite": pytest.approx(32.768),
    }
    assert benchmarks.direct(1)["direct_read"] == pytest.approx(131.072)
    assert all("--fsync=1" in argv for argv in asked[:4])
    assert all("--direct=1" in argv for argv in asked[4:])


def test_without_fio_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "find", lambda name: None)
    with pytest.raises(VigiaError, match="fio is not installed; run: apt-get install fio"):
        benchmarks.disk(1)


@pytest.mark.parametrize("words", [(), ("stream",), ("tape", "5"), ("stream", "many")])
def test_a_wrong_command_line_is_explained(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 1
    assert (
        done.stderr
        == "usage: python -m vigia.campaign.benchmarks stream|linpack|disk|disk-direct|disk-fsync SIZE\n"
    )
    assert done.stdout == ""


def test_what_cannot_be_measured_is_a_line() -> None:
    done = run("stream", "-1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cannot measure stream of -1: ")
    assert "Traceback" not in done.stderr
