"""E5's job among competitors: the job itself, its bed, its campaign, its report."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from labkit import ROOT, invoke_vigia

from vigia.campaign import folder
from vigia.campaign.model import Campaign, Settings
from vigia.host import netns
from vigia.isolation import shuffle as jobs
from vigia.isolation.model import IsolationPlan, Mode, ShuffleJob, TrafficFlow
from vigia.isolation.shuffle import ShuffleOrder
from vigia.isolation.testbed import IsolationTestbed
from vigia.report.data import Data, Repetition
from vigia.studies import catalogue
from vigia.studies.shuffle import report
from vigia.studies.shuffle.measurement import MEASUREMENT

ENFORCER = ROOT / "bin" / "vigia-enforcer"
SHARES = {"job": 0.5, "other": 0.5}


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e5-b"]
    return found


@pytest.mark.parametrize("full", [False, True])
def test_the_campaign_has_every_control_guarantee_and_competitor(full: bool) -> None:
    plan = campaign().plan(full)
    catalogue.check(campaign(), plan, MEASUREMENT)
    cells = plan.cells()
    assert len(cells) == (39 if full else 19)
    assert plan.settings.hosts == 26
    for against in ("tcp-10", "udp-1"):
        assert {c["control"]: c for c in cells if c["against"] == against}.keys() == {m.value for m in Mode}
        for control in ("rigid", "borrowing", "paper", "vigia"):
            here = [c["guarantee"] for c in cells if c["control"] == control and c["against"] == against]
            assert here == ([25, 50, 75] if full else [25, 75])
    assert {"control": "none", "guarantee": 50, "against": "none"} in cells


def test_the_small_size_fits_a_quarter_of_an_hour_with_something_to_spare() -> None:
    assert catalogue.cost(campaign().plan(False), MEASUREMENT).seconds <= 12 * 60


def test_a_study_says_to_what_it_is_scaled() -> None:
    text = MEASUREMENT.scale(campaign().plan(False).settings)
    assert "26 hosts, links of 5 Mbit/s (1 Gbit/s in the study)" in text
    shown = invoke_vigia("campaign", "show", "e5-b")
    assert "links of 5 Mbit/s (1 Gbit/s in the study)" in shown.stdout


def test_every_machine_fetches_from_every_other(root: None) -> None:
    before = set(netns.names("vigia-i"))
    with IsolationTestbed(IsolationPlan(Mode.NONE, SHARES, hosts=4), ENFORCER) as bed:
        outcome = bed.run_job(
            ShuffleJob("job", 30_000, 60.0), [TrafficFlow("other", 1, 2), TrafficFlow("other", 3, 4, "udp")]
        )
        assert outcome.seconds is not None
        assert outcome.seconds > 0
        assert outcome.fetched == 1.0
        assert outcome.goodput == pytest.approx(8 * 3 * 30_000 / outcome.seconds)
        assert len(outcome.competitors) == 2
        assert all(rate > 0 for rate in outcome.competitors)
    assert set(netns.names("vigia-i")) <= before


def test_a_job_that_takes_too_long_is_given_up(root: None) -> None:
    with IsolationTestbed(IsolationPlan(Mode.NONE, SHARES, hosts=2, link=5_000_000), ENFORCER) as bed:
        outcome = bed.run_job(ShuffleJob("job", 50_000_000, 1.0), [])
        assert outcome.seconds is None
        assert 0 < outcome.fetched < 1


def test_an_order_survives_its_way_to_the_job() -> None:
    order = ShuffleOrder([("a", "10.0.0.1")], 5, 1, 6900, 1.0, 2.0)
    assert ShuffleOrder(**json.loads(jobs.encode(order))) == ShuffleOrder(
        [["a", "10.0.0.1"]], 5, 1, 6900, 1.0, 2.0
    )  # type: ignore[list-item]


def test_one_repetition_in_a_real_campaign(root: None, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(
        json.dumps(
            {
                "version": 1, "name": "te5b", "agents": "127.96.0.0/24", "stack_address": "127.96.0.250",
                "tenants": [],
                "links": [{"name": "lb", "nodes": ["lb1", "lb2"], "rate": "1Gbit", "queue": "10ms"}],
                "nodes": [
                    {"name": "lb1", "switch": "linuxbridge", "underlay": "10.99.1.1/24"},
                    {"name": "lb2", "switch": "linuxbridge", "underlay": "10.99.1.2/24"},
                ],
                "paths": [{"name": "direct", "kind": "direct"}],
            }
        )
    )  # fmt: skip
    factors = [
        {"control": ["none"], "guarantee": [50], "against": ["none", "udp-1"]},
        {"control": ["vigia"], "guarantee": [50], "against": ["udp-1"]},
    ]
    (tmp_path / "tiny.yaml").write_text(
        json.dumps(
            {
                "version": 1, "name": "tiny-e5-b", "title": "Tiny", "question": "Does it work?",
                "study": "shuffle", "topology": "lab.yaml",
                "small": {
                    "designs": [{"factors": f} for f in factors],
                    "stop": {"repetitions": 1},
                    "settings": {"duration": "60s", "limit": "5Mbit", "hosts": 4, "partition": 50000},
                },
            }
        )
    )  # fmt: skip
    out = tmp_path / "c"
    done = invoke_vigia("campaign", "run", str(tmp_path / "tiny.yaml"), "--directory", str(out))
    assert done.status == 0, done.stderr
    f = folder.latest(out, "tiny-e5-b")
    assert [(r.status, r.reason) for r in f.records] == [("done", "")] * 3
    metrics = {(r["metric"], r["factor_control"], r["factor_against"]) for r in f.samples().to_pylist()}
    assert ("job", "vigia", "udp-1") in metrics
    assert ("share_other", "none", "udp-1") in metrics
    assert ("share_other", "none", "none") not in metrics
    said = invoke_vigia("campaign", "report", str(f.path), "--no-pdf")
    assert said.status == 0, said.stderr
    assert said.stdout.startswith("Alone the job takes ")
    page = (f.path / "report.html").read_text()
    assert "4 hosts, links of 5 Mbit/s (1 Gbit/s in the study)" in page
    assert "Published: 26 hosts" in page


def repetition(run: int, control: str, against: str, took: float, guarantee: int = 50) -> Repetition:
    samples = {
        "job": np.array([took]),
        "fetched": np.array([0.4 if math.isnan(took) else 1.0]),
        "share_job": np.array([0.1 if math.isnan(took) else 1 / took]),
        "share_other": np.array([0.9]),
    }
    return Repetition(run, {"control": control, "guarantee": guarantee, "against": against}, samples)


def test_the_report_compares_with_the_job_alone_and_with_rigid_limits() -> None:
    data = Data(
        [
            repetition(0, "none", "none", 2.0),
            repetition(1, "none", "udp-1", 20.0),
            repetition(2, "rigid", "udp-1", 4.0),
            repetition(3, "vigia", "udp-1", 3.0),
            repetition(4, "vigia", "udp-1", 5.0),
            repetition(5, "borrowing", "udp-1", math.nan),
        ],
        {"job": "s"},
    )
    document = report.build(campaign(), data)
    assert "Alone the job takes 2.00 s" in document.answer
    assert "it is 10.0 times as long without control" in document.answer
    assert "vigia 1.00 to 1.00" in document.answer
    assert "not over in time" in document.answer
    (table, _) = document.sections[0].tables
    rows = {(row[0], row[2]): row for row in table.rows}
    assert rows[("udp-1", "borrowing")][4] == "given up, 40.0 % done"
    assert rows[("udp-1", "vigia")][3] == "2"
    assert rows[("udp-1", "vigia")][6] == "1.00"
    assert rows[("udp-1", "none")][1] == "–"


def test_a_report_without_any_job_says_so() -> None:
    assert report.build(campaign(), Data([], {})).answer == "No repetition of the job succeeded."


def test_estimates_are_bounded_by_the_longest_time() -> None:
    settings = Settings.model_validate({"duration": "10s", "partition": 1 << 30, "limit": "5Mbit"})
    factors = {"control": "none", "guarantee": 25, "against": "udp-1"}
    assert MEASUREMENT.estimate(factors, settings).seconds < 20
