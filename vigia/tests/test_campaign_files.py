"""Campaign files: the shipped ones, what is wrong with others, combinations and their order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import vigia_config
from vigia.campaign import bed, catalogue, jobs, model, schedule
from vigia.campaign.model import Campaign, Design
from vigia.errors import VigiaError
from vigia.lab.topology import Topology
from vigia_config import ConfigError

SMALL = """\
version: 1
name: mine
title: Mine
question: Is it?
study: overlays
topology: e1
small:
  designs:
    - factors: {path: [ovs-vxlan, ovs-gre], placement: [same-node], machines: [2], protocol: [tcp], direction: [one-way], rate: [unlimited]}
  stop: {repetitions: 5}
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("campaign", model.shipped(), ids=lambda c: c.name)
@pytest.mark.parametrize("full", [False, True])
def test_every_shipped_campaign_fits_its_study_and_its_topology(campaign: Campaign, full: bool) -> None:
    plan = campaign.plan(full)
    catalogue.check(campaign, plan)
    topology = vigia_config.parse("topology", bed.topology_text(campaign.topology, None), Topology)
    assert topology.name != "demo"
    assert {str(c["path"]) for c in plan.cells() if "path" in c} <= {p.name for p in topology.paths}
    # Fewer than 5 cannot separate anything; a shuffle's report shows intervals and makes no tests.
    assert plan.stop.repetitions >= (3 if campaign.study == "shuffle" else 5)


@pytest.mark.parametrize("campaign", model.shipped(), ids=lambda c: c.name)
def test_the_small_size_takes_a_quarter_of_an_hour_at_most(campaign: Campaign) -> None:
    assert catalogue.cost(campaign, campaign.small).seconds < 15 * 60


def test_the_overlay_study_in_full_is_that_of_the_paper() -> None:
    plan = {c.name: c for c in model.shipped()}["e1"].plan(full=True)
    cells = plan.cells()
    assert plan.stop.repetitions == 30
    assert (plan.settings.duration, plan.settings.threads, plan.settings.buffer, plan.settings.message) == (
        30.0,
        10,
        262144,
        57344,
    )
    assert {c["machines"] for c in cells} == {2, 4, 8}
    across = [c for c in cells if c["placement"] == "cross-node" and c["protocol"] == "udp"]
    assert {c["rate"] for c in across} == {"100Mbit", "150Mbit", "200Mbit"}
    assert {c["direction"] for c in across} == {"one-way"}, (
        "at full speed, or both ways, it floods the network"
    )


def test_topologies_of_campaigns_do_not_collide() -> None:
    wanted = {c.topology for c in model.shipped()}
    topologies = [vigia_config.parse(t, bed.topology_text(t, None), Topology) for t in wanted]
    assert len({t.name for t in topologies}) == len({t.agents for t in topologies}) == len(wanted)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: 1", "version: 2", "mine.yaml:1: version"),
        ("name: mine", "name: Mine!", "mine.yaml:2: name"),
        ("study: overlays", "study: magic", "mine.yaml:5: study"),
        ("stop: {repetitions: 5}", "stop: {repetitions: 0}", "mine.yaml:10: small.stop.repetitions"),
        (
            "stop: {repetitions: 5}",
            "stop: {repetitions: 5, until: 0.05}",
            "until and metric belong together; write both",
        ),
        (
            "stop: {repetitions: 5}",
            "stop: {repetitions: 5, until: 0.05, metric: rtt, minimum: 9}",
            "is more than repetitions; write at most repetitions",
        ),
        ("machines: [2]", "machines: []", "machines: has no levels; write at least one"),
        ("machines: [2]", "machines: [2, 2]", "machines: has a level twice"),
        ("  stop:", "  settings: {duration: 3}\n  stop:", "is not a duration; write for example 500ms"),
        ("  stop:", "  extra: 1\n  stop:", 'unknown key "extra"; known here: designs, settings, stop'),
    ],
)
def test_mistakes_are_named(written: Callable[[str], Path], old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(ConfigError) as e:
        model.load(written(SMALL.replace(old, new)))
    assert message in str(e.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "rate: [unlimited]",
            "speed: [unlimited]",
            "the factor rate is missing; overlays has path, placement",
        ),
        ("rate: [unlimited]", "rate: [unlimited], colour: [red]", "the factor colour is unknown"),
        ("protocol: [tcp]", "protocol: [sctp]", '"sctp" is no level of protocol; write one of tcp, udp'),
    ],
)
def test_a_campaign_that_does_not_fit_its_study(
    written: Callable[[str], Path], old: str, new: str, message: str
) -> None:
    campaign = model.load(written(SMALL.replace(old, new)))
    with pytest.raises(VigiaError, match=message.split(";")[0].replace("(", r"\(")):
        catalogue.check(campaign, campaign.small)


def test_a_campaign_is_found_by_name_or_file(written: Callable[[str], Path]) -> None:
    assert model.find("e1")[0].name == "e1"
    assert model.find(str(written(SMALL)))[0].name == "mine"
    with pytest.raises(VigiaError, match='there is no campaign "e99"; write one of e1'):
        model.find("e99")
    with pytest.raises(VigiaError, match="has no full size; run it without --full"):
        model.load(written(SMALL)).plan(full=True)


def test_a_campaign_survives_its_manifest(written: Callable[[str], Path]) -> None:
    for campaign in (*model.shipped(), model.load(written(SMALL))):
        assert Campaign.model_validate(campaign.model_dump(mode="json")) == campaign
        assert (
            Campaign.model_validate(yaml.safe_load(yaml.safe_dump(campaign.model_dump(mode="json"))))
            == campaign
        )


def test_combinations_of_several_designs_are_made_once() -> None:
    one = Design(factors={"a": [1, 2], "b": ["x"]})
    assert list(one.cells()) == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    plan = model.Plan(
        designs=[one, Design(factors={"a": [2, 3], "b": ["x"]})], stop=model.Stop(repetitions=1)
    )
    assert [c["a"] for c in plan.cells()] == [1, 2, 3]


def test_a_block_holds_every_combination_once_in_an_order_of_its_own() -> None:
    cells = [{"a": i} for i in range(30)]
    runs = list(schedule.runs(cells, 4, seed=7))
    assert [r.number for r in runs] == list(range(120))
    blocks = [[r.cell for r in runs if r.block == b] for b in range(4)]
    assert all(sorted(b) == list(range(30)) for b in blocks)
    assert len({tuple(b) for b in blocks}) == 4, "the same order in every block would confound it with time"
    assert list(schedule.runs(cells, 4, seed=7)) == runs
    assert list(schedule.runs(cells, 4, seed=8)) != runs
    assert [r.cell for r in schedule.block(cells, 2, None)] == list(range(30))


CLIENT = {"kind": "iperf3-client", "address": "10.0.0.1", "port": 5201, "duration": 2}


def test_command_lines() -> None:
    tcp = jobs.adapter.validate_python(
        {**CLIENT, "threads": 10, "buffer": 262144, "message": 57344, "warm_up": 1.5}
    )
    words = " ".join(jobs.argv(tcp, "/bin/probe", "python"))
    assert words == (
        "iperf3 --client 10.0.0.1 --port 5201 --json --connect-timeout 10000 --time 2 --parallel 10 "
        "--omit 2 --window 262144 --length 57344"
    )
    udp = jobs.adapter.validate_python(
        {**CLIENT, "protocol": "udp", "rate": 100_000_000, "threads": 10, "both_ways": True}
    )
    assert "--udp --bitrate 10000000 --bidir" in " ".join(jobs.argv(udp, "", "")), (
        "iperf3 counts the rate per stream"
    )
    probe = jobs.Probe(source="10.0.0.2", address="10.0.0.1", count=5, interval=0.0005)
    assert jobs.argv(probe, "/bin/probe", "")[:2] == ["/bin/probe", "once"]
    assert "500us" in jobs.argv(probe, "/bin/probe", "")


@pytest.mark.parametrize(
    "given",
    [
        {**CLIENT, "address": "10.0.0.1; reboot"},
        {**CLIENT, "port": 22},
        {**CLIENT, "duration": 100_000},
        {**CLIENT, "netns": "../../proc/1/ns/net"},
        {**CLIENT, "netns": "-x"},
        {**CLIENT, "extra": 1},
        {"kind": "shell", "command": "reboot"},
        {"kind": "ping", "source": "10.0.0.1", "address": "10.0.0.2", "count": 10**9},
    ],
)
def test_a_job_is_data_within_bounds(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        jobs.adapter.validate_python(given)
