"""What is written into a node's Open vSwitch, for both datapaths; only one of them runs on a given machine."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import naming, openvswitch
from vigia.lab.model import Datapath, Lab


class Recorder:
    """Stands where programs are run, and writes down what would be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.settings: list[str] = []
        monkeypatch.setattr(commands, "run", self._run)
        monkeypatch.setattr(commands, "start_daemon", self._run)
        monkeypatch.setattr(commands, "ip_batch", self._batch)
        monkeypatch.setattr(netns, "inside", lambda name, call: self.settings.append(name))

    def _run(self, argv: Sequence[str], **options: Any) -> commands.CommandResult:
        self.lines.append(" ".join(argv))
        return commands.CommandResult(0, '{"data": []}', "")

    def _batch(self, lines: Sequence[str], netns: str = "", force: bool = False) -> None:
        self.lines += [f"ip -n {netns} {line}" for line in lines]

    @property
    def transaction(self) -> list[str]:
        """The transactions that set a node up, its uplink's first, in their parts."""
        return [part for line in self.lines if "add-br " in line for part in line.split(" -- ")]


def make(pairs: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, datapath: Datapath) -> Recorder:
    layout = naming.Layout("demo", tmp_path)
    recorder = Recorder(monkeypatch)
    openvswitch.make_switch(pairs.node("ovs1"), layout, datapath)
    return recorder


def test_in_the_kernel(pairs: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(pairs, tmp_path, monkeypatch, "kernel")
    parts = made.transaction
    assert "ip -n vigia-demo-ovs1 addr add 10.99.3.1/24 dev eth0" in made.lines
    assert any(part.startswith("set Bridge br-int datapath_type=system ") for part in parts)
    assert not any("br-phy" in line or "macvlan" in line for line in made.lines)
    assert made.settings == []


def test_in_userspace(pairs: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(pairs, tmp_path, monkeypatch, "userspace")
    parts = made.transaction
    mac = naming.mac("vigia-demo-ovs1", "phy0")
    assert any(part.startswith("set Bridge br-int datapath_type=netdev ") for part in parts)
    assert f'set Bridge br-phy datapath_type=netdev fail_mode=standalone other_config:hwaddr="{mac}"' in parts
    assert "add-port br-phy phy0" in parts
    assert (
        f"ip -n vigia-demo-ovs1 link add link eth0 name phy0 mtu 1600 address {mac} type macvlan mode bridge"
        in made.lines
    )
    addressed = [line for line in made.lines if line.endswith("dev br-phy") or "set br-phy" in line]
    assert addressed == [
        "ip -n vigia-demo-ovs1 addr add 10.99.3.1/24 dev br-phy",
        "ip -n vigia-demo-ovs1 link set br-phy mtu 1600 up",
    ]
    assert made.settings == ["vigia-demo-ovs1"], "the kernel's copies are dropped, in the node only"


@pytest.mark.parametrize("datapath", ["kernel", "userspace"])
def test_each_network_has_a_vlan_and_a_tunnel_of_its_own(
    pairs: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, datapath: Datapath
) -> None:
    parts = make(pairs, tmp_path, monkeypatch, datapath).transaction
    for vlan, (device, key, encap) in enumerate(
        [
            ("infra-200", 200, "vxlan"),
            ("red-210", 210, "vxlan"),
            ("blue-220", 220, "vxlan"),
            ("infra-300", 300, "gre"),
            ("red-310", 310, "gre"),
            ("blue-320", 320, "gre"),
        ],
        start=1,
    ):
        assert f"add-port br-int {device} tag={vlan}" in parts
        assert f"add-port br-int tun-{key} tag={vlan}" in parts
        assert (
            f'set Interface tun-{key} type={encap} options:remote_ip="10.99.3.2" '
            f'options:local_ip="10.99.3.1" options:key={key}' in parts
        )


def test_identities(pairs: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make(pairs, tmp_path, monkeypatch, "userspace").transaction
    red = next(part for part in parts if part.startswith("set Interface red-310 "))
    identity = {k: json.loads(v) for k, v in re.findall(r'external_ids:(\S+?)=("[^"]*")', red)}
    assert identity == {
        "iface-id": "ovs1-red-310",
        "attached-mac": naming.mac("vigia-demo-ovs1-red-ovs-gre", "eth0"),
        "vigia-tenant": "red",
        "vigia-network": "ovs-gre",
        "vigia-workload": "vigia-demo-ovs1-red-ovs-gre",
    }


def test_the_daemons_know_only_their_own_folder(
    pairs: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(pairs, tmp_path, monkeypatch, "userspace")
    folder = f"{tmp_path}/demo/nodes/ovs1/ovs"
    started = [line for line in made.lines if line.startswith(("ovsdb-server ", "ovs-vswitchd "))]
    assert [line.split()[0] for line in started] == ["ovsdb-server", "ovs-vswitchd"]
    for line in started:
        assert f"--pidfile={folder}/{line.split()[0]}.pid" in line
        assert "--detach" in line
        assert "/var/" not in line and "/etc/" not in line


def test_a_port_that_cannot_be_used(pairs: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {
        "data": [["eth1", ["set", []]], ["red-210", "could not open network device red-210 (No such device)"]]
    }
    monkeypatch.setattr(openvswitch, "vsctl", lambda *arguments: json.dumps(answer))
    monkeypatch.setattr(commands, "run", lambda argv, **options: commands.CommandResult(0, "", ""))
    monkeypatch.setattr(commands, "start_daemon", lambda argv, **options: None)
    monkeypatch.setattr(commands, "ip_batch", lambda lines, **options: None)
    with pytest.raises(VigiaError) as e:
        openvswitch.make_switch(pairs.node("ovs1"), naming.Layout("demo", tmp_path), "kernel")
    assert str(e.value) == (
        "Open vSwitch of node ovs1 cannot use red-210: could not open network device red-210 (No such device)"
    )


@pytest.mark.parametrize("content", ["", "nonsense\n", "-1\n"])
def test_a_pid_file_that_makes_no_sense(pairs: Lab, tmp_path: Path, content: str) -> None:
    layout = naming.Layout("demo", tmp_path)
    layout.ovs("ovs1").mkdir(parents=True)
    for name in openvswitch.DAEMONS:
        (layout.ovs("ovs1") / f"{name}.pid").write_text(content)
    assert [(d.name, d.alive) for d in openvswitch.daemons(layout, "ovs1")] == [
        ("ovs-vswitchd", False),
        ("ovsdb-server", False),
    ]
