"""Benchmarks of the host itself: python -m vigia.campaign.benchmarks WHAT SIZE prints JSON.

Memory as STREAM does it, compiled from stream.c beside this module or by numpy;
a linear system as LINPACK, by numpy; kernels of the HPC Challenge, by Debian's
hpcc; a file as IOzone, by fio. They run as a process of their own, so that
nothing of the campaign is in their memory.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from vigia.errors import VigiaError
from vigia.host import commands

__all__ = ["compiled_stream", "direct", "disk", "hpcc", "linpack", "main", "stream", "synced"]

_BEST_OF = 10
_MB = 1e6
_LEAST_ORDER = 100

_HPCC = """\
HPLinpack benchmark input file, read by line
of which hpcc wants every one
HPL.out  output file
8        to that file
1        number of problem sizes
{size}   order of the matrix
1        number of block sizes
80       block size
0        processes by row
1        number of process grids
1        its rows
1        its columns
16.0     threshold of the residual
1        number of panel factorisations
2        right-looking
1        number of recursive stopping criteria
4        columns
1        number of ways to divide panels
2        into
1        number of recursive factorisations
1        Crout
1        number of broadcasts
1        modified ring
1        number of lookahead depths
1        depth
2        swapping: mixed
64       its threshold
0        L1 transposed
0        U transposed
1        equilibration
8        doubles of alignment
#####
0        more problem sizes for PTRANS
1200     none
0        more block sizes for PTRANS
40       none
"""


def stream(size: int) -> dict[str, float]:
    """Return MB/s of STREAM's four kernels on arrays of size doubles: the best of ten.

    Copy and scale move two arrays, add and triad three (McCalpin's counting). A
    sum of products is made in two passes without a temporary array, and its
    traffic is counted as STREAM counts it.
    """
    a, b, c = np.full(size, 1.0), np.full(size, 2.0), np.zeros(size)

    def triad() -> None:
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)

    kernels: Mapping[str, tuple[int, Callable[[], object]]] = {
        "copy": (2, lambda: np.copyto(c, a)),
        "scale": (2, lambda: np.multiply(c, 3.0, out=b)),
        "add": (3, lambda: np.add(a, b, out=c)),
        "triad": (3, triad),
    }
    found = {}
    for name, (arrays, kernel) in kernels.items():
        best = min(_timed(kernel) for _ in range(_BEST_OF))
        found[f"stream_{name}"] = arrays * 8 * size / best / _MB
    return found


def compiled_stream(size: int) -> dict[str, float]:
    """Return MB/s of STREAM's four kernels in C, on arrays of size doubles: the best of ten, one thread.

    It is compiled where it runs, so that the compiler knows that machine. Raises VigiaError without one.
    """
    compiler = commands.find("cc")
    if compiler is None:
        raise VigiaError(
            "no C compiler is installed, and STREAM is compiled where it runs; "
            "run: apt-get install gcc libc6-dev, or measure stream, which numpy computes"
        )
    with tempfile.TemporaryDirectory(prefix="vigia-") as folder:
        program = f"{folder}/stream"
        with resources.as_file(resources.files("vigia.campaign").joinpath("stream.c")) as source:
            options = ["-std=c11", "-O3", "-march=native"]
            commands.run([compiler, *options, "-o", program, str(source), "-lm"], timeout=120)
        found: dict[str, float] = json.loads(commands.run([program, str(size)], timeout=600).stdout)
    return found


def linpack(size: int) -> dict[str, float]:
    """Return MFLOPS of solving a dense system of that order. Raises VigiaError for a wrong solution.

    2/3 n^3 + 2 n^2 operations; the residual is checked as LINPACK checks it.
    """
    rng = np.random.default_rng(1)
    a, b = rng.random((size, size)) - 0.5, rng.random(size) - 0.5
    begin = time.perf_counter()
    x = np.linalg.solve(a, b)
    seconds = time.perf_counter() - begin
    scale = float(np.abs(a).sum(axis=1).max() * np.abs(x).max() * size) * np.finfo(float).eps
    residual = float(np.abs(a @ x - b).max()) / scale
    if not residual < 16:
        raise VigiaError(f"the solution is wrong: scaled residual {residual:.3g}, not below 16")
    return {"linpack": (2 / 3 * size**3 + 2 * size**2) / seconds / _MB}


def hpcc(size: int) -> dict[str, float]:
    """Return two kernels of the HPC Challenge by one process, for a matrix of that order. Raises VigiaError.

    A fast Fourier transform (MFLOPS) and updates of random words of memory (MB/s, 8 bytes each). hpcc
    checks what it computed. Of its other kernels STREAM and LINPACK are measured apart, and a matrix is
    transposed in too few milliseconds to say anything.
    """
    if commands.find("hpcc") is None:
        raise VigiaError("hpcc is not installed; run: apt-get install hpcc")
    if size < _LEAST_ORDER:
        raise VigiaError(f"order {size} is too small for hpcc; write {_LEAST_ORDER} or more")
    with tempfile.TemporaryDirectory(prefix="vigia-") as folder:
        Path(folder, "hpccinf.txt").write_text(_HPCC.format(size=size))
        # One process: nothing is to be started or listened to for others.
        alone = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self"}
        words = ["env", f"--chdir={folder}", "hpcc"]
        done = commands.run(words, env={**alone, "HOME": folder}, timeout=600)
        out = Path(folder, "hpccoutf.txt")
        text = out.read_text() if out.exists() else ""
    said = dict(re.findall(r"^(\w+)=(\S+)$", text.partition("Begin of Summary section.")[2], re.MULTILINE))
    if said.get("Success") != "1":
        raise VigiaError(f"hpcc failed: {(done.stderr or text)[-300:].strip() or 'it wrote nothing'}")
    return {
        "hpcc_fft": float(said["SingleFFT_Gflops"]) * 1e3,
        "hpcc_random": float(said["SingleRandomAccess_GUPs"]) * 8e3,
    }


def disk(size: int, options: Sequence[str] = (), prefix: str = "disk") -> dict[str, float]:
    """Return MB/s of writing, writing again, reading and reading again a file of size MB, in that order.

    Without options they go to the page cache. Time is the sum of the blocks' own times, in nanoseconds: fio's
    running time has milliseconds only.
    """
    if commands.find("fio") is None:
        raise VigiaError("fio is not installed; run: apt-get install fio")
    found = {}
    # Hidden: who walks the working directory meanwhile, as go list does, must not find it gone.
    with tempfile.TemporaryDirectory(prefix=".vigia-", dir=Path.cwd()) as folder:
        for name, kind in (("write", "write"), ("rewrite", "write"), ("read", "read"), ("reread", "read")):
            argv = ["fio", "--name=file", f"--filename={folder}/file", f"--size={size}M", f"--rw={kind}"]
            argv += ["--bs=128k", "--ioengine=psync", "--overwrite=0", "--invalidate=0", *options]
            report = json.loads(commands.run([*argv, "--output-format=json"], timeout=600).stdout)
            found[f"{prefix}_{name}"] = _rate(report["jobs"][0], kind)
    return found


def direct(size: int) -> dict[str, float]:
    """Return what disk does past the page cache. Raises CommandError if the file system has no O_DIRECT."""
    return disk(size, ["--direct=1"], "direct")


def synced(size: int) -> dict[str, float]:
    """Return what disk does in writing, with an fsync after every block; reads would come from the cache."""
    found = disk(size, ["--fsync=1"], "fsync")
    return {name: rate for name, rate in found.items() if name.endswith("write")}


def _rate(job: Mapping[str, Any], kind: str) -> float:
    """Return MB/s of a job: its bytes by the time of its blocks, and of the fsyncs after them."""
    blocks = int(job[kind]["lat_ns"]["N"])
    nanoseconds = float(job[kind]["lat_ns"]["mean"]) + float(job["sync"]["lat_ns"]["mean"])
    return float(job[kind]["io_bytes"]) / (blocks * nanoseconds * 1e-9) / _MB


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    """Run the benchmark that the command line names."""
    known: Mapping[str, Callable[[int], dict[str, float]]] = {
        "stream": stream,
        "stream-c": compiled_stream,
        "hpcc": hpcc,
        "linpack": linpack,
        "disk": disk,
        "disk-direct": direct,
        "disk-fsync": synced,
    }
    try:
        benchmark, size = known[sys.argv[1]], int(sys.argv[2])
    except (IndexError, KeyError, ValueError):
        sys.exit(f"usage: python -m vigia.campaign.benchmarks {'|'.join(known)} SIZE")
    try:
        json.dump(benchmark(size), sys.stdout)
    except (VigiaError, OSError, ValueError, KeyError) as e:
        sys.exit(f"cannot measure {sys.argv[1]} of {size}: {e}")


if __name__ == "__main__":
    main()
