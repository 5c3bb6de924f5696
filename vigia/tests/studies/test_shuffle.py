"""E5's job among competitors: the job itself, its bed, its campaign, its report."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from labkit import ROOT, invoke_vigia

from vigia.campaign import folder
from vigia.campaign.model import Campaign, Settings, Size
from vigia.host import netns
from vigia.isolation import shuffle as jobs
from vigia.isolation import testbed
from vigia.isolation.model import IsolationPlan, Mode, ShuffleJob, TrafficFlow
from vigia.isolation.shuffle import ShuffleOrder
from vigia.isolation.testbed import IsolationTestbed
from vigia.report.data import Data, Repetition
from vigia.report.document import Document
from vigia.studies import catalogue
from vigia.studies.shuffle import report
from vigia.studies.shuffle.measurement import MEASUREMENT

ENFORCER = ROOT / "bin" / "vigia-enforcer"
SHARES = {"job": 0.5, "other": 0.5}


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e5-b"]
    return found


@pytest.mark.parametrize("size", ["standard", "full"])
def test_the_campaign_has_every_control_guarantee_and_competitor(size: Size) -> None:
    plan, full = campaign().plan(size), size == "full"
    catalogue.check(campaign(), plan, MEASUREMENT)
    cells = plan.cells()
    assert len(cells) == (39 if full else 27)
    assert (plan.settings.hosts, plan.settings.queue) == ((26, 160) if full else (8, 160))
    for against in ("tcp-10", "udp-1"):
        assert {c["control"]: c for c in cells if c["against"] == against}.keys() == {m.value for m in Mode}
        for control in ("rigid", "borrowing", "paper", "vigia"):
            here = [c["guarantee"] for c in cells if c["control"] == control and c["against"] == against]
            assert here == ([25, 50, 75] if full else [25, 75])
    assert {"control": "none", "guarantee": 50, "against": "none"} in cells


def test_a_study_says_to_what_it_is_scaled() -> None:
    text = MEASUREMENT.scale(campaign().plan("full").settings)
    assert "26 hosts, links of 5 Mbit/s (1 Gbit/s in the study)" in text
    shown = invoke_vigia("campaign", "show", "e5-b")
    assert "8 hosts, links of 20 Mbit/s (1 Gbit/s in the study)" in shown.stdout


def test_a_job_takes_several_times_what_its_start_does() -> None:
    """At any guarantee, or no guarantee would bind: connections and stragglers take one or two seconds."""
    for size in ("standard", "full"):
        s = campaign().plan(size).settings  # type: ignore[arg-type]
        most = s.partition * (s.hosts - 1) / (0.95 * 0.75 * s.limit)
        assert most > 5.0, size
        assert s.duration > 5 * s.partition * (s.hosts - 1) / (0.95 * 0.25 * s.limit), (
            "and is given up long after"
        )


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What sends and receives has started when the job begins, on a busy machine as well."""
    monkeypatch.setattr(testbed, "_LEAD", 10.0)


def test_every_machine_fetches_from_every_other(root: None, unhurried: None) -> None:
    """For seconds: within a tenth of one a competitor may have had no processor."""
    with IsolationTestbed(IsolationPlan(Mode.NONE, SHARES, hosts=4), ENFORCER) as bed:
        own = bed.fabric.removesuffix("f")
        assert netns.names(own)
        outcome = bed.run_job(
            ShuffleJob("job", 500_000, 300.0),
            [TrafficFlow("other", 1, 2), TrafficFlow("other", 3, 4, "udp")],
        )
        assert outcome.seconds is not None
        assert outcome.seconds > 0
        assert outcome.fetched == 1.0
        assert outcome.goodput == pytest.approx(8 * 3 * 500_000 / outcome.seconds)
        assert len(outcome.competitors) == 2
        assert all(rate > 0 for rate in outcome.competitors)
    assert netns.names(own) == []


def test_a_job_that_takes_too_long_is_given_up(root: None, unhurried: None) -> None:
    with IsolationTestbed(IsolationPlan(Mode.NONE, SHARES, hosts=2, link=5_000_000), ENFORCER) as bed:
        outcome = bed.run_job(ShuffleJob("job", 50_000_000, 10.0), [])
        assert outcome.seconds is None
        assert 0 < outcome.fetched < 1


def test_an_order_survives_its_way_to_the_job() -> None:
    order = ShuffleOrder([("a", "10.0.0.1")], 5, 1, 6900, 1.0, 2.0)
    assert ShuffleOrder(**json.loads(jobs.encode(order))) == ShuffleOrder(
        [["a", "10.0.0.1"]], 5, 1, 6900, 1.0, 2.0
    )  # type: ignore[list-item]


def test_one_repetition_in_a_real_campaign(root: None, unhurried: None, tmp_path: Path) -> None:
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
                "smoke": {
                    "designs": [{"factors": f} for f in factors],
                    "stop": {"repetitions": 1},
                    "settings": {"duration": "60s", "limit": "5Mbit", "hosts": 4, "partition": 50000},
                },
            }
        )
    )  # fmt: skip
    out = tmp_path / "c"
    done = invoke_vigia(
        "campaign", "run", str(tmp_path / "tiny.yaml"), "--size", "smoke", "--directory", str(out)
    )
    assert done.status == 0, done.stderr
    f = folder.latest(out, "tiny-e5-b")
    assert [(r.status, r.reason) for r in f.records] == [("done", "")] * 3
    metrics = {(r["metric"], r["factor_control"], r["factor_against"]) for r in f.samples().to_pylist()}
    assert ("job", "vigia", "udp-1") in metrics
    assert ("share_other", "none", "udp-1") in metrics
    assert ("share_other", "none", "none") not in metrics
    said = invoke_vigia("campaign", "report", str(f.path), "--no-pdf")
    assert said.status == 0, said.stderr
    assert "lone the job takes " in said.stdout
    page = (f.path / "report.html").read_text()
    assert "4 hosts, links of 5 Mbit/s (1 Gbit/s in the study)" in page
    assert "Published: 26 hosts" in page


def repetitions(
    control: str,
    against: str,
    took: float,
    *,
    guarantee: int = 50,
    share: float = 0.9,
    given_up: int = 0,
    times: int = 12,
) -> list[Repetition]:
    """Jobs that took so long, of which some were given up."""
    rng = np.random.default_rng(len(control) + len(against) + guarantee)
    factors = {"control": control, "guarantee": guarantee, "against": against}
    made = []
    for block in range(times):
        late = block < given_up
        samples = {
            "job": np.array([math.nan if late else took * (1 + rng.uniform(-0.01, 0.01))]),
            "fetched": np.array([0.4 if late else 1.0]),
            "share_job": np.array([0.1 if late else share + rng.uniform(-0.01, 0.01)]),
            "share_other": np.array([0.9]),
        }
        made.append(Repetition(block, factors, samples, block))
    return made


def built(*some: list[Repetition]) -> Document:
    return report.build(campaign(), Data([r for one in some for r in one], {"job": "s"}))


def test_the_report_compares_with_the_job_alone_and_with_rigid_limits() -> None:
    document = built(
        repetitions("none", "none", 2.0),
        repetitions("none", "udp-1", 20.0),
        repetitions("rigid", "udp-1", 4.0),
        repetitions("vigia", "udp-1", 4.0),
        repetitions("borrowing", "udp-1", 8.0),
    )
    assert "Alone the job takes 2.00 s" in document.answer
    assert "without control it takes × 9.96 [" in document.answer
    assert "borrowing × 2.0" in document.answer
    assert document.answer.endswith("The guarantee binds: under rigid limits the job gets what it bought.")
    rows = {(row[0], row[2]): row for row in document.sections[0].tables[0].rows}
    assert rows[("udp-1", "vigia")][3:5] == ["12", "0"]
    assert rows[("udp-1", "vigia")][7].startswith("× 1.00 [")
    assert rows[("udp-1", "none")][1] == "–"
    assert rows[("udp-1", "none")][6].startswith("× 9.96 [")
    assert document.summary.agreement.startswith("agrees: 1 of 1 findings")


def test_a_job_that_was_given_up_has_no_mean() -> None:
    """The mean of those that were over in time would be that of the quick ones."""
    document = built(
        repetitions("none", "none", 2.0),
        repetitions("none", "tcp-10", 20.0, given_up=5),
        repetitions("rigid", "tcp-10", 4.0),
    )
    rows = {(row[0], row[2]): row for row in document.sections[0].tables[0].rows}
    assert rows[("tcp-10", "none")][4:6] == ["5, at 40.0 %", "–"]
    assert "without control 5 of 12 jobs were given up, so its time is not known" in document.answer
    assert any("How long 5 jobs would have taken" in line for line in document.summary.silent)


def test_a_guarantee_that_does_not_bind_is_said_first() -> None:
    document = built(
        repetitions("none", "none", 2.0),
        repetitions("rigid", "tcp-10", 4.0, share=0.45),
        repetitions("vigia", "tcp-10", 4.0),
    )
    assert "The guarantee does not bind: even under rigid limits the job gets 4" in document.answer
    assert document.summary.agreement.startswith("open: the guarantee did not bind here")
    assert document.summary.confidence == "none on the controls: the guarantee did not bind"


def test_too_few_jobs_compare_nothing() -> None:
    document = built(
        repetitions("none", "none", 2.0, times=3),
        repetitions("rigid", "tcp-10", 4.0, times=3),
        repetitions("paper", "tcp-10", 4.0, times=3),
    )
    assert "paper have too few repetitions to be compared with rigid limits" in document.answer
    assert "Whether the guarantee binds is open" in document.answer


def test_slowdown_by_neighbour_has_a_picture_with_the_published_one() -> None:
    document = built(repetitions("none", "none", 2.0), repetitions("none", "tcp-10", 4.0))
    times, slower = document.sections[0].figures
    assert times.caption.startswith("Time of the job, a dot for each repetition")
    assert ">published<" in slower.svg


def test_a_report_without_any_job_says_so() -> None:
    assert report.build(campaign(), Data([], {})).answer == "No repetition of the job succeeded."


def test_estimates_are_bounded_by_the_longest_time() -> None:
    settings = Settings.model_validate({"duration": "10s", "partition": 1 << 30, "limit": "5Mbit"})
    factors = {"control": "none", "guarantee": 25, "against": "udp-1"}
    assert MEASUREMENT.estimate(factors, settings).seconds < 20


def test_estimates_follow_what_the_job_can_have() -> None:
    settings = Settings.model_validate({"duration": "900s", "partition": 100_000, "limit": "5Mbit"})

    def cost(control: str, guarantee: int, against: str) -> float:
        cell = {"control": control, "guarantee": guarantee, "against": against}
        return MEASUREMENT.estimate(cell, settings).seconds

    assert cost("rigid", 25, "none") == cost("rigid", 25, "udp-1") > cost("rigid", 75, "udp-1")
    assert cost("vigia", 25, "none") < cost("vigia", 75, "udp-1") < cost("vigia", 25, "udp-1")
    assert cost("none", 50, "tcp-10") > 3 * cost("rigid", 75, "tcp-10"), "nobody keeps the others away"
