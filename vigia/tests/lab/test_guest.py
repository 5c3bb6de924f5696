"""The guest with a kernel of its own: what it is made of, and how libvirt is told. Its life is in tests/openstack."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import threading
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vigia.console import Steps
from vigia.lab import model, topology
from vigia.lab.model import Datapath, Lab
from vigia.lab.neutron import guest, guestfiles, services, tenants
from vigia.lab.neutron.guest import Guest
from vigia.lab.neutron.machines import Known
from vigia.lab.neutron.places import NeutronPlaces
from vigia_testing import DEADLINE

MADE = Guest("node1", "red", "0" * 36, "n", "tap00000000-00", "fa:16:3e:00:00:01", "192.168.1.9/24", "6" * 36)
KNOWN = Known("openvswitch", {"red": "7" * 32}, {}, {}, {})
NOVA = "{http://openstack.org/xmlns/libvirt/nova/1.1}"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return of("neutron-ovs", tmp_path, monkeypatch)


def of(cloud: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = model.resolve(topology.default(cloud))
    monkeypatch.setattr(type(found.layout), "directory", property(lambda _: folder))
    NeutronPlaces(found.layout).directory.mkdir()
    return found


def described(lab: Lab, datapath: Datapath) -> ElementTree.Element:
    peer = guest._peer(lab)
    assert peer is not None
    found = guest._domain(lab, MADE, KNOWN, replace(peer, bridge="brq1"), datapath)
    return ElementTree.fromstring(found.xml())  # noqa: S314 - our own


def test_a_domain_is_as_nova_describes_it(lab: Lab) -> None:
    found = described(lab, "userspace")
    assert found.get("type") == "qemu" and found.findtext("uuid") == MADE.workload
    its = found.find(f"metadata/{NOVA}instance")
    assert its is not None
    project = its.find(f"{NOVA}owner/{NOVA}project")
    assert project is not None and (project.get("uuid"), project.text) == ("7" * 32, "red")
    assert [port.get("uuid") for port in its.iter(f"{NOVA}port")] == [MADE.port]
    assert [ip.get("address") for ip in its.iter(f"{NOVA}ip")] == ["192.168.1.9"]
    assert its.find(f"{NOVA}flavor/{NOVA}memory") is not None
    assert "address=192.168.1.9/24 mtu=1500" in str(found.findtext("os/cmdline"))


def interface(lab: Lab, datapath: Datapath) -> ElementTree.Element:
    (found,) = described(lab, datapath).iter("interface")
    assert [e.get("dev") for e in found.iter("target")] == [MADE.device]
    assert [e.get("address") for e in found.iter("mac")] == [MADE.mac]
    return found


def test_libvirt_plugs_the_guest_into_the_nodes_switch(lab: Lab) -> None:
    found = interface(lab, "userspace")
    assert [e.get("bridge") for e in found.iter("source")] == ["br-int"]
    (plugged,) = found.iter("virtualport")
    assert plugged.get("type") == "openvswitch"
    assert [e.get("interfaceid") for e in plugged] == [MADE.port]
    (driver,) = found.iter("driver")
    assert {side.tag for side in driver} == {"host", "guest"}
    assert {value for side in driver for value in side.attrib.values()} == {"off"}, "in user space"
    assert not list(interface(lab, "kernel").iter("host")), "which the kernel's need not"


def test_libvirt_plugs_the_guest_into_its_networks_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = interface(of("neutron-linuxbridge", tmp_path, monkeypatch), "userspace")
    assert [e.get("bridge") for e in found.iter("source")] == ["brq1"]
    assert not list(found.iter("virtualport")) and not list(found.iter("host"))


def test_nothing_in_a_domain_is_taken_for_xml(lab: Lab) -> None:
    peer = guest._peer(lab)
    assert peer is not None
    odd = replace(guest._domain(lab, MADE, KNOWN, peer, "kernel"), tenant="<red> & \"blue'")
    project = ElementTree.fromstring(odd.xml()).find(f".//{NOVA}project")  # noqa: S314
    assert project is not None and project.text == odd.tenant


@pytest.mark.netns
def test_libvirts_files_are_the_labs_and_nothing_of_the_machines_is_touched(
    lab: Lab, tmp_path: Path, root: None
) -> None:
    places, its = NeutronPlaces(lab.layout), guest.libvirt(lab, MADE)
    services.prepare(places)
    its.prepare()
    folders = {f"/var/{name}/libvirt": name for name in ("cache", "lib", "log")}
    folders |= {"/etc/libvirt": "etc", "/run/libvirt": "run"}
    there = {folder: listed(Path(folder)) for folder in folders}
    script = f"""
        mount --make-rprivate /
        . "$LAB/libvirt.sh"
        for folder in {" ".join(folders)}; do touch "$folder/was-here"; done
        getent passwd libvirt-qemu
        ls /run
        test -e "$LAB/libvirt.sh"
    """
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-euc", script],
        env={**os.environ, "LAB": str(places.directory), "LIBVIRT": str(its.directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    user, *seen = done.stdout.splitlines()
    assert user.startswith("libvirt-qemu:") and seen == ["libvirt"], "no D-Bus"
    assert all((its.directory / name / "was-here").exists() for name in folders.values())
    assert {folder: listed(Path(folder)) for folder in folders} == there


def listed(folder: Path) -> list[Path] | None:
    return sorted(folder.iterdir()) if folder.exists() else None


def test_the_agents_of_the_guests_node_read_what_libvirt_says(lab: Lab) -> None:
    places = NeutronPlaces(lab.layout)
    record = {"driver": "openvswitch", "projects": {}, "ports": {}, "networks": {}, "keys": {}}
    places.known.write_text(json.dumps(record))
    files = [("node1", "exporter.yaml"), ("node1", "enforcer.yaml"), ("node2", "exporter.yaml")]

    def named() -> list[object]:
        contents = [(name, {"node": node, "tenants": [], "fast_loop": {}}) for node, name in files]
        return [tenants.by_project(lab, *c).get("libvirt_dir") for c in contents]

    assert named() == [None, None, None]
    guest._record(lab).write_text(json.dumps(asdict(MADE)))
    own = str(places.domains("node1"))
    assert named() == [own, own, None] and own.endswith("/run/qemu")


def test_the_guest_of_a_lab_is_kept_and_may_be_missing(lab: Lab) -> None:
    assert guest.read(lab) is None
    guest._record(lab).write_text(json.dumps(asdict(MADE)))
    assert guest.read(lab) == MADE
    for bad in ("{", "[]", '{"node": "node1"}'):
        guest._record(lab).write_text(bad)
        assert guest.read(lab) is None, bad


def test_a_machine_of_another_kind_has_no_guest(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert guest.boot(lab, "openvswitch", "userspace") == ""
    guestfiles.prepare(Steps(io.StringIO()))
    assert guest.read(lab) is None


@pytest.mark.parametrize("cloud", ["neutron-ovn", "neutron-ovs", "neutron-linuxbridge"])
def test_the_guest_is_a_tenants_on_the_first_node(
    cloud: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = guest._peer(of(cloud, tmp_path, monkeypatch))
    assert peer is not None and (peer.node, peer.tenant) == ("node1", "red")


def test_what_is_said_to_the_guest_comes_by_its_console_and_what_it_says_is_heard(lab: Lab) -> None:
    path = guest._console(NeutronPlaces(lab.layout))
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as console:
        console.bind(str(path))
        console.listen()

        def listen(*, ending: bool) -> None:
            connection, _ = console.accept()
            with connection, connection.makefile("rb") as lines:
                heard.append(lines.readline())
                echo = lines.readline()
                connection.sendall(b"uname -r\r\n6.1\r\n/ # " + echo)
                if not ending:
                    connection.sendall(echo.removeprefix(b"echo ").replace(b'""', b""))

        for ending in (False, True):
            thread = threading.Thread(target=listen, kwargs={"ending": ending})
            thread.start()
            if ending:
                with pytest.raises(ConnectionError, match="the guest has ended"):
                    guest.say(lab, "uname -r", DEADLINE)
            else:
                assert "\n6.1\r\n" in guest.say(lab, "uname -r", DEADLINE)
            thread.join(DEADLINE)
    assert heard == [b"uname -r\n"] * 2
