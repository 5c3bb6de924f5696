"""Rules set beforehand: read, and installed by ovs-ofctl or by an os-ken controller on a real switch, alike."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from labkit import run_vigia

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import model, openflow, topology
from vigia.lab.model import Lab
from vigia.lab.ofrules import FlowAction, FlowRule, translate
from vigia.lab.openflow import Switch
from vigia.studies import catalogue
from vigia.studies.openflow import rulesets
from vigia.studies.openflow.measurement import fitting
from vigia_config import ConfigError
from vigia_testing import eventually

# --- in words ---


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("priority=0,actions=NORMAL", FlowRule(0, 0, {}, (FlowAction("normal"),))),
        (
            "cookie=400,priority=100,in_port=1,dl_dst=ff:ff:ff:ff:ff:ff,actions=output:2,output:1000",
            FlowRule(
                100,
                400,
                {"in_port": 1, "eth_dst": "ff:ff:ff:ff:ff:ff"},
                (FlowAction("output", value=2), FlowAction("output", value=1000)),
            ),
        ),
        ("priority=50,arp,in_port=2,actions=output:1", FlowRule(50, 0, {"eth_type": 0x806, "in_port": 2}, (FlowAction("output", value=1),))),
        (
            "dl_vlan=0xffff,udp,nw_src=10.0.0.1,tp_dst=862,nw_tos=184,actions=drop",
            FlowRule(32768, 0, {"vlan_vid": 0, "eth_type": 0x800, "ip_proto": 17, "ipv4_src": "10.0.0.1", "udp_dst": 862, "ip_dscp": 46}, ()),
        ),
        (
            "priority=7,in_port=1,actions=mod_vlan_pcp:5,mod_nw_tos:184,output:2",
            FlowRule(
                7,
                0,
                {"in_port": 1},
                (FlowAction("push_vlan", value=0x8100), FlowAction("set", "vlan_pcp", 5), FlowAction("set", "ip_dscp", 46), FlowAction("output", value=2)),
            ),
        ),
    ],
)  # fmt: skip
def test_a_rule_is_read(text: str, rule: FlowRule) -> None:
    assert translate(text) == rule


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("priority=1,metadata=5,actions=drop", 'has "metadata=5", which is not supported'),
        ("priority=x,actions=drop", 'has "priority=x"'),
        ("dl_vlan=7,actions=drop", 'has "dl_vlan=7"'),
        ("dl_src=06:00,actions=drop", 'has "dl_src=06:00"'),
        ("nw_src=::1,actions=drop", 'has "nw_src=::1"'),
        ("actions=group:1", 'has the action "group:1", which is not supported'),
        ("actions=output:all", 'has the action "output:all"'),
        ("in_port=1", 'has the action ""'),
    ],
)
def test_what_is_not_known_is_refused(text: str, problem: str) -> None:
    with pytest.raises(VigiaError, match=re.escape(problem)):
        translate(text)


# --- in a topology ---


def written(directory: Path, name: str, rules: str) -> Path:
    """The topology of E2 as a lab of the tests' own, whose rules are installed by somebody."""
    text = catalogue.topology_text("e2", None)
    text = re.sub(r"^name: e2$", f"name: {name}", text, flags=re.MULTILINE)
    text = text.replace("127.82.0.", "127.86.0.").replace("mode: openflow", f"mode: openflow, rules: {rules}")
    file = directory / f"{name}.yaml"
    file.write_text(text)
    return file


def test_who_installs_is_chosen_in_the_topology(tmp_path: Path) -> None:
    for by in ("ovs-ofctl", "os-ken"):
        lab = model.resolve(topology.load(written(tmp_path, "x", by)))
        assert openflow.switch(lab.layout, lab.node("ovs1")).by == by
    with pytest.raises(
        ConfigError, match=r"paths\[1\].rules: \"ryu\": input should be 'ovs-ofctl' or 'os-ken'"
    ):
        topology.load(written(tmp_path, "x", "ryu"))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("", r"paths\[1\].rules: is for a path of mode openflow; remove it, or write mode: openflow"),
        ("mode: openflow}\n  - {name: other, kind: overlay, switch: openvswitch, encap: gre, mode: openflow, ", '"os-ken" differs from that of another path; write ovs-ofctl'),
    ],
)  # fmt: skip
def test_rules_that_no_bridge_can_have(tmp_path: Path, new: str, message: str) -> None:
    file = written(tmp_path, "x", "os-ken")
    file.write_text(file.read_text().replace("mode: openflow, ", new))
    with pytest.raises(ConfigError, match=message):
        topology.load(file)


# --- on a switch ---


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose rules a controller installed while it came up."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    name = "tofken"
    file = written(tmp_path_factory.mktemp("of"), name, "os-ken")
    run_vigia("lab", "down", "--lab", name)
    up = run_vigia("lab", "up", "--topology", str(file), timeout=300)
    assert up.status == 0, up.stderr
    yield model.resolve(topology.load(file))
    assert run_vigia("lab", "down", "--lab", name).status == 0


@pytest.fixture
def switch(lab: Lab) -> Switch:
    return openflow.switch(lab.layout, lab.node("ovs1"))


def dumped(of: Switch) -> list[str]:
    """What the switch says that it holds, without counters."""
    argv = ["ovs-ofctl", "--protocols=OpenFlow14", "--no-stats", "dump-flows", of.bridge]
    lines = commands.run(argv, env={"OVS_RUNDIR": str(of.directory)}).stdout.splitlines()
    return sorted(line.strip() for line in lines if "actions=" in line)


def every_rule(lab: Lab) -> list[str]:
    """All rules that the lab and the studies know: each kind of match, each rewriting, forwarding, filling."""
    node = lab.node("ovs1")
    client, server = (lab.endpoint("ovs1", "_infra", "ovs-openflow", n) for n in (1, 2))
    numbers = openflow.ports(node)
    flow = rulesets.SwitchedFlow(client, server, numbers[client.device], numbers[server.device], 20862, 862)
    found = [*openflow.forwarding(node), *rulesets.filler(50)]
    for priority, (match, rewrite) in enumerate(
        [(m, "none") for m in rulesets.MATCHES] + [("exact", r) for r in rulesets.REWRITES], start=2000
    ):
        rules = rulesets.rules(match, rulesets.rewrite(rewrite, flow), flow)
        found += [re.sub(r"priority=\d+", f"priority={priority}", rule) for rule in rules]
    return found


def test_packets_pass_where_a_controller_set_the_rules(lab: Lab, switch: Switch) -> None:
    """lab up has tried all paths; the controller is gone, and the rules have stayed."""
    # Each echo has a second, which a busy machine may not keep to at once.
    eventually(lambda: run_vigia("lab", "status", "--lab", lab.name).status == 0, "every path to answer")
    assert openflow.count(switch) == len(openflow.forwarding(lab.node("ovs1")))
    argv = [
        "ovs-vsctl",
        f"--db=unix:{switch.directory}/db.sock",
        "get",
        "Controller",
        switch.bridge,
        "is_connected",
    ]
    assert commands.run(argv).stdout == "false\n"


def test_a_controller_and_ovs_ofctl_leave_the_same_rules(lab: Lab, switch: Switch) -> None:
    rules = every_rule(lab)
    assert switch.by == "os-ken"
    openflow.install(switch, rules)
    by_controller = dumped(switch)
    openflow.install(replace(switch, by="ovs-ofctl"), rules)
    assert by_controller == dumped(switch)
    assert len(by_controller) > 70


def test_a_controller_that_is_refused_leaves_what_was_there(lab: Lab, switch: Switch) -> None:
    openflow.install(switch, openflow.forwarding(lab.node("ovs1")))
    before = dumped(switch)
    with pytest.raises(VigiaError, match="the switch refuses: type 2"):
        openflow.install(
            switch, ["priority=1,in_port=1,actions=output:2", "priority=2,in_port=2,actions=output:65300"]
        )
    with pytest.raises(VigiaError, match='"metadata=1", which is not supported'):
        openflow.install(switch, ["metadata=1,actions=drop"])
    assert dumped(switch) == before


def test_a_table_is_filled_by_a_controller(lab: Lab, switch: Switch) -> None:
    wanted = openflow.forwarding(lab.node("ovs1"))
    assert fitting(switch, wanted, 2000) == 2000
    assert openflow.count(switch) == 2000
    openflow.install(switch, wanted)
    assert openflow.count(switch) == len(wanted)
