"""Samples against real processes, files, BPF objects and pages."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vigia.soak.sampler import page, process, size_below

MIB = 1 << 20

CHILD = """
import os, sys, threading
sys.stdin.readline()
files = [open("/dev/null") for _ in range(5)]
event = threading.Event()
threads = [threading.Thread(target=event.wait, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
memory = bytearray(os.urandom(1)) * (32 << 20)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_what_a_process_takes_is_seen(children: list[subprocess.Popen[Any]]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    children.append(child)
    assert child.stdin
    assert child.stdout
    before = settled(child.pid)
    child.stdin.write("\n")
    assert child.stdout.readline() == "ready\n"
    after = process(child.pid)
    assert after["descriptors"] - before["descriptors"] == 5
    assert after["threads"] - before["threads"] == 3
    assert 32 * MIB <= after["memory_bytes"] - before["memory_bytes"] < 40 * MIB
    assert after["resident_bytes"] >= after["memory_bytes"] > 0
    assert "bpf_maps" not in after


def settled(pid: int) -> dict[str, float]:
    """Read a Python that waits for its input: it has imported everything."""
    wchan = Path(f"/proc/{pid}/syscall")
    while not wchan.read_text().startswith("0 0x0 "):  # read(0, ...)
        assert Path(f"/proc/{pid}").exists()
    return process(pid)


def test_a_process_that_has_ended(children: list[subprocess.Popen[Any]]) -> None:
    child = subprocess.Popen(["true"])
    children.append(child)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    with pytest.raises(OSError, match="has ended"):
        process(child.pid)
    child.wait()
    with pytest.raises(OSError, match="No such"):
        process(child.pid)


def test_bpf_objects_are_told_from_other_descriptors(root: None) -> None:
    before = process(os.getpid())
    maps = [make_map() for _ in range(2)]
    try:
        after = process(os.getpid())
    finally:
        for fd in maps:
            os.close(fd)
    assert after["bpf_maps"] - before.get("bpf_maps", 0) == 2
    assert after["descriptors"] - before["descriptors"] == 2
    assert process(os.getpid()).get("bpf_maps", 0) == before.get("bpf_maps", 0)


def make_map() -> int:
    """Make a BPF array of one element (bpf(2), BPF_MAP_CREATE) and return its descriptor."""
    numbers = {"x86_64": 321, "aarch64": 280}
    attributes = (ctypes.c_uint32 * 18)(2, 4, 8, 1)  # BPF_MAP_TYPE_ARRAY, sizes of key and value, elements
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(numbers[os.uname().machine], 0, attributes, ctypes.sizeof(attributes))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


PAGE = """# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 32
go_goroutines_created 7
vigia_port_bytes_total{port="a b}",direction="from_tenant"} 9

prometheus_rule_group_last_duration_seconds{rule_group="/a b/r.yml;vigia-paths"} 1.5e-2
prometheus_rule_group_last_duration_seconds{rule_group="/a b/r.yml;vigia-\\"x\\""} NaN
"""


def test_pages_are_counted_and_read() -> None:
    series, found = page(PAGE, ["go_goroutines", "prometheus_rule_group_last_duration_seconds"])
    assert series == 5
    assert found[0] == ("go_goroutines", {}, 32.0)
    assert found[1] == (
        "prometheus_rule_group_last_duration_seconds",
        {"rule_group": "/a b/r.yml;vigia-paths"},
        0.015,
    )
    assert found[2][1] == {"rule_group": '/a b/r.yml;vigia-"x"'}
    assert len(found) == 3


def test_an_empty_page() -> None:
    assert page("", ["go_goroutines"]) == (0, [])


def test_a_page_that_is_none() -> None:
    with pytest.raises(ValueError, match="abc"):
        page("go_goroutines abc\n", ["go_goroutines"])


def test_sizes(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/one").write_bytes(b"x" * 10)
    (tmp_path / "a/b/two").write_bytes(b"x" * 20)
    (tmp_path / "a/b/link").symlink_to("/proc/kcore")
    link = len("/proc/kcore")
    assert size_below(tmp_path / "a") == 30 + link
    assert size_below(tmp_path / "a/one", tmp_path / "a/b") == 30 + link
    assert size_below(tmp_path / "not there") == 0
    assert size_below() == 0
