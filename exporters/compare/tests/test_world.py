"""Against a real Prometheus: the comparison says what the raw data say."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vigia_compare import cli, engine, report
from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation, evaluate
from vigia_compare.facts import FAST, STEP, details
from vigia_compare.measures import MEASURES
from vigia_compare.source import Memory, Source
from vigia_compare.windows import CLOCK, Grid
from vigia_prometheus import BadAnswer, Prometheus, Refused
from vigia_statistics import Verdict

from .costs import Cost, counting


@pytest.fixture(scope="module")
def found(world: Any) -> Evaluation:
    config = Config(prometheus=world.url, window="60s", period="2h")  # type: ignore[arg-type]
    with Prometheus(world.url) as prometheus:
        return evaluate(Source(prometheus), config, world.end + 20.0)


def group(found: Evaluation, metric: str) -> engine.Group:
    (one,) = [g for g in found.groups if g.measure.name == metric]
    return one


def test_windows_are_those_that_were_recorded(world: Any, found: Evaluation) -> None:
    for summary in group(found, "rtt").paths:
        assert summary.windows == 120
        assert summary.values == pytest.approx(world.medians[summary.path], rel=1e-6), summary.path


def test_every_verdict_is_that_of_scipy_on_the_raw_samples(world: Any, found: Evaluation) -> None:
    pairs = {(c.a, c.b): c for c in group(found, "rtt").pairs}
    assert len(pairs) == 15
    for a, b in combinations(sorted(world.medians), 2):
        x, y = world.medians[a], world.medians[b]
        p = float(stats.mannwhitneyu(x, y).pvalue)
        shift = float(np.median(np.subtract.outer(x, y)))
        said = pairs[(a, b)]
        if {a, b} == {"ovs-vxlan", "twin-vxlan"}:
            assert p > 0.01
            assert said.verdict is Verdict.TIE
        else:
            assert p * 15 < 1e-6
            assert said.verdict is (Verdict.A if shift < 0 else Verdict.B)
        assert said.shift == pytest.approx(shift, abs=0.1e-6)


def test_the_winner_needs_to_beat_all(found: Evaluation) -> None:
    assert group(found, "rtt").winner == "direct"
    assert group(found, "rtt").placement == "remote"
    loss = group(found, "loss")
    assert loss.winner is None and loss.enough_data, "four paths lose nothing"
    verdicts = {(c.a, c.b): c.verdict for c in loss.pairs}
    assert verdicts[("direct", "ovs-vxlan")] is Verdict.A
    assert verdicts[("ovs-vxlan", "twin-vxlan")] is Verdict.TIE
    assert verdicts[("direct", "ipsec")] is Verdict.TIE


def test_a_gauge_that_repeats_its_last_run_counts_runs(found: Evaluation) -> None:
    throughput = group(found, "tcp_throughput")
    assert throughput.winner == "ovs-gre"
    (pair,) = throughput.pairs
    assert pair.samples_a == 13, "two hours of runs of ten minutes, however often they were scraped"
    assert pair.verdict is Verdict.A


def test_no_loss_has_a_floor(found: Evaluation) -> None:
    assert found.loss_floors is not None
    floor = found.loss_floors[("remote", "stamp-64", "direct")]
    assert floor == pytest.approx(3.0 / 48_000, rel=0.02)


def test_elements_cost_half_the_shift(found: Evaluation) -> None:
    costs = {(c.element, c.without): c for c in found.costs}
    ipsec = costs[("security esp", "ovs-gre")]
    assert ipsec.estimate == pytest.approx(10e-6, rel=0.1)
    assert ipsec.lower < ipsec.estimate < ipsec.upper
    assert ipsec.rate == pytest.approx(1e5, rel=0.1)
    assert costs[("overlay ovs-vxlan", "direct")].estimate == pytest.approx(8e-6, rel=0.1)
    assert ("security esp", "ovs-openflow") not in costs, "those two differ in more than one thing"


def test_openflow_speedup_is_normal_over_openflow(found: Evaluation) -> None:
    (speedup,) = found.speedups
    assert (speedup.path, speedup.baseline) == ("ovs-openflow", "ovs-gre")
    assert speedup.ratio == pytest.approx(30 / 45, rel=0.03)
    assert speedup.lower < speedup.ratio < speedup.upper


def test_the_flooder_is_named_and_the_bystander_is_not(found: Evaluation) -> None:
    (blue,) = found.interference
    assert (blue.node, blue.tenant, blue.measure) == ("n1", "blue", "loss")
    offender = blue.offender()
    assert offender is not None and offender.name == "red", "statistics say what is known as well"
    assert blue.known is not None and blue.verdict() == ("attributed", "red")
    assert {c.kind for c in blue.known.clues} == {"flood", "contract", "saturation", "coincidence"}
    assert blue.known.end - blue.known.begin == pytest.approx(90.0, abs=10.0), "the last flood of the hour"
    assert offender.share > 0.5
    others = {c.name: c for c in blue.offenders}
    assert set(others) == {"red", "green"}
    assert others["green"].share < 0.1


def test_loss_is_pinned_to_the_counter_that_counted_with_it(world: Any, found: Evaluation) -> None:
    blue = next(p for p in found.losses if p.tenant == "blue")
    assert blue.verdict == "pinned"
    best, other = blue.counters
    assert (best.node, best.name, best.detail) == ("n1", "vigia_port_drops_total", "queue_full")
    assert blue.lost == pytest.approx(world.lost)
    assert best.packets == pytest.approx(world.dropped)
    assert other.detail == "policed" and other.p_value > 0.05


def test_a_tenant_that_is_not_there_has_nothing(world: Any) -> None:
    config = Config(prometheus=world.url, tenant="nobody", window="60s", period="2h")  # type: ignore[arg-type]
    with Prometheus(world.url) as prometheus:
        assert evaluate(Source(prometheus), config, world.end + 20.0).groups == []


def test_few_windows_are_not_enough(world: Any) -> None:
    grid = Grid.before(world.end, 60.0, 300.0)
    with Prometheus(world.url) as prometheus:
        known = engine.attributes(Source(prometheus), grid)
        (few,) = engine.compare_measure(Source(prometheus), MEASURES["rtt"], "_infra", grid, known, 12, 0.95)
    assert not few.enough_data
    assert few.winner is None
    assert {c.verdict for c in few.pairs} == {Verdict.NOT_ENOUGH_DATA}


def cost_of(source: Source, config: Config, at: float, cost: Cost) -> tuple[Cost, Evaluation]:
    """Evaluate, and return what that alone cost."""
    cost.clear()
    evaluated = evaluate(source, config, at)
    return replace(cost, texts=list(cost.texts)), evaluated


def test_a_window_is_read_once_and_not_at_each_evaluation(world: Any) -> None:
    """Of 120 windows, and of the 60 of attribution, each further evaluation asks for the newest three."""
    config = Config(prometheus=world.url)
    with counting(world.url) as (prometheus, cost):
        source = Source(prometheus, Memory())
        first, _ = cost_of(source, config, world.end - 300.0 + 20.0, cost)
        for minute in (4, 3, 2, 1):
            at = world.end - 60.0 * minute + 20.0
            later, incremental = cost_of(source, config, at, cost)
            assert later.texts == first.texts, "the same questions about fewer windows"
            assert later.samples <= first.samples / 15.0, (later.samples, first.samples)
        again, _ = cost_of(source, config, at + 10.0, cost)
        clock, *steps = again.texts
        by_step = (*FAST.values(), *details(["n1", "n2"]).values())
        assert clock == CLOCK and set(steps) == {Grid(0.0, STEP, 1).question(t) for t in by_step}
        assert again.samples <= first.samples / 200.0, (
            "no window has ended since, but steps of five seconds have"
        )
        whole, direct = cost_of(Source(prometheus), config, at, cost)
    assert whole.samples == pytest.approx(first.samples, rel=0.1)
    assert report.as_json(incremental) == report.as_json(direct)
    assert first.questions <= 50


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_report_prints_a_table_and_json(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("report", "--prometheus", world.url, "--since", "90m", "--window", "1m", "--metric", "rtt")
    code, out, _ = run(capsys, *asked)
    assert code == 0
    assert "rtt (lower is better), remote, stamp-64: direct" in out
    assert "ovs-vxlan - twin-vxlan" in out and "tie" in out
    assert "security esp" in out and "OpenFlow speed-up" in out
    assert (
        "blue on n1: hurt by red on n1 from " in out
        and "its contract is 40.0 Mbit/s" in out
        and "pinned: vigia_port_drops_total queue_full" in out
    )
    code, out, _ = run(capsys, *asked, "--json")
    data = json.loads(out)
    assert code == 0 and data["version"] == 1
    assert data["comparisons"][0]["winner"] == "direct"
    assert {p["verdict"] for p in data["comparisons"][0]["pairs"]} >= {"direct", "ovs-gre", "tie"}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("ovs-vxlan:ovs-gre", 3), ("ovs-gre:ovs-vxlan", 0), ("ovs-vxlan:twin-vxlan", 0)],
)
def test_fail_if_is_an_exit_code(
    world: Any, capsys: pytest.CaptureFixture[str], condition: str, expected: int
) -> None:
    code, _, err = run(
        capsys,
        "report",
        "--prometheus",
        world.url,
        "--since",
        "90m",
        "--window",
        "1m",
        "--metric",
        "rtt",
        "--fail-if",
        condition,
    )
    assert code == expected
    assert bool(err) == bool(expected)


def test_against_the_past(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (
        "report",
        "--prometheus",
        world.url,
        "--since",
        "30m",
        "--window",
        "1m",
        "--metric",
        "rtt",
        "--against",
        "1h",
    )
    code, out, _ = run(capsys, *asked, "--fail-if", "worse", "--json")
    assert code == 0, "nothing changed in the hour"
    assert {c["path"]: c["verdict"] for c in json.loads(out)["changes"]}["ipsec"] == "tie"
    code, out, _ = run(capsys, *asked)
    assert "rtt ipsec stamp-64:" in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--fail-if", "nonsense"], "--fail-if nonsense: is no condition here; write A:B with two paths"),
        (["--fail-if", "a:b", "--against", "1d"], "with --against write worse"),
        (["--since", "soon"], "--since soon: is not a duration; write for example 30s, 15m, 1h or 1d"),
        (["--since", "20s"], "--since: 20s is shorter than 12 windows of 60s; write at least 12m"),
        (["--tenant", 'x"} or up{'], "--tenant: is not a tenant"),
        (["--prometheus", "ftp://x"], "--prometheus: is not the URL of a Prometheus server"),
    ],
)
def test_bad_options_are_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    code, out, err = run(capsys, "report", *arguments)
    assert (code, out) == (2, "")
    assert problem in err and len(err.splitlines()) == 1


def test_refusals_and_silence_are_one_line(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "report", "--prometheus", "http://127.0.0.1:1")
    assert code == 1 and "does not answer" in err and len(err.splitlines()) == 1
    with Prometheus(world.url) as one, pytest.raises(Refused, match=r"refuses rate\(x"):
        Source(one).windows("rate(x", Grid.before(time.time(), 60, 600))
    with Prometheus(world.url + "/nowhere") as one, pytest.raises(BadAnswer, match="without a result"):
        Source(one).last_recorded(time.time())
