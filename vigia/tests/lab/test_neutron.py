"""The parts of a cloud of OpenStack that need no cloud: packages, configuration, what the agents are told.

tests/openstack has the clouds themselves.
"""

from __future__ import annotations

import configparser
import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from labkit import invoke_vigia

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import clouds, files, model, packages, topology
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia.lab.neutron import build, configuration, machines, programs, services, tenants
from vigia.lab.neutron.api import Neutron
from vigia.lab.neutron.places import Driver, NeutronPlaces, management
from vigia.lab.topology import Topology

CLOUDS: dict[str, Driver] = {
    "neutron-ovn": "ovn",
    "neutron-ovs": "openvswitch",
    "neutron-linuxbridge": "linuxbridge",
}


def lab_of(cloud: str, root: Path) -> Lab:
    found = model.resolve(topology.default(cloud))
    lab = model.Lab(found.topology, Layout(found.name, root), found.nodes, found.links)
    NeutronPlaces(lab.layout).directory.mkdir(parents=True)
    return lab


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab(cloud: str, tmp_path: Path) -> Lab:
    return lab_of(cloud, tmp_path)


def know(lab: Lab, driver: Driver) -> machines.Known:
    """Have the cloud choose, as a cloud does."""
    ports = {e.port: f"{i:08x}-5a0e-4a5f-8c0d-0f1e2d3c4b5a" for i, e in enumerate(lab.endpoints)}
    keys = {n.key: n.key if driver != "ovn" else 2 + i for i, n in enumerate(lab.topology.networks)}
    record = {
        "driver": driver,
        "projects": {"_infra": "0" * 32, "red": "a" * 32, "blue": "b" * 32},
        "ports": ports,
        "networks": {n.key: f"{n.key:08x}-1111-2222-3333-444444444444" for n in lab.topology.networks},
        "keys": keys,
    }
    NeutronPlaces(lab.layout).known.write_text(json.dumps(record))
    found = machines.read_known(lab)
    assert found is not None
    return found


# Programs


def deb(folder: Path, name: str, contents: dict[str, str]) -> None:
    """Make a Debian package."""
    tree = folder / f"{name}-tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: {name}\n"
    )
    for path, text in contents.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    subprocess.run(
        ["dpkg-deb", "--build", "-Znone", tree, folder / f"{name}.deb"], check=True, capture_output=True
    )


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages that were fetched already."""
    made = tmp_path / "made"
    made.mkdir()

    def fetch(wanted: list[str], archives: Path, status: Path) -> None:
        archives.mkdir()
        for file in made.glob("*.deb"):
            file.rename(archives / file.name)

    monkeypatch.setattr(packages, "_fetch", fetch)
    return made


def test_packages_are_unpacked_below_usr_and_compiled(archive: Path, tmp_path: Path) -> None:
    deb(
        archive,
        "one",
        {"lib/x86_64-linux-gnu/libone.so": "1", "usr/lib/python3/dist-packages/one.py": "x = 1\n"},
    )
    deb(
        archive,
        "two",
        {"sbin/two": "2", "etc/two.conf": "", "usr/lib/python3/dist-packages/two.py": "def (:\n"},
    )
    root = tmp_path / "cache" / "root"
    assert packages.unpack_closure(["one", "two"], root) == 2
    assert (root / "usr/lib/x86_64-linux-gnu/libone.so").read_text() == "1"
    assert (root / "usr/sbin/two").read_text() == "2"
    assert not (root / "lib").exists() and not (root / "sbin").exists()
    compiled = root / "usr/lib/python3/dist-packages/__pycache__"
    assert [f.name.partition(".")[0] for f in compiled.iterdir()] == ["one"]
    assert [p.name for p in root.parent.iterdir()] == ["root"], "nothing else is left"


def test_what_cannot_be_unpacked_leaves_no_half_of_it(archive: Path, tmp_path: Path) -> None:
    (archive / "bad.deb").write_text("no package")
    root = tmp_path / "cache" / "root"
    with pytest.raises(VigiaError, match="dpkg-deb"):
        packages.unpack_closure(["bad"], root)
    assert list(root.parent.iterdir()) == []


def test_the_programs_folder_follows_from_packages_and_release(monkeypatch: pytest.MonkeyPatch) -> None:
    before = programs.find()
    monkeypatch.setattr(packages, "release", lambda: "99.9")
    assert programs.find() != before
    assert programs.find().parent == packages.cache()


# Configuration


def ini(path: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=True)
    found.read_string(path.read_text())
    return found


def test_the_control_planes_files(lab: Lab, cloud: str) -> None:
    places, driver = NeutronPlaces(lab.layout), CLOUDS[cloud]
    configuration.write_control(places, driver)
    neutron, ml2 = ini(places.directory / "neutron.conf"), ini(places.directory / "ml2.ini")
    assert ml2["ml2"]["mechanism_drivers"] == driver
    assert set(ml2["ml2"]["tenant_network_types"].split(",")) == {
        p.encap for p in lab.topology.paths if p.encap is not None
    }
    assert ml2["securitygroup"]["enable_security_group"] == "true"
    if driver == "ovn":
        assert neutron["DEFAULT"]["auth_strategy"] == "noauth"
        assert neutron["DEFAULT"]["api_workers"] == "1", "or the first request hangs for ever"
        assert not (places.directory / "keystone.conf").exists()
    else:
        assert neutron["keystone_authtoken"]["password"] == configuration.passwords(places)["neutron"]
        assert ini(places.directory / "keystone.conf")["cache"]["enabled"] == "true"
        assert (
            yaml.safe_load(places.clouds_file.read_text())["clouds"]["lab"]["auth"]["auth_url"]
            == places.keystone_url
        )
    for file in places.directory.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, f"{file.name} has passwords"


def test_passwords_are_drawn_once_and_differ(tmp_path: Path) -> None:
    first, second = (NeutronPlaces(lab_of("neutron-ovs", tmp_path / n).layout) for n in ("a", "b"))
    drawn = configuration.passwords(first)
    assert configuration.passwords(first) == drawn
    assert len(set(drawn.values())) == len(drawn) == 4
    assert not set(drawn.values()) & set(configuration.passwords(second).values())


@pytest.mark.parametrize("driver", ["openvswitch", "linuxbridge"])
def test_an_agents_file(driver: Driver, tmp_path: Path) -> None:
    lab = lab_of("neutron-ovs", tmp_path)
    places = NeutronPlaces(lab.layout)
    file = configuration.agent(places, driver, "node1", "10.99.3.1", "unix:/db.sock")
    found = ini(file)
    assert found["DEFAULT"]["host"] == "node1"
    section = "ovs" if driver == "openvswitch" else "vxlan"
    assert found[section]["local_ip"] == "10.99.3.1"
    assert (
        found["securitygroup"]["firewall_driver"]
        == {"openvswitch": "openvswitch", "linuxbridge": "iptables"}[driver]
    )
    assert str(file) in found["privsep"]["helper_command"]


def test_nodes_and_control_plane_have_addresses_of_their_own(lab: Lab) -> None:
    addresses = [a.partition("/")[0] for a in management(lab).values()] + [NeutronPlaces(lab.layout).address]
    assert len(set(addresses)) == len(lab.nodes) + 1


def test_scripts_are_there_and_are_shell(lab: Lab) -> None:
    places = NeutronPlaces(lab.layout)
    services.prepare(places)
    scripts = sorted(places.directory.glob("*.sh"))
    names = ["enter.sh", "libvirt.sh", "run.sh", "service.sh", "supervise.sh"]
    assert [s.name for s in scripts] == names
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)


def ebtables(script: Path, netns: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run the lab's ebtables as neutron-linuxbridge-agent does, in a namespace."""
    command = ["ip", "netns", "exec", netns, str(script), "-t", "nat", "--concurrent", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.netns
def test_rules_with_sets_of_addresses_can_be_deleted(tmp_path: Path, root: None) -> None:
    """As neutron-linuxbridge-agent does it at each change of a port."""
    places = NeutronPlaces(lab_of("neutron-linuxbridge", tmp_path).layout)
    services.prepare(places)
    namespace = f"vigia-test-ebtables-{os.getpid()}"
    commands.ip_batch([f"netns add {namespace}"])
    try:
        delete_rules(places.directory / "mended/sbin/ebtables", namespace)
    finally:
        commands.ip_batch([f"netns del {namespace}"])


def delete_rules(script: Path, namespace: str) -> None:
    assert script.stat().st_mode & 0o111 == 0o111

    def rules(chain: str) -> list[str]:
        listed = ebtables(script, namespace, "-L", chain)
        assert listed.returncode == 0, listed.stderr
        return [line.strip() for line in listed.stdout.splitlines() if line.startswith("-")]

    def do(*argv: str) -> None:
        done = ebtables(script, namespace, *argv)
        assert done.returncode == 0, done.stderr

    for device, mac in (("tap1", "fa:16:3e:07:aa:bb"), ("tap2", "fa:16:3e:17:aa:bb")):
        do("-N", f"MAC-{device}", "-P", "DROP")
        do("-A", f"MAC-{device}", "-j", "DROP")
        do("-I", "PREROUTING", "-i", device, "-j", f"MAC-{device}")
        for macs in (mac, f"{mac},02:00:00:00:00:01"):
            do("-I", f"MAC-{device}", "-i", device, "--among-src", macs, "-j", "RETURN")
    before = rules("MAC-tap2")
    for rule in [r for r in rules("MAC-tap1") if "--among-src" in r]:  # it takes them from the list
        do("-D", "MAC-tap1", *rule.split())
    assert rules("MAC-tap1") == ["-j DROP"]
    assert rules("MAC-tap2") == before
    missing = ebtables(script, namespace, "-D", "MAC-tap1", *before[0].split())
    assert missing.returncode != 0 and missing.stderr, "a rule that is not there is said"
    do("-D", "MAC-tap1", "-j", "DROP")
    assert rules("MAC-tap1") == [], "what has no set is as it was"
    assert len(rules("PREROUTING")) == 2


# What the cloud chose


def test_a_lab_without_a_cloud_is_as_its_topology_says(lab: Lab) -> None:
    assert machines.known(lab) is lab
    NeutronPlaces(lab.layout).known.write_text("{")
    assert machines.known(lab) is lab
    assert tenants.by_project(lab, "exporter.yaml", {"tenant": "red"}) == {"tenant": "red"}


def test_ports_devices_and_keys_are_the_clouds(lab: Lab, cloud: str) -> None:
    found = know(lab, CLOUDS[cloud])
    here = machines.known(lab)
    for before, after in zip(lab.endpoints, here.endpoints, strict=True):
        assert after.port == found.ports[before.port]
        assert after.device == f"tap{after.port[:11]}" and len(after.device) <= 15
        assert after.key == found.keys[before.key]
        assert (after.netns, after.mac, after.address) == (before.netns, before.mac, before.address)
        assert after.bridge == f"brq{found.network_of(after)[:11]}" and len(after.bridge) <= 15


def walk(content: Any) -> list[str]:
    if isinstance(content, dict):
        own = [content["tenant"]] if isinstance(content.get("tenant"), str) else []
        return own + [t for v in content.values() for t in walk(v)]
    return [t for item in content for t in walk(item)] if isinstance(content, list | tuple) else []


def test_the_agents_are_told_of_projects(lab: Lab, cloud: str) -> None:
    found = know(lab, CLOUDS[cloud])
    here = machines.known(lab)
    tenants.write_hosts(here)
    for name, content in files.contents(here, here.nodes[0], "userspace").items():
        changed = yaml.safe_load(files.dump(tenants.by_project(here, name, content)))
        assert set(walk(changed)) <= {"_infra", found.projects["red"], found.projects["blue"]}, name
        if name == "exporter.yaml":
            assert {t["id"]: t["name"] for t in changed["tenants"]}[found.projects["red"]] == "red"
            assert ("ovn_southbound" in changed) == (cloud == "neutron-ovn")
            assert ("ports_file" in changed) == (cloud != "neutron-ovn")
            if "ports_file" in changed:
                known = yaml.safe_load(Path(changed["ports_file"]).read_text())["ports"]
                assert {p["device"] for p in known} == {e.device for e in here.nodes[0].endpoints}
        if name == "enforcer.yaml":
            site = yaml.safe_load(Path(changed["fast_loop"]["site_file"]).read_text())
            assert {n["node"] for n in site["nodes"]} == {n.name for n in here.nodes}
            assert {p["port"] for p in site["ports"]} == {
                e.port for e in here.endpoints if e.tenant != "_infra"
            }
            assert {p["tenant"] for p in site["ports"]} == {found.projects["red"], found.projects["blue"]}


def test_contracts_know_frames_by_the_key_on_the_wire(tmp_path: Path) -> None:
    lab = lab_of("neutron-ovn", tmp_path)
    found = know(lab, "ovn")
    here = machines.known(lab)
    content: Any = files.contents(here, here.nodes[0], "userspace")["enforcer.yaml"]
    red = next(c for c in content["contracts"] if c["tenant"] == "red")
    assert red["match"] == [{"geneve": found.keys[510]}] != [{"geneve": 510}]


# What does not fit


@pytest.mark.parametrize(
    ("cloud", "change", "said"),
    [
        ("neutron-ovn", {"encap: geneve": "encap: vxlan"}, "path ovn-geneve: this cloud has geneve alone"),
        ("neutron-ovs", {"encap: gre": "encap: geneve"}, "path ovs-gre: this cloud has vxlan, gre alone"),
        (
            "neutron-linuxbridge",
            {"switch: linuxbridge, underlay: 10.99.1.1/24": "switch: both, underlay: 10.99.1.1/24, tunnel: 10.99.3.1/24",
             "switch: linuxbridge, underlay: 10.99.1.2/24": "switch: both, underlay: 10.99.1.2/24, tunnel: 10.99.3.2/24"},
            "node node1 needs switch: linuxbridge with this cloud",
        ),
    ],
)  # fmt: skip
def test_a_topology_that_the_cloud_cannot_be_is_refused(
    cloud: str, change: dict[str, str], said: str
) -> None:
    text = (Path(topology.__file__).parent / f"topologies/{cloud}.yaml").read_text()
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    wrong = model.resolve(Topology.model_validate(yaml.safe_load(text)))
    switch = "linuxbridge" if cloud == "neutron-linuxbridge" else "openvswitch"
    with pytest.raises(VigiaError, match=f"{said}; leave out --topology for one that fits"):
        build._check_topology(wrong, CLOUDS[cloud], switch)


def test_the_clouds_bring_topologies_that_fit(cloud: str) -> None:
    found = model.resolve(topology.default(clouds.load(cloud).topology))
    build._check_topology(found, CLOUDS[cloud], found.nodes[0].switch)
    subnets = [n.subnet for n in found.topology.networks if n.tenant != "_infra"]
    assert len(set(subnets)) == 1, "tenants' addresses overlap"


def test_the_command_lists_them(cloud: str) -> None:
    assert cloud in invoke_vigia("lab", "up", "--help").stdout


def test_a_service_that_fails_is_asked_again_for_a_while(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    neutron = Neutron(NeutronPlaces(lab.layout), "ovn")
    answers: list[httpx.Response] = []
    sent: list[str] = []

    def send(method: str, path: str, body: Any, headers: Any) -> httpx.Response:
        sent.append(method)
        return answers.pop(0)

    monkeypatch.setattr(neutron, "_send", send)
    monkeypatch.setattr("vigia.lab.neutron.api._PAUSE", 0.0)
    answers += [httpx.Response(500), httpx.Response(500), httpx.Response(201, json={"port": {"id": "p"}})]
    assert neutron.add("port") == {"id": "p"} and len(sent) == 3
    answers += [httpx.Response(500, text="broken")] * 4
    with pytest.raises(VigiaError, match="500: broken"):
        neutron.add("port")
    answers += [httpx.Response(409, text="there is one")]
    with pytest.raises(VigiaError, match="409: there is one"):
        neutron.add("port")
    assert not answers and len(sent) == 8, "what is refused is not tried again"
