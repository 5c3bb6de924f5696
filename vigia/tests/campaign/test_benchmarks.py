"""Benchmarks of the host, in small: what they print, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
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


def test_stream_in_c_prints_what_numpys_prints(tmp_path: Path) -> None:
    done = run("stream-c", "200000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["stream_c_copy", "stream_c_scale", "stream_c_add", "stream_c_triad"]
    assert all(v > 10 for v in found.values()), "MB/s"
    assert list(tmp_path.iterdir()) == []


STREAM = Path(benchmarks.__file__).with_name("stream.c")


def compiled(folder: Path, *options: str, edit: Mapping[str, str] | None = None) -> Path:
    """STREAM's program, of a source with some words replaced."""
    text = STREAM.read_text()
    for old, new in (edit or {}).items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    source, program = folder / "stream.c", folder / "stream"
    source.write_text(text)
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run(
        ["cc", "-std=c11", "-O3", *warnings, *options, "-o", program, source, "-lm"], check=True, text=True
    )
    return program


def test_the_kernels_in_c_stay_within_their_arrays(tmp_path: Path) -> None:
    """Also of one element, and of a number that no vector's length divides."""
    program = compiled(tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover")
    for size in ("1", "7", "100003"):
        done = subprocess.run([program, size], capture_output=True, text=True, check=False)
        few = "too few for this clock" in done.stderr
        assert done.returncode == 0 or (few and size != "100003"), done.stderr


@pytest.mark.parametrize(
    ("line", "wrong", "said"),
    [
        ("c[i] = a[i];", "c[i] = a[i] + (i == 7);", "array a is"),
        ("b[i] = FACTOR * c[i];", "b[i] = c[i];", "element 0 of array a is"),
        ("c[i] = a[i] + b[i];", "c[i] = a[i];", "element 0 of array a is"),
        ("a[i] = b[i] + FACTOR * c[i];", "a[i] = NAN;", "element 0 of array a is nan"),
    ],
)
def test_a_kernel_that_computes_wrongly_is_found(tmp_path: Path, line: str, wrong: str, said: str) -> None:
    program = compiled(tmp_path, edit={line: wrong})
    done = subprocess.run([program, "100"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr


def test_a_kernels_bytes_are_counted_as_stream_counts_them(tmp_path: Path) -> None:
    """With a clock that says 1 ms for every kernel: two arrays of 1000 doubles are 16 MB/s, three are 24."""
    clock = {
        "return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;": "static int asked; return asked++ * 1e-3;"
    }
    program = compiled(tmp_path, edit=clock)
    done = subprocess.run([program, "1000"], capture_output=True, text=True, check=True)
    wanted = {"stream_c_copy": 16.0, "stream_c_scale": 16.0, "stream_c_add": 24.0, "stream_c_triad": 24.0}
    assert json.loads(done.stdout) == {k: pytest.approx(v, rel=1e-5) for k, v in wanted.items()}


@pytest.mark.parametrize(
    "words", [(), ("0",), ("-1",), ("100000001",), ("1e6",), ("12 ",), ("",), ("1", "2")]
)
def test_stream_in_c_refuses_what_is_no_number_of_elements(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run([compiled(tmp_path), *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: stream ELEMENTS, 1 to 100000000\n"


def test_without_a_compiler_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "find", lambda name: None)
    with pytest.raises(
        VigiaError, match=r"no C compiler .* apt-get install gcc libc6-dev, or measure stream"
    ):
        benchmarks.compiled_stream(100)
    with pytest.raises(VigiaError, match="hpcc is not installed; run: apt-get install hpcc"):
        benchmarks.hpcc(200)


def test_hpcc_prints_two_kernels(tmp_path: Path) -> None:
    assert commands.find("hpcc"), "hpcc is missing; make test installs it"
    done = run("hpcc", "200", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["hpcc_fft", "hpcc_random"]
    assert all(v > 1 for v in found.values())
    assert list(tmp_path.iterdir()) == []


SUMMARY = """RandomAccess_GUPs=9
Begin of Summary section.
Success=1
SingleFFT_Gflops=1.5
StarFFT_Gflops=7
SingleRandomAccess_GUPs=0.25
PTRANS_GBs=2.5
End of Summary section.
"""


def test_hpccs_summary_is_read_and_its_failure_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """FFT in GFLOPS, random updates of 8 bytes in thousands of millions."""
    wrote = SUMMARY

    def answer(argv: Sequence[str], **_: object) -> commands.CommandResult:
        folder = Path(argv[1].removeprefix("--chdir="))
        given = (folder / "hpccinf.txt").read_text().splitlines()
        assert given[5].split()[0] == "300"
        assert [given[n].split()[0] for n in (4, 6, 9, 10, 11)] == ["1"] * 5, "one size, one process"
        if wrote:
            (folder / "hpccoutf.txt").write_text(wrote)
        return commands.CommandResult(0, "", "")

    monkeypatch.setattr(commands, "find", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(commands, "run", answer)
    assert benchmarks.hpcc(300) == {"hpcc_fft": 1500.0, "hpcc_random": 2000.0}
    wrote = SUMMARY.replace("Success=1", "Success=0")
    with pytest.raises(VigiaError, match="hpcc failed: "):
        benchmarks.hpcc(300)
    wrote = ""
    with pytest.raises(VigiaError, match="hpcc failed: it wrote nothing"):
        benchmarks.hpcc(300)
    with pytest.raises(VigiaError, match="order 99 is too small for hpcc; write 100 or more"):
        benchmarks.hpcc(99)


def test_a_linear_system_is_solved_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert benchmarks.linpack(60)["linpack"] > 1
    solve = np.linalg.solve
    monkeypatch.setattr(np.linalg, "solve", lambda a, b: solve(a, b) + 1e-3)
    with pytest.raises(VigiaError, match="the solution is wrong: scaled residual"):
        benchmarks.linpack(60)


def test_a_file_is_written_and_read_and_removed(tmp_path: Path) -> None:
    assert commands.find("fio"), "fio is missing; make test installs it"
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
    assert commands.find("fio"), "fio is missing; make test installs it"
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
    files = [
        Path(w.removeprefix("--filename=")) for argv in asked for w in argv if w.startswith("--filename=")
    ]
    assert all(f.parent.name.startswith(".") for f in files), "tools that walk the folder pass it by"
    assert {f.parent.parent for f in files} == {Path.cwd()}, "the disk that is meant"


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
        == "usage: python -m vigia.campaign.benchmarks stream|stream-c|hpcc|linpack|disk|disk-direct|disk-fsync SIZE\n"
    )
    assert done.stdout == ""


def test_what_cannot_be_measured_is_a_line() -> None:
    done = run("stream", "-1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cannot measure stream of -1: ")
    assert "Traceback" not in done.stderr
