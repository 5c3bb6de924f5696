"""What a guest with a kernel of its own is made of. Guests that run are in tests/openstack."""

from __future__ import annotations

import gzip
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from vigia.lab.neutron import guestfiles


def entries(archive: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Read an archive as the kernel does: name, mode and content of each entry."""
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701" and at % 4 == 0
        numbers = [int(archive[i : i + 8], 16) for i in range(at + 6, at + 110, 8)]
        mode, size, length = numbers[1], numbers[6], numbers[11]
        name = archive[at + 110 : at + 109 + length].decode()
        begin = -(-(at + 110 + length) // 4) * 4
        if name == "TRAILER!!!":
            return
        yield name, mode, archive[begin : begin + size]
        at = -(-(begin + size) // 4) * 4


def test_an_archive_is_what_the_kernel_unpacks() -> None:
    files = {"init": b"#!/bin/busybox sh\n", "bin/busybox": b"\x7fELF", "modules/order": b"", "bin/x": b"123"}
    found = list(entries(b"".join(guestfiles._archive(files))))
    folders = [name for name, mode, _ in found if stat.S_ISDIR(mode)]
    assert folders == ["bin", "modules"], "before what is in them"
    read = {name: content for name, mode, content in found if stat.S_ISREG(mode) and mode & 0o111}
    assert read == files


def test_a_guest_has_its_modules_in_order_and_a_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "usr/lib/modules/6.1.0-cloud/kernel"
    for name in guestfiles._MODULES:
        (kernel / name).parent.mkdir(parents=True, exist_ok=True)
        (kernel / f"{name}.ko").write_text(name)
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/busybox").write_text("busybox")
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-6.1.0-cloud").write_text("kernel")
    monkeypatch.setattr(guestfiles, "root", lambda: tmp_path)
    guestfiles.write(tmp_path)
    assert (tmp_path / guestfiles.KERNEL).read_text() == "kernel"
    archive = gzip.decompress((tmp_path / guestfiles.INITRD).read_bytes())
    read = {name: content for name, _, content in entries(archive)}
    order = read["modules/order"].decode().split()
    # A module that needs another comes after it.
    assert order.index("virtio_ring.ko") < order.index("virtio.ko") < order.index("virtio_net.ko")
    assert all(read[f"modules/{name}"] for name in order)
    assert read["bin/vigia-probe"].startswith(b"\x7fELF") and read["init"].startswith(b"#!/bin/busybox")
