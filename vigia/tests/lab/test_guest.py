"""The guest with a kernel of its own: what it is made of, and how it is started. Its life is in tests/openstack."""

from __future__ import annotations

import gzip
import io
import json
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from vigia.console import Steps
from vigia.lab import model, topology
from vigia.lab.model import Lab
from vigia.lab.neutron import guest
from vigia.lab.neutron.guest import Guest
from vigia.lab.neutron.places import NeutronPlaces
from vigia_testing import DEADLINE

MADE = Guest("node1", "red", "0" * 36, "n", "tap00000000-00", "fa:16:3e:00:00:01", "192.168.1.9/24", "6" * 36)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = model.resolve(topology.default("neutron-ovs"))
    monkeypatch.setattr(type(found.layout), "directory", property(lambda _: tmp_path))
    NeutronPlaces(found.layout).directory.mkdir()
    return found


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
    found = list(entries(b"".join(guest._archive(files))))
    folders = [name for name, mode, _ in found if stat.S_ISDIR(mode)]
    assert folders == ["bin", "modules"], "before what is in them"
    read = {name: content for name, mode, content in found if stat.S_ISREG(mode) and mode & 0o111}
    assert read == files


def test_a_guest_has_its_modules_in_order_and_a_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "usr/lib/modules/6.1.0-cloud/kernel"
    for name in guest._MODULES:
        (kernel / name).parent.mkdir(parents=True, exist_ok=True)
        (kernel / f"{name}.ko").write_text(name)
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/busybox").write_text("busybox")
    monkeypatch.setattr(guest, "_root", lambda: tmp_path)
    guest._write_initrd(tmp_path / "initrd.gz")
    read = {
        name: content for name, _, content in entries(gzip.decompress((tmp_path / "initrd.gz").read_bytes()))
    }
    order = read["modules/order"].decode().split()
    # A module that needs another comes after it.
    assert order.index("virtio_ring.ko") < order.index("virtio.ko") < order.index("virtio_net.ko")
    assert all(read[f"modules/{name}"] for name in order)
    assert read["bin/vigia-probe"].startswith(b"\x7fELF") and read["init"].startswith(b"#!/bin/busybox")


def test_qemu_is_at_the_ports_tap_without_offloads(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-6.1.0-cloud").touch()
    monkeypatch.setattr(guest, "_root", lambda: tmp_path)
    argv = " ".join(guest._argv(NeutronPlaces(lab.layout), MADE))
    assert "ifname=tap00000000-00,script=no,downscript=no,vnet_hdr=off" in argv
    assert "mac=fa:16:3e:00:00:01" in argv and "address=192.168.1.9/24 mtu=1500" in argv
    assert "-accel tcg" in argv and "vmlinuz-6.1.0-cloud" in argv


def test_the_guest_of_a_lab_is_kept_and_may_be_missing(lab: Lab) -> None:
    assert guest.read(lab) is None
    guest._record(lab).write_text(json.dumps(asdict(MADE)))
    assert guest.read(lab) == MADE
    for bad in ("{", "[]", '{"node": "node1"}'):
        guest._record(lab).write_text(bad)
        assert guest.read(lab) is None, bad


def test_a_machine_of_another_kind_has_no_guest(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert guest.boot(lab, "openvswitch") == ""
    guest.prepare(Steps(io.StringIO()))
    assert guest.read(lab) is None


def test_the_guest_is_a_tenants_on_the_first_node(lab: Lab) -> None:
    peer = guest._peer(lab)
    assert peer is not None and (peer.node, peer.tenant) == ("node1", "red")


def test_what_is_said_to_the_guest_comes_by_its_console(lab: Lab) -> None:
    path = guest._console(NeutronPlaces(lab.layout))
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as console:
        console.bind(str(path))
        console.listen()

        def listen() -> None:
            connection, _ = console.accept()
            with connection:
                heard.append(connection.makefile("rb").readline())

        thread = threading.Thread(target=listen)
        thread.start()
        guest.say(lab, "uname -a")
        thread.join(DEADLINE)
    assert heard == [b"uname -a\n"]
