"""docs/how-to/openstack.md on real Neutron: what is typed there, and what is promised there, on each of three clouds.

The tests of a cloud are one story: each begins where the one before it ended.
"""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest
import yaml
from guestkit import domain_number, real_guest, taking
from labkit import ROOT, VIGIA, Machine, run_vigia
from openstackkit import NAME, PATIENCE, Agents, Cloud, down, guide, total, up
from probingkit import Probing
from tenantcloudkit import Capture, flooded, nothing_comes_out, serving
from tenantkit import questions, telling

from vigia.host import commands
from vigia.lab import naming, openvswitch
from vigia.lab.model import Endpoint
from vigia.lab.neutron import guest, machines
from vigia.lab.neutron.control import NEUTRON
from vigia.lab.neutron.nodes import AGENTS
from vigia.stack.agent import IsolationAgent
from vigia.stack.places import Places, stack_address
from vigia_testing import eventually

pytestmark = [pytest.mark.openstack, pytest.mark.long]

CLOUDS = ("neutron-ovn", "neutron-ovs", "neutron-linuxbridge")
RED = 5_000_000
"""What red has bought in the lab's files, in bytes per second."""


@pytest.fixture(scope="module", params=CLOUDS)
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    before = Machine.now(NAME)
    folder = tmp_path_factory.mktemp("openstack")
    try:
        subprocess.run(up(request.param, folder), check=True, timeout=3600)
        yield Cloud.of(NAME)
    finally:
        down()
    assert Machine.now(NAME) == before, "nothing is left"


@pytest.fixture(scope="module")
def folder(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(cloud.driver)
    for kept in (cloud.places.hosts, cloud.places.contracts, cloud.places.sites):
        (made / kept.name).symlink_to(kept)
    return made


@pytest.fixture(scope="module")
def agents(cloud: Cloud, folder: Path) -> Iterator[Agents]:
    with Agents(cloud).running(["node1", "node2"], folder) as running:
        yield running


def test_the_guides_commands_and_configuration_work(cloud: Cloud, folder: Path) -> None:
    assert cloud.type(guide("api"))
    config = yaml.safe_load(guide("identity.yaml"))
    for key in ("tenants_file", "ports_dir", "contracts_dir", "sites_dir"):
        config[key] = str(folder / key)
    config["openstack"] |= yaml.safe_load(guide("notices"))
    (folder / "guide.yaml").write_text(yaml.safe_dump(config))
    check = ["--config", str(folder / "guide.yaml"), "check-config"]
    commands.run([str(VIGIA.with_name("vigia-identity")), *check])
    paths = yaml.safe_load(guide("probe.yaml"))["paths"]
    served = {"node": "node1", "paths": paths, **yaml.safe_load(guide("served.yaml"))}
    (folder / "served.yaml").write_text(yaml.safe_dump(served))
    commands.run([str(ROOT / "bin/vigia-probe"), "check-config", f"--config={folder}/served.yaml"])


def test_the_cloud_is_whole(cloud: Cloud) -> None:
    status = run_vigia("lab", "status", "--lab", NAME)
    assert status.status == 0, status.stdout
    ports = cloud.neutron.listed("ports")
    assert {p["status"] for p in ports} == {"ACTIVE"}
    assert {p["binding:host_id"] for p in ports} == {"node1", "node2"}
    assert all(p["security_groups"] for p in ports), "security groups are on"


def test_tenants_have_the_same_addresses_and_do_not_meet(cloud: Cloud) -> None:
    red, blue = (cloud.machine("node1", t) for t in ("red", "blue"))
    assert red.address == blue.address
    assert cloud.pings(red, red.peer) > 0 and cloud.pings(blue, blue.peer) > 0
    # What blue's machine on the other node does not answer any more, red's still does.
    other = cloud.machine("node2", "blue")
    commands.run(["ip", "link", "set", "eth0", "down"], netns=other.netns)
    try:
        assert cloud.pings(blue, blue.peer) == 0
        assert cloud.pings(red, red.peer) > 0
    finally:
        commands.run(["ip", "link", "set", "eth0", "up"], netns=other.netns)
    eventually(lambda: cloud.pings(blue, blue.peer), "blue's machines to meet again")


def test_security_groups_hold(cloud: Cloud) -> None:
    red, other = (cloud.machine(node, "red") for node in ("node1", "node2"))
    neutron = cloud.neutron
    body = {"security_group": {"name": "closed", "project_id": cloud.known.projects["red"]}}
    closed = neutron.ask("POST", "/v2.0/security-groups", body)["security_group"]
    before = neutron.listed("ports", id=other.port)[0]["security_groups"]
    neutron.change("port", other.port, security_groups=[closed["id"]])
    try:
        eventually(lambda: cloud.pings(red, red.peer, 1) == 0, "a port to be closed", PATIENCE)
    finally:
        neutron.change("port", other.port, security_groups=before)
    eventually(lambda: cloud.pings(red, red.peer), "it to be open again", PATIENCE)


def test_every_port_is_its_projects(cloud: Cloud, agents: Agents) -> None:
    projects = cloud.known.projects
    wanted = {
        e.port: e.tenant if e.tenant == naming.INFRA else projects[e.tenant]
        for e in cloud.lab.node("node1").endpoints
    }
    own = real_guest(cloud)
    wanted[own.port] = projects[own.tenant]
    eventually(
        lambda: {p: said["tenant"] for p, said in agents.ports("node1").items()} == wanted,
        lambda: f"{agents.ports('node1')} is not {wanted}",
        PATIENCE,
    )
    found = agents.ports("node1")
    # libvirt tells whose its guest's port is, where OVN does not before it.
    assert found[own.port]["source"] == ("ovn" if cloud.driver == "ovn" else "libvirt")
    source = {"ovn": {"ovn", "ovsdb"}, "openvswitch": {"file", "ovsdb"}, "linuxbridge": {"file"}}[
        cloud.driver
    ]
    assert {said["source"] for port, said in found.items() if port != own.port} == source
    networks = set(cloud.known.networks.values())
    if cloud.driver != "linuxbridge":
        assert {said["network"] for said in agents.ports("node1").values()} <= networks


class Book:
    """The last value of each port ever seen, beside the sums of tenants."""

    def __init__(self, agents: Agents) -> None:
        self.agents = agents
        self.last: dict[str, float] = {}

    def balance(self) -> tuple[float, float]:
        """Return the sum over tenants and the sum over ports, on one page."""
        page = self.agents.page("node1")
        for (name, own), value in page.items():
            labels = dict(own)
            if name == "vigia_port_bytes_total" and labels["direction"] == "from_tenant":
                self.last[labels["port"]] = value
        return total(page, "vigia_tenant_protocol_bytes_total", direction="from_tenant"), sum(
            self.last.values()
        )


def test_ports_that_come_and_go_keep_the_sum(cloud: Cloud, agents: Agents) -> None:
    book, red = Book(agents), cloud.machine("node1", "red")
    network = cloud.neutron.listed("ports", id=red.port)[0]["network_id"]

    def even() -> bool:
        sum_of_tenants, sum_of_ports = book.balance()
        return sum_of_tenants == sum_of_ports > 0

    for number in range(4):
        made = cloud.neutron.add(
            "port",
            network_id=network,
            project_id=cloud.known.projects["red"],
            name=f"comes-{number}",
            device_owner="compute:nova",
            **{"binding:host_id": "node1"},
        )
        assert cloud.pings(red, red.peer) > 0
        eventually(even, lambda: f"{book.balance()} differ", PATIENCE)
        cloud.neutron.change("port", made["id"], name=f"renamed-{number}")
        cloud.neutron.remove("port", made["id"])
    eventually(even, lambda: f"{book.balance()} differ", PATIENCE)


def entries(folder: Path, node: str, kind: str = "hosts") -> list[dict[str, Any]]:
    found = yaml.safe_load((folder / kind / f"{node}.yaml").read_text())
    return list(found["contracts" if kind == "contracts" else "ports"])


def test_identity_has_owners_and_names_from_the_cloud(cloud: Cloud, folder: Path) -> None:
    done = cloud.ask(folder)
    assert done.status == 0, done.stderr
    names = {t["id"]: t["name"] for t in yaml.safe_load((folder / "tenants.yaml").read_text())["tenants"]}
    if cloud.driver != "ovn":  # which has no Keystone
        assert {names[cloud.known.projects[t]] for t in ("red", "blue")} == {"red", "blue"}
    tenants = {**cloud.known.projects, naming.INFRA: naming.INFRA}
    own = real_guest(cloud)
    for node in cloud.lab.nodes:
        plugged = [*node.endpoints, *([own] if own.node == node.name else [])]
        wanted = {(e.device, e.port, tenants[e.tenant]) for e in plugged}
        assert {(p["device"], p["port"], p["tenant"]) for p in entries(folder, node.name)} == wanted


def test_enforcers_know_each_other_and_each_others_guests_from_the_cloud(
    cloud: Cloud, agents: Agents, folder: Path
) -> None:
    projects = cloud.known.projects
    own = real_guest(cloud)
    wanted = {
        (e.node, e.port, projects[e.tenant], e.mac, str(e.address.ip))
        for e in cloud.lab.endpoints
        if e.tenant != naming.INFRA
    }
    wanted.add((own.node, own.port, projects[own.tenant], own.mac, own.address.partition("/")[0]))
    nodes = [{"node": name, **end} for name, end in cloud.ends.items()]
    for node in cloud.lab.nodes:
        site = yaml.safe_load((folder / f"sites/{node.name}.yaml").read_text())
        assert site["nodes"] == nodes
        found = {tuple(p[k] for k in ("node", "port", "tenant", "mac", "ip")) for p in site["ports"]}
        assert {p for p in found if ":" not in p[-1]} == wanted
        eventually(lambda node=node: taken(folder, node.name), "the enforcer to take it up", PATIENCE)  # type: ignore[misc]
        assert agents.page(node.name, "enforcer"), "and it goes on"


def taken(folder: Path, node: str) -> int:
    """Return how often a node's enforcer has taken up its site_file."""
    return (folder / f"enforcer-{node}.log").read_text().count("took up site_file")


def test_a_cloud_that_restarts_leaves_the_last_knowledge(cloud: Cloud, folder: Path) -> None:
    before = (folder / "hosts/node1.yaml").read_text()
    cloud.hold(NEUTRON).touch()
    try:
        cloud.kill("neutron-server")
        done = cloud.ask(folder)
        assert done.status == 1 and "cannot ask a cloud" in done.stderr
        assert (folder / "hosts/node1.yaml").read_text() == before, "with the age that it had"
        red = cloud.machine("node1", "red")
        assert cloud.pings(red, red.peer) > 0, "tenants go on"
    finally:
        cloud.hold(NEUTRON).unlink()
    eventually(lambda: cloud.ask(folder).status == 0, "Neutron to be back", PATIENCE)
    again = yaml.safe_load((folder / "hosts/node1.yaml").read_text())
    assert (
        again["ports"] == yaml.safe_load(before)["ports"] and again["asked"] > yaml.safe_load(before)["asked"]
    )


@pytest.fixture(scope="module")
def probing(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probing]:
    found = Probing(cloud, tmp_path_factory.mktemp("probing"))
    try:
        yield found
    finally:
        for port in found.ports():
            cloud.neutron.remove("port", port["id"])


def test_endpoints_of_probes_come_by_themselves(cloud: Cloud, agents: Agents, probing: Probing) -> None:
    """Ports, namespaces, probes: what the guide says, and nothing of anybody else's is touched."""
    others = probing.others()
    nodes = [n.name for n in cloud.lab.nodes]
    done = probing.ask()
    assert done.status == 0, done.stderr
    made = probing.ports()
    assert len(made) == len(nodes) * len(probing.names)
    assert {p["binding:host_id"] for p in made} == set(nodes)
    assert {p["project_id"] for p in made} == {cloud.known.projects[naming.INFRA]}
    assert all(sorted(labels) == ["node"] for labels in probing.nodes().values()), "nobody has plugged them"
    with probing.plugging() as children, probing.probing():
        for node in nodes:
            probing.wait_for_endpoints(node, set(probing.names))
        eventually(lambda: {p["status"] for p in probing.ports()} == {"ACTIVE"}, "ports to work", PATIENCE)
        assert probing.ask().status == 0
        wanted = {f"at_{name}" for name in probing.names}
        assert all(wanted <= set(labels) for labels in probing.nodes().values())
        for here, there in (nodes, nodes[::-1]):
            eventually(
                lambda here=here, there=there: all(
                    n > 20 for n in (probing.received(here, there) or {"": 0}).values()
                ),
                lambda here=here, there=there: f"answers: {probing.received(here, there)}",
                PATIENCE,
            )
        here = {p["id"] for p in made if p["binding:host_id"] == "node1"}
        eventually(
            lambda: {agents.ports("node1").get(i, {}).get("tenant") for i in here} == {naming.INFRA},
            lambda: str(agents.ports("node1")),
            PATIENCE,
        )
        crash(probing, cloud, children)
        withdraw(probing)
    assert probing.others() == others, "others' ports are as they were"


def crash(probing: Probing, cloud: Cloud, children: dict[str, Any]) -> None:
    """Kill the command while an endpoint of its is not whole: the next one mends it.

    Where Neutron's agent is one of Linux bridges, it is away meanwhile, so that nobody else joins the device to one.
    """
    children["node1"].kill()
    children["node1"].wait()
    with away(cloud, "node1") if cloud.driver == "linuxbridge" else nullcontext():
        commands.run(["ip", "netns", "del", probing.prefix("node1") + probing.names[0]])
        children["node1"] = probing.start_plug(cloud.lab.node("node1"))
        probing.wait_for_endpoints("node1", set(probing.names))
        path = next(t["path"] for t in targets(probing, cloud) if t["at"] == probing.names[0])
        before = probing.received("node2", "node1").get(path, 0.0)
        eventually(
            lambda: probing.received("node2", "node1").get(path, 0.0) > before + 20,
            lambda: f"{path} does not answer: {(probing.folder / 'plug-node1.log').read_text()[-2000:]}",
            PATIENCE,
        )


@contextmanager
def away(cloud: Cloud, node: str) -> Iterator[None]:
    """Keep a node's agent of Neutron away until the end of the context."""
    hold = cloud.hold(f"{node}-{AGENTS[cloud.driver]}")
    hold.touch()
    try:
        cloud.kill(AGENTS[cloud.driver], cloud.lab.node(node).netns)
        yield
    finally:
        hold.unlink()


def targets(probing: Probing, cloud: Cloud) -> list[dict[str, str]]:
    (found,) = probing.configuration(cloud.lab.nodes[0])["discovery"]
    return list(found["targets"])


def withdraw(probing: Probing) -> None:
    """Take endpoints away, of one node and then of all."""
    assert probing.ask(hosts=["node1"]).status == 0
    assert {p["binding:host_id"] for p in probing.ports()} == {"node1"}
    probing.wait_for_endpoints("node2", set())
    assert probing.endpoints("node1") == set(probing.names)
    assert probing.ask(networks=[]).status == 0
    assert probing.ports() == []
    probing.wait_for_endpoints("node1", set())


def test_ports_that_cannot_be_made_are_named(cloud: Cloud, probing: Probing) -> None:
    others, project = probing.others(), cloud.known.projects[naming.INFRA]
    own = len(cloud.neutron.listed("ports", project_id=project))
    done = probing.ask(hosts=["node1", "node9"])
    assert done.status == 1 and "host node9: Neutron has no agent there" in done.stderr
    done = probing.ask(networks=[{"name": "vlan", "type": "vlan"}])
    assert done.status == 1 and "network vlan: project" in done.stderr
    assert len(probing.ports()) == len(probing.names), "of node1, and as they were"
    cloud.neutron.ask("PUT", f"/v2.0/quotas/{project}", {"quota": {"port": own + len(probing.names)}})
    try:
        done = probing.ask()
        assert done.status == 1 and "the quota of ports of project" in done.stderr, done.stderr
    finally:
        cloud.neutron.ask("DELETE", f"/v2.0/quotas/{project}")
    assert {p["binding:host_id"] for p in probing.ports()} == {"node1"}
    assert probing.ask(networks=[]).status == 0
    assert probing.ports() == [] and probing.others() == others


def test_a_token_that_ends_is_replaced(cloud: Cloud, folder: Path) -> None:
    if cloud.driver == "ovn":
        pytest.skip("this cloud has no Keystone, and no tokens")
    with watching(cloud, folder):
        red = cloud.machine("node1", "red")
        first = asked(folder)
        fernet = cloud.places.directory / "fernet"
        kept = {f.name: f.read_bytes() for f in fernet.iterdir()}
        for f in kept:  # every token that there is ends
            (fernet / f).write_bytes(base64.urlsafe_b64encode(os.urandom(32)))
        try:
            cloud.neutron.change("port", red.port, name="renamed")
            eventually(
                lambda: asked(folder) > first,
                "the cloud to be asked with a new token",
                PATIENCE,
            )
        finally:
            cloud.neutron.change("port", red.port, name="back")


def test_a_policy_becomes_a_contract_at_once(cloud: Cloud, agents: Agents, folder: Path) -> None:
    red, node = cloud.machine("node1", "red"), cloud.lab.node("node1")
    neutron, project = cloud.neutron, cloud.known.projects["red"]
    before = cloud.foreign(node, red)
    policy = neutron.ask("POST", "/v2.0/qos/policies", {"policy": {"name": "gold", "project_id": project}})[
        "policy"
    ]
    rule = {"max_kbps": 80_000, "max_burst_kbps": 64_000, "direction": "egress"}
    with watching(cloud, folder):
        made = neutron.ask(
            "POST", f"/v2.0/qos/policies/{policy['id']}/bandwidth_limit_rules", {"bandwidth_limit_rule": rule}
        )["bandwidth_limit_rule"]
        neutron.change("port", red.port, qos_policy_id=policy["id"])

        def sold() -> dict[str, Any]:
            return next((c for c in entries(folder, "node1", "contracts") if c["port"] == red.port), {})

        eventually(lambda: sold().get("ceiling") == "80000000bit", lambda: str(sold()), PATIENCE)
        neutron.ask(
            "PUT",
            f"/v2.0/qos/policies/{policy['id']}/bandwidth_limit_rules/{made['id']}",
            {"bandwidth_limit_rule": {"max_kbps": 60_000}},
        )
        eventually(lambda: sold().get("ceiling") == "60000000bit", lambda: str(sold()), PATIENCE)
        owner, ceiling = f"{project}/{red.port}", 7_500_000
        eventually(
            lambda: agents.promised("node1", owner) == (ceiling, {ceiling}),
            lambda: f"{agents.promised('node1', owner)} is not what the enforcer keeps, and on the uplink",
            PATIENCE,
        )
        assert sold()["guarantee"] == "1000000bit", "what the policy does not say"
        assert sold().get("match") == (
            [{red.encap: red.key, "mac": red.mac}] if red.encap != "geneve" else None
        )
        neutron.change("port", red.port, qos_policy_id=None)
        eventually(lambda: sold().get("ceiling") == "150000000bit", lambda: str(sold()), PATIENCE)
    # Neutron's own limit at the port goes later than what is bought.
    eventually(
        lambda: cloud.foreign(node, red) == before,
        lambda: f"Neutron leaves {set(map(str, cloud.foreign(node, red).items())) - set(map(str, before.items()))}",
        PATIENCE,
    )


@contextmanager
def watching(cloud: Cloud, folder: Path) -> Iterator[None]:
    """Have vigia-identity ask for changes every second until the end of the context."""
    log, begun = folder / "identity.log", int(time.time())
    child = commands.start(cloud.identity(folder), log=log)
    try:
        eventually(lambda: asked(folder) >= begun, lambda: log.read_text()[-2000:], PATIENCE)
        yield
    finally:
        child.terminate()
        child.wait()


def asked(folder: Path) -> int:
    """Return when the cloud was asked, as the first node's file says; 0 without one."""
    file = folder / "hosts/node1.yaml"
    return int(yaml.safe_load(file.read_text()).get("asked", 0)) if file.exists() else 0


@contextmanager
def flood(cloud: Cloud, tenant: str, seconds: int) -> Iterator[None]:
    """Have a tenant flood until the end of the context, and for so many seconds at the most."""
    red = cloud.machine("node1", tenant)
    argv = ["--lab", NAME, "--tenant", tenant, "--path", red.path, "--from", "node1", "--rate", "120Mbit"]
    argv = [str(VIGIA), "flood", *argv, "--seconds", str(seconds)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as sending:
        try:
            yield
        finally:
            sending.terminate()  # a shell has its background ignore SIGINT


def sent(agents: Agents, port: str) -> float:
    return total(agents.page("node1"), "vigia_port_bytes_total", port=port, direction="from_tenant")


def dropped(agents: Agents, port: str) -> float:
    return total(agents.page("node1"), "vigia_port_drops_total", port=port, reason="rate_limit")


def test_a_flood_is_limited_at_its_source_and_neutrons_objects_stay(cloud: Cloud, agents: Agents) -> None:
    red = cloud.machine("node1", "red")
    project, node = cloud.known.projects["red"], cloud.lab.node("node1")
    before = cloud.foreign(node, red)
    with flood(cloud, "red", 60):
        begun = sent(agents, red.port)
        eventually(lambda: sent(agents, red.port) > begun + 5_000_000, "the flood", PATIENCE)
        said = agents.set_limit("node1", red.port, project, rate=RED, ttl=30)
        assert said.status_code == 200, said.text
        eventually(lambda: dropped(agents, red.port) > 100, "the limit to drop", PATIENCE)
        assert cloud.foreign(node, red) == before
    agents.enforcer("node1", "DELETE", "/v1/limits")
    eventually(lambda: not agents.limit("node1", red.port), "the limit to end")
    assert cloud.foreign(node, red) == before
    assert cloud.pings(red, red.peer) > 0


def test_a_project_asks_and_gets_its_own_alone(cloud: Cloud, agents: Agents, tmp_path: Path) -> None:
    """Of a node's pages as they are after the flood, by the proxy and the relabelling of docs/how-to/tenants.md."""
    commands.run(["make", "-C", str(ROOT), "prom-label-proxy"], timeout=PATIENCE)
    red, blue = (cloud.known.projects[t] for t in ("red", "blue"))
    pages = {program: agents.raw("node1", program) for program in ("exporter", "enforcer")}
    found = Capture(red, blue, {**pages, "agent": flooded(red, blue)})
    for project in (red, blue):
        assert project.encode() in pages["exporter"][1] and project.encode() in pages["enforcer"][1]
    with serving(tmp_path, found, "project") as asked:
        asking = questions("project", red, blue, asked.at)
        assert nothing_comes_out(asked, asking) >= 200, "most of what is asked is answered with its own"
        assert len(telling(asked.prometheus, asked.prometheus_alone, asking)) >= 200, "without the proxy"


def test_a_guest_with_a_kernel_of_its_own_is_known(cloud: Cloud, agents: Agents) -> None:
    own = real_guest(cloud)
    address = own.address.partition("/")[0]
    for node in ("node1", "node2"):
        red = cloud.machine(node, own.tenant)
        eventually(lambda red=red: cloud.pings(red, address), "the guest to answer", PATIENCE)  # type: ignore[misc]
    assert agents.ports("node1")[own.port]["tenant"] == cloud.known.projects[own.tenant]
    assert agents.bought("node1", own.port) > 0


def test_the_guest_is_a_domain_of_libvirt_at_a_tap_of_libvirts(cloud: Cloud) -> None:
    own = real_guest(cloud)
    its = guest.libvirt(cloud.lab, own)
    assert its.ask("domstate", guest.DOMAIN).strip() == "running"
    assert guest.DOMAIN in cloud.type(guide("virsh"))
    assert its.ask("domuuid", guest.DOMAIN).strip() == own.workload
    assert [f.stem for f in cloud.places.domains(own.node).glob("*.xml")] == [guest.DOMAIN]
    metadata = its.ask("metadata", guest.DOMAIN, "http://openstack.org/xmlns/libvirt/nova/1.1")
    assert cloud.known.projects[own.tenant] in metadata and own.port in metadata
    counted = its.ask("domstats", "--interface", guest.DOMAIN)
    assert f"net.0.name={own.device}\n" in counted and "net.0.rx.bytes=" in counted
    if cloud.driver != "linuxbridge":
        columns = "--columns=external_ids"
        said = openvswitch.vsctl(cloud.lab.layout, own.node, columns, "list", "Interface", own.device)
        assert own.port in said and f'vm-id="{own.workload}"' in said, "libvirt has plugged it"
    # Its kernel is not the machine's, and TCP goes out of it: no checksum is left to a device that makes none.
    assert "cloud-amd64" in guest.say(cloud.lab, "uname -r")
    far = cloud.machine("node2", own.tenant)
    with taking(far, 7777) as took:
        guest.say(cloud.lab, f"dd if=/dev/zero bs=1000 count=100 | nc -w 5 {far.address.ip} 7777")
        eventually(lambda: took() == 100_000, lambda: f"{took()} bytes came", PATIENCE)


def test_a_guest_outlives_libvirtd_which_is_started_again(cloud: Cloud, agents: Agents) -> None:
    own = real_guest(cloud)
    red, address = cloud.machine("node1", own.tenant), own.address.partition("/")[0]
    before = domain_number(cloud, own)
    hold = cloud.hold(f"{own.node}-libvirtd")
    hold.touch()
    try:
        cloud.kill("libvirtd", cloud.lab.node(own.node).netns)
        assert domain_number(cloud, own) == 0, "it does not answer"
        assert cloud.pings(red, address) > 0
        assert agents.ports(own.node)[own.port]["tenant"] == cloud.known.projects[own.tenant]
    finally:
        hold.unlink()
    eventually(lambda: domain_number(cloud, own) == before > 0, "libvirtd to find its guest", PATIENCE)
    assert cloud.pings(red, address) > 0


@contextmanager
def dhcp(cloud: Cloud, machine: Endpoint) -> Iterator[str]:
    """Have DHCP be served in a machine's network on its node, as Neutron's agent does but for the server; return the network.

    That is a port of its own, and a namespace that is called after the network.
    """
    neutron, project = cloud.neutron, cloud.known.projects[machine.tenant]
    network = neutron.listed("ports", id=machine.port)[0]["network_id"]
    (group,) = [g for g in neutron.listed("security-groups", project_id=project) if g["name"] == "default"]
    rule = {
        "security_group_id": group["id"],
        "direction": "ingress",
        "protocol": "icmp",
        "project_id": project,
    }
    own = replace(machine, netns=f"qdhcp-{network}", address6=None)
    made = neutron.add(
        "port",
        network_id=network,
        project_id=project,
        mac_address=own.mac,
        device_owner="network:dhcp",
        device_id=f"dhcp-{network}",
        **{"binding:host_id": machine.node},
    )
    address = IPv4Interface(f"{made['fixed_ips'][0]['ip_address']}/{machine.address.network.prefixlen}")
    own = replace(own, port=made["id"], device=f"tap{made['id'][:11]}", address=address)
    known = neutron.ask("POST", "/v2.0/security-group-rules", {"security_group_rule": rule})
    commands.ip_batch([f"netns add {own.netns}"])
    try:
        machines.attach(cloud.lab, replace(cloud.lab.node(machine.node), endpoints=(own,)), cloud.datapath)
        yield network
        machines.detach(cloud.lab, own)
    finally:
        commands.ip_batch([f"netns del {own.netns}"])
        neutron.remove("port", made["id"])
        neutron.remove("security-group-rule", known["security_group_rule"]["id"])


def test_machines_are_probed_from_where_neutron_serves_their_network(cloud: Cloud) -> None:
    red = cloud.machine("node1", "red")
    argv = [str(ROOT / "bin/vigia-probe"), "once", "--protocol=icmp", "--count=3"]
    with dhcp(cloud, red) as network:
        place = f"--netns=neutron:{network}"
        for to in (red.address.ip, red.peer):  # the machine on the node, and the one on the other
            eventually(
                lambda to=to: commands.run([*argv, f"--to={to}", place], check=False).status == 0,
                lambda to=to: commands.run([*argv, f"--to={to}", place], check=False).stdout,
                PATIENCE,
            )
        other = cloud.neutron.listed("ports", id=cloud.machine("node1", "blue").port)[0]["network_id"]
        done = commands.run([*argv, f"--to={red.peer}", f"--netns=neutron:{other}"], check=False)
        assert done.status != 0 and f"qdhcp-{other}, /run/netns/ovnmeta-{other}" in done.stderr
    done = commands.run([*argv, f"--to={red.peer}", place], check=False)
    assert done.status != 0 and "none of Neutron's agents" in done.stderr


def migrate(cloud: Cloud, machine: Endpoint, node: str) -> None:
    """Have a machine go to another node, as Nova does: its tap, and the binding of its port."""
    machines.detach(cloud.lab, machine)
    cloud.neutron.change("port", machine.port, **{"binding:host_id": node})
    there = replace(cloud.lab.node(node), endpoints=(replace(machine, node=node),))
    machines.attach(cloud.lab, there, cloud.datapath)
    eventually(
        lambda: cloud.neutron.listed("ports", id=machine.port)[0]["status"] == "ACTIVE",
        "the port on its new node",
        PATIENCE,
    )


def test_a_port_that_migrates_takes_no_limit_along_and_leaves_none(
    cloud: Cloud, agents: Agents, folder: Path
) -> None:
    red = cloud.machine("node1", "red")
    project = cloud.known.projects["red"]
    said = agents.set_limit("node1", red.port, project, rate=RED, ttl=60)
    assert said.status_code == 200, said.text
    before = taken(folder, "node1")
    migrate(cloud, red, "node2")
    eventually(lambda: not agents.limit("node1", red.port), "the limit to end with its port", PATIENCE)
    assert cloud.ask(folder).status == 0
    assert {p["node"] for p in entries(folder, "node2", "sites") if p["port"] == red.port} == {"node2"}
    eventually(lambda: taken(folder, "node1") > before, "the enforcer to know where it is", PATIENCE)
    assert red.port in {p["port"] for p in entries(folder, "node2")}
    assert red.port not in {p["port"] for p in entries(folder, "node1")}
    eventually(
        lambda: agents.ports("node2").get(red.port, {}).get("tenant") == project,
        lambda: str(agents.ports("node2")),
        PATIENCE,
    )
    assert agents.limit("node2", red.port) == {}
    # The enforcer takes up by itself whose the port is, sooner or later than the exporter.
    eventually(
        lambda: agents.set_limit("node2", red.port, project, rate=RED, ttl=60).status_code == 200,
        lambda: agents.set_limit("node2", red.port, project, rate=RED, ttl=60).text,
        PATIENCE,
    )
    migrate(cloud, replace(red, node="node2"), "node1")
    eventually(lambda: not agents.limit("node2", red.port), "the limit to end there, too", PATIENCE)
    assert cloud.ask(folder).status == 0
    eventually(
        lambda: agents.ports("node1").get(red.port, {}).get("tenant") == project,
        lambda: str(agents.ports("node1")),
        PATIENCE,
    )
    assert agents.limit("node1", red.port) == {}


def test_a_flood_is_limited_and_released_on_evidence(cloud: Cloud, agents: Agents) -> None:
    """The whole stack: nobody but the isolation agent sets the limit, and lifts it."""
    red = cloud.machine("node1", "red")
    node = cloud.lab.node("node1")
    before = cloud.foreign(node, red)
    agents.stop()
    started = run_vigia("stack", "up", "--lab", NAME, timeout=600)
    assert started.status == 0, started.stderr
    try:
        assert agents.limit("node1", red.port) == {}
        with flood(cloud, "red", 60):
            limit = eventually(lambda: agents.limit("node1", red.port), "the agent's limit", PATIENCE)
            assert limit["rate_bytes_per_second"] >= agents.bought("node1", red.port) > 0
            eventually(lambda: dropped(agents, red.port) > 100, "the limit to drop", PATIENCE)
            assert cloud.foreign(node, red) == before
            blue = cloud.machine("node1", "blue")
            assert agents.limit("node1", blue.port) == {}
        eventually(lambda: not agents.limit("node1", red.port), "the limit to be lifted", PATIENCE)
        where = Places(cloud.lab.layout)
        with IsolationAgent(stack_address(cloud.lab, 9874), where.api_token) as agent:
            action = agent.newest("node1", red.port)
        assert action is not None
        assert "released" in action.instants, action
        assert cloud.foreign(node, red) == before
        assert cloud.pings(red, red.peer) > 0
    finally:
        stopped = run_vigia("stack", "down", "--lab", NAME, timeout=600)
        assert stopped.status == 0, stopped.stderr
