"""What a machine can do is tried."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import bypass, down, ipsec, model, naming, sriov, topology, underlay


def test_paths_that_the_demo_has_are_possible(root: None, vigia: Callable[..., Any]) -> None:
    done = vigia("lab", "paths", "--json")
    assert done.status == 0, done.stderr
    found = {c["path"]: c for c in done.json}
    for path in ("direct", "linuxbridge-vxlan", "ovs-vxlan", "ovs-gre", "ovs-openflow", "macvlan"):
        assert found[path]["possible"], found[path]
    assert found["ipsec"]["possible"] == (commands.find("charon-systemd") is not None)
    assert found["sriov"]["explanation"]
    if not list(sriov.SYSFS.glob("*/device/sriov_numvfs")):
        assert not found["sriov"]["possible"]
        assert "a path of kind macvlan bypasses the switch instead" in found["sriov"]["explanation"]
    assert [n for n in netns.names("vigia-") if n.endswith("-check") and str(os.getpid()) in n] == []


def test_where_esp_is_done_is_tried(root: None) -> None:
    """What the kernel was built with agrees, where it says so."""
    ipsec.in_kernel.cache_clear()
    found = ipsec.in_kernel()
    config = Path("/proc/config.gz")
    if config.exists():
        built = gzip.decompress(config.read_bytes()).decode()
        missing = [
            o
            for o in ("CONFIG_XFRM_USER", "CONFIG_INET_ESP", "CONFIG_CRYPTO_AES")
            if not re.search(rf"^{o}=[ym]$", built, re.MULTILINE)
        ]
        inside = all(
            re.search(rf"^{o}=y$", built, re.MULTILINE) for o in ("CONFIG_XFRM_USER", "CONFIG_INET_ESP")
        )
        assert not (found and missing), missing
        assert found or not inside
    assert ipsec.implementation() == ("kernel ESP" if found else "strongSwan in user space")
    assert [n for n in netns.names("vigia-e") if n.endswith("-check") and str(os.getpid()) in n] == []


def test_a_kernel_that_takes_the_association_has_esp(root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer follows what the kernel says to the command: here to one that it does take."""
    monkeypatch.setattr(ipsec, "ESP", ipsec.KernelFeature("esp4", "CONFIG_INET_ESP", "ip xfrm state list"))
    ipsec.in_kernel.cache_clear()
    assert ipsec.in_kernel()
    monkeypatch.undo()
    ipsec.in_kernel.cache_clear()


# --- SR-IOV ---


class Card:
    """A tree as sysfs has it of a card and its functions; what it names may be real devices."""

    def __init__(self, sysfs: Path, device: str, most: int, functions: list[str], up: tuple[str, ...] = ()):
        (sysfs / device / "device").mkdir(parents=True)
        (sysfs / device / "device" / "sriov_totalvfs").write_text(f"{most}\n")
        (sysfs / device / "device" / "sriov_numvfs").write_text(f"{len(functions)}\n")
        for number, function in enumerate(functions):
            (sysfs / device / "device" / f"virtfn{number}" / "net" / function).mkdir(parents=True)
            (sysfs / function).mkdir()
            (sysfs / function / "flags").write_text("0x1003\n" if function in up else "0x1002\n")


@pytest.fixture
def pair(root: None) -> Iterator[list[str]]:
    """Two devices that are joined, as a card joins its functions."""
    names = [f"vt{os.getpid() % 10**7}{end}" for end in "ab"]
    commands.run(["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]])
    yield names
    commands.run(["ip", "link", "del", names[0]], check=False)


def test_functions_are_found_in_their_order_and_used_ones_left_out(tmp_path: Path, pair: list[str]) -> None:
    assert sriov.find(tmp_path) == []
    Card(tmp_path, "eth1", 8, [])
    Card(tmp_path, "eth2", 64, [pair[1], pair[0], "elsewhere0"])
    none, both = sriov.find(tmp_path)
    assert (none.device, none.most, none.made, none.free) == ("eth1", 8, 0, ())
    assert (both.device, both.made, both.free) == ("eth2", 3, (pair[1], pair[0]))
    assert sriov.take(2, None, tmp_path) == [pair[1], pair[0]]
    assert sriov.describe([both]) == f"virtual functions {pair[1]} of eth2, {pair[0]} of eth2"
    (tmp_path / pair[0] / "flags").write_text("0x1003\n")
    assert sriov.find(tmp_path)[1].free == (pair[1],), "one that is up is somebody's"


@pytest.mark.parametrize(
    ("cards", "device", "message"),
    [
        (
            [],
            None,
            "no device can have virtual functions .* a path of kind macvlan bypasses the switch instead",
        ),
        ([("eth1", 8, [])], None, "eth1 has 0 of 8 virtual functions and a path needs two; run: echo 2 > "),
        ([("eth1", 8, ["gone0", "gone1"])], None, "virtual functions of eth1 are up or elsewhere"),
        ([("eth1", 8, [])], "eth7", "eth7 has no virtual functions; devices that have: eth1"),
    ],
)
def test_why_not(tmp_path: Path, cards: list[Any], device: str | None, message: str) -> None:
    for card in cards:
        Card(tmp_path, *card)
    with pytest.raises(VigiaError, match=message):
        sriov.take(2, device, tmp_path)


SRIOV = """
version: 1
name: NAME
agents: 127.84.0.0/24
tenants: []
links:
  - {name: lb, nodes: [lb1, lb2]}
nodes:
  - {name: lb1, switch: linuxbridge, underlay: 10.99.1.1/24}
  - {name: lb2, switch: linuxbridge, underlay: 10.99.1.2/24}
paths:
  - {name: direct, kind: direct}
  - {name: sriov, kind: sriov, subnet: 192.168.9.0/24, device: eth2}
"""


def test_functions_are_moved_into_the_machines_of_a_path(tmp_path: Path, pair: list[str]) -> None:
    """Packets pass between the two machines; what bypass does is told nothing of where the functions come from."""
    file = tmp_path / "sriov.yaml"
    name = f"s{os.getpid() % 10**8}"
    file.write_text(SRIOV.replace("NAME", name))
    lab = model.resolve(topology.load(file))
    sysfs = tmp_path / "sysfs"
    Card(sysfs, "eth2", 8, pair)
    try:
        underlay.make_namespaces(lab)
        assert bypass.make(lab, sysfs) == 2
        assert pair[0] not in Path("/proc/net/dev").read_text()
        ends = [s for node in lab.nodes for s in node.stations]
        assert [s.kind for s in ends] == ["sriov", "sriov"]
        done = commands.run(["ping", "-c", "1", "-W", "10", str(ends[0].peer)], netns=ends[0].netns)
        assert "1 received" in done.stdout
        with pytest.raises(VigiaError, match="are up or elsewhere"):
            sriov.take(2, "eth2", sysfs)
    finally:
        down.remove(lab.layout)
    assert netns.names(naming.Layout(name).prefix) == []


def test_a_lab_without_functions_is_refused_before_anything_is_made(
    root: None, vigia: Callable[..., Any], tmp_path: Path
) -> None:
    if list(sriov.SYSFS.glob("*/device/sriov_numvfs")):
        pytest.skip("this machine has a network card with SR-IOV")
    file = tmp_path / "sriov.yaml"
    name = f"s{os.getpid() % 10**8}"
    file.write_text(SRIOV.replace("NAME", name).replace(", device: eth2", ""))
    refused = vigia("lab", "up", "--topology", str(file))
    assert refused.status == 1
    assert "no device can have virtual functions" in refused.stderr
    assert netns.names(naming.Layout(name).prefix) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("device: eth2", "over: direct", r"paths\[1\].over: a path of kind sriov has none; remove it"),
        ("kind: sriov", "kind: macvlan", r"paths\[1\].device: a path of kind macvlan has none; remove it"),
        ("subnet: 192.168.9.0/24, ", "", r"paths\[1\].subnet: is missing or too small"),
        ("device: eth2", "device: eth2/../x", "is not a name; write the name of a network device"),
    ],
)
def test_mistakes_in_a_topology(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "sriov.yaml"
    file.write_text(SRIOV.replace("NAME", "x").replace(old, new))
    with pytest.raises(Exception, match=message):
        topology.load(file)
