"""Campaigns on a cloud's network: what is left of them there, and where they are measured."""

from __future__ import annotations

import json

import pytest
from labkit import invoke_vigia

import vigia_config
from vigia.campaign import testbed
from vigia.campaign.hosts import LocalHost
from vigia.errors import VigiaError
from vigia.host.source import built
from vigia.lab import model
from vigia.lab.topology import Topology
from vigia.studies import catalogue, clouds


@pytest.mark.parametrize(
    ("cloud", "paths"),
    [("neutron-ovs", ["ovs-vxlan", "ovs-gre"]), ("neutron-linuxbridge", ["linuxbridge-vxlan"])],
)
def test_what_a_cloud_has_is_measured_there_and_nothing_else(cloud: str, paths: list[str]) -> None:
    whole, _ = catalogue.find("e1")
    own = catalogue.topology_text(whole.topology, None)
    fitted, text = clouds.fit(whole, own, cloud)
    assert fitted.sizes == whole.sizes
    for size in whole.sizes:
        left = [cell for cell in whole.plan(size).cells() if cell["path"] in paths]
        assert fitted.plan(size).cells() == left
        assert fitted.plan(size).stop == whole.plan(size).stop
    topology = vigia_config.parse("topology", text, Topology)
    # It is the campaign's lab: of its name and addresses, as fast, with the operator's machines alone.
    mine = vigia_config.parse("topology", own, Topology)
    assert (topology.name, topology.agents, topology.links[0].rate) == (
        mine.name,
        mine.agents,
        mine.links[0].rate,
    )
    assert {(n.tenant, n.machines) for n in topology.networks} == {("_infra", 8)}
    lab = testbed.LabTestbed(model.resolve(topology), "userspace", LocalHost(built("vigia-probe")), cloud)
    assert lab.description["cloud"] == cloud
    catalogue.check_testbed(fitted, fitted.plan("full"), lab)


def test_a_campaign_of_nothing_that_a_cloud_has_is_refused() -> None:
    whole, _ = catalogue.find("e1")
    with pytest.raises(VigiaError, match="has, whose paths are direct, ovn-geneve"):
        clouds.fit(whole, catalogue.topology_text(whole.topology, None), "neutron-ovn")


def test_the_command_shows_what_would_run_on_a_cloud() -> None:
    done = invoke_vigia(
        "campaign", "run", "e1", "--cloud", "neutron-ovs", "--size", "smoke", "--dry-run", "--json"
    )
    assert done.status == 0, done.stderr
    whole = invoke_vigia("campaign", "run", "e1", "--size", "smoke", "--dry-run", "--json")
    assert json.loads(done.stdout)["combinations"] * 3 == json.loads(whole.stdout)["combinations"] * 2
    refused = invoke_vigia("campaign", "run", "e1", "--cloud", "neutron-ovn", "--size", "smoke", "--dry-run")
    assert refused.status != 0 and "run it without --cloud" in refused.stderr


def test_a_plan_without_paths_is_of_no_cloud() -> None:
    without = [c for c in catalogue.shipped() if not any("path" in cell for cell in c.plan("smoke").cells())]
    assert without
    for campaign in without:
        with pytest.raises(VigiaError, match="measures nothing that the cloud neutron-ovs has"):
            clouds.fit(campaign, catalogue.topology_text(campaign.topology, None), "neutron-ovs")
