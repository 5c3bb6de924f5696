"""Where a campaign's connections are in a lab, found on the resolved topology: nothing of it is made."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import vigia_config
from vigia.campaign import testbed
from vigia.campaign.hosts import LocalHost
from vigia.campaign.testbed import LabTestbed
from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.lab import ipsec, model, topology
from vigia.lab.topology import Topology
from vigia.studies import catalogue

HOST = LocalHost(Path("/nonexistent/vigia-probe"))


def of(name: str) -> LabTestbed:
    """The testbed of a topology that comes with the program."""
    lab = model.resolve(vigia_config.parse(name, catalogue.topology_text(name, None), Topology))
    return LabTestbed(lab, "userspace", HOST)


def shown(pairs: list[testbed.Pair]) -> list[tuple[str, str]]:
    return [(f"{a.node}/{a.machine}", f"{b.node}/{b.machine}") for a, b in pairs]


def test_machines_of_the_same_number_are_connected_across_nodes() -> None:
    here = of("e1")
    assert shown(here.pairs("ovs-vxlan", "cross-node", 8)) == [
        (f"ovs1/{n}", f"ovs2/{n}") for n in range(1, 5)
    ]


def test_neighbours_are_connected_on_one_node() -> None:
    here = of("e1")
    assert shown(here.pairs("linuxbridge-vxlan", "same-node", 4)) == [
        ("lb1/1", "lb1/2"),
        ("lb1/3", "lb1/4"),
    ]


def test_a_place_is_an_address_in_a_namespace() -> None:
    ((source, sink),) = of("e1").pairs("ovs-gre", "cross-node", 2)
    assert source.netns != sink.netns
    assert source.netns is not None
    assert source.netns.startswith("vigia-e1-")
    assert source.address != sink.address
    assert source.host is HOST


def test_all_connections_between_nodes_themselves_are_one() -> None:
    here = of("e4")
    pairs = here.pairs("direct", "cross-node", 4)
    assert len(pairs) == 2
    assert pairs[0] == pairs[1]
    source, sink = pairs[0]
    assert source.address == here.lab.node(source.node).underlay.ip
    assert sink.node == here.lab.node(source.node).peer


def test_stations_beside_the_switch() -> None:
    here = of("e3")
    ((source, sink),) = here.pairs("ipsec-macvlan", "cross-node", 2)
    stations = {s.netns: s for node in here.lab.nodes for s in node.stations}
    assert {stations[p.netns].path for p in (source, sink) if p.netns} == {"ipsec-macvlan"}


@pytest.mark.parametrize(
    ("path", "placement", "machines", "message"),
    [
        ("ovs-vxlan", "cross-node", 3, "3 machines make no pairs; write an even number"),
        ("ovs-vxlan", "cross-node", 0, "0 machines make no pairs"),
        ("ovs-vxlan", "nearby", 2, '"nearby" is not a placement; write same-node or cross-node'),
        ("sriov", "cross-node", 2, 'lab e1 has no path "sriov"; its paths are linuxbridge-vxlan, ovs-vxlan'),
        (
            "ovs-vxlan",
            "cross-node",
            18,
            "8 machines are on ovs-vxlan at node ovs1 of lab e1, and 9 are wanted; write machines: 9",
        ),
        ("ovs-vxlan", "same-node", 10, "8 machines are on ovs-vxlan at node ovs1 of lab e1, and 9 are"),
    ],
)
def test_connections_that_are_not_there(path: str, placement: str, machines: int, message: str) -> None:
    with pytest.raises(VigiaError, match=message):
        of("e1").pairs(path, placement, machines)


def test_a_manifest_says_what_was_measured_on() -> None:
    described = of("e1").description
    assert (described["kind"], described["name"], described["ovs_datapath"]) == ("lab", "e1", "userspace")
    assert Topology.model_validate(described["topology"]) == of("e1").lab.topology


def test_a_rekeyed_association_is_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    here = of("e3")
    sets = iter(
        [
            {"ipsec-macvlan": frozenset({"a", "b"}), "ipsec-ovs-vxlan": frozenset({"c"})},
            {"ipsec-macvlan": frozenset({"a", "b"}), "ipsec-ovs-vxlan": frozenset({"c"})},
            {"ipsec-macvlan": frozenset({"a", "x"}), "ipsec-ovs-vxlan": frozenset({"c"})},
            {"ipsec-macvlan": frozenset({"a", "x"})},
        ]
    )
    monkeypatch.setattr(ipsec, "association_sets", lambda lab: next(sets))
    assert here.marks() == [], "the first look is the beginning"
    assert here.marks() == []
    (mark,) = here.marks()
    assert mark["what"] == "IPsec of ipsec-macvlan was rekeyed"
    assert mark["at"] > 1.7e9
    assert here.marks() == []


@pytest.mark.parametrize("name", ["demo", "other"])
def test_a_campaign_does_not_take_the_demos_lab(name: str) -> None:
    """It would remove it, with whatever runs inside."""
    text = (Path(topology.__file__).with_name("topologies") / "demo.yaml").read_text()
    text = text.replace("name: demo\n", f"name: {name}\n")
    if name == "other":
        text = text.replace("name: other\n", "name: demo\n").replace("127.77.0.", "127.66.0.")
    with (
        pytest.raises(VigiaError, match="must not be the demo"),
        testbed.lab_testbed(text, Steps(io.StringIO())),
    ):
        pass
