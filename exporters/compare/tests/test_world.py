"""Against a real Prometheus: the comparison says what the raw data say."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vigia_compare import cli
from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation, Ledger, evaluate, terms
from vigia_compare.facts import FAST, STEP, details
from vigia_compare.findings import EQUIVALENT, OPEN, Finding
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_compare.source import Memory, Source
from vigia_compare.windows import CLOCK, Grid
from vigia_prometheus import BadAnswer, Prometheus, Refused
from vigia_statistics.sequential import Scale
from vigia_testing import DEADLINE

from .costs import Cost, counting

RTT = Cell("rtt", "remote", "", "stamp-64")


def settings(world: Any, **more: Any) -> Config:
    return Config.model_validate({"prometheus": world.url, "window": "60s", "period": "2h", **more})


@pytest.fixture(scope="module")
def found(world: Any) -> Evaluation:
    config = settings(world)
    with Prometheus(world.url, DEADLINE) as prometheus:
        return evaluate(Source(prometheus), config, world.end + 20.0, Ledger(terms(config)))


def pairs(found: Evaluation, metric: str, kind: Kind) -> dict[tuple[str, str], Finding]:
    return {(f.a, f.b): f for f in found.findings if f.cell.metric == metric and f.kind is kind}


def test_windows_are_those_that_were_recorded(world: Any, found: Evaluation) -> None:
    shown = {p.path: p for p in found.paths if p.cell == RTT}
    assert set(shown) == set(world.medians)
    for path, summary in shown.items():
        assert summary.windows == 120
        assert summary.median.estimate == pytest.approx(np.median(world.medians[path]), rel=1e-6), path


def test_like_competes_with_like_alone(found: Evaluation) -> None:
    contests = {(f.a, f.b) for f in found.findings if f.kind is Kind.CONTEST and f.cell == RTT}
    assert contests == {("ovs-gre", "ovs-vxlan"), ("ovs-gre", "twin-vxlan"), ("ovs-vxlan", "twin-vxlan")}
    references = pairs(found, "rtt", Kind.REFERENCE)
    assert {b for _, b in references} == {"direct"} and {a for a, _ in references} == set(
        ["ipsec", "ovs-gre", "ovs-openflow", "ovs-vxlan", "twin-vxlan"]
    )
    elements = {(f.a, f.b, f.scale) for f in found.findings if f.kind is Kind.ELEMENT and f.cell == RTT}
    assert elements == {
        ("ipsec", "ovs-gre", Scale.DIFFERENCE),
        ("ovs-openflow", "ovs-gre", Scale.DIFFERENCE),
        ("ovs-openflow", "ovs-gre", Scale.RATIO),
    }


def test_verdicts_are_those_of_scipy_on_the_raw_samples(world: Any, found: Evaluation) -> None:
    for (a, b), said in pairs(found, "rtt", Kind.CONTEST).items():
        x, y = world.medians[a], world.medians[b]
        p = float(stats.wilcoxon(x - y).pvalue)
        assert said.ratio is not None and said.windows == 120 and said.hosts == 1
        lower, ratio, upper = said.ratio
        assert lower < float(np.exp(np.mean(np.log(x / y)))) < upper
        assert ratio == pytest.approx(float(np.median(x) / np.median(y)), rel=0.02)
        if {a, b} == {"ovs-vxlan", "twin-vxlan"}:
            assert p > 0.01 and said.verdict in (EQUIVALENT, OPEN)
        else:
            assert (
                p < 1e-6 and said.verdict == "ovs-gre" and said.e_value >= said.needed == pytest.approx(20.0)
            )
            assert world.end - 7200.0 < said.since < world.end and said.began == pytest.approx(
                world.end - 7200.0
            )
    for (a, b), cost in pairs(found, "rtt", Kind.REFERENCE).items():
        assert (b, cost.verdict, cost.better) == ("direct", "costs", "direct")
        lower, shift, upper = cost.shift
        raw = float(np.mean(world.medians[a] - world.medians[b]))
        assert lower < raw < upper and shift == pytest.approx(raw, rel=0.05), (a, b)


def test_the_winners_table(found: Evaluation) -> None:
    cells = {s.cell.metric: s for s in found.standings}
    rtt = cells["rtt"]
    assert (rtt.winner, rtt.said, rtt.paths[0], rtt.ranks[0]) == ("ovs-gre", "ovs-gre", "ovs-gre", 1)
    assert "direct" not in rtt.paths, "the underlay is no contestant"
    assert rtt.ranks[1:] == [2, 2]
    assert cells["loss"].winner == "ovs-gre", "the others lose every fiftieth probe"
    assert cells["tcp_throughput"].paths == ["ovs-gre", "ovs-vxlan"]
    assert all(s.decided == bool(s.winner or s.level) and 0.0 <= s.progress <= 1.0 for s in cells.values())


def test_a_gauge_that_repeats_its_last_run_counts_runs(found: Evaluation) -> None:
    ((_, pair),) = pairs(found, "tcp_throughput", Kind.CONTEST).items()
    assert pair.windows <= 13, "two hours of runs of ten minutes, however often they were scraped"
    assert (
        pair.ratio is not None and pair.ratio[1] == pytest.approx(1.1, rel=0.05) and pair.ahead == "ovs-gre"
    )


def test_no_loss_has_a_floor(found: Evaluation) -> None:
    floor = found.loss_floors[(Cell("loss", "remote", "", "stamp-64"), "direct")]
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
    config = settings(world, tenant="nobody")
    with Prometheus(world.url, DEADLINE) as prometheus:
        nothing = evaluate(Source(prometheus), config, world.end + 20.0, Ledger(terms(config)))
    assert not (nothing.findings or nothing.paths or nothing.standings)


def cost_of(source: Source, config: Config, at: float, cost: Cost, ledger: Ledger) -> tuple[Cost, Evaluation]:
    """Evaluate, and return what that alone cost."""
    cost.clear()
    evaluated = evaluate(source, config, at, ledger)
    return replace(cost, texts=list(cost.texts)), evaluated


def test_a_window_is_read_once_and_not_at_each_evaluation(world: Any) -> None:
    """Of 120 windows, and of the 60 of attribution, each further evaluation asks for the newest three."""
    config = Config(prometheus=world.url)
    ledger = Ledger(terms(config))
    ledger.book.fine_seen = world.end + 3600.0  # windows of seconds are a test of their own
    with counting(world.url) as (prometheus, cost):
        source = Source(prometheus, Memory())
        first, _ = cost_of(source, config, world.end - 300.0 + 20.0, cost, ledger)
        for minute in (4, 3, 2, 1):
            at = world.end - 60.0 * minute + 20.0
            later, _ = cost_of(source, config, at, cost, ledger)
            assert later.texts == first.texts, "the same questions about fewer windows"
            assert later.samples <= first.samples / 15.0, (later.samples, first.samples)
        again, _ = cost_of(source, config, at + 10.0, cost, ledger)
        clock, *steps = again.texts
        by_step = (*FAST.values(), *details(["n1", "n2"]).values())
        assert clock == CLOCK and set(steps) == {Grid(0.0, STEP, 1).question(t) for t in by_step}
        assert again.samples <= first.samples / 200.0, (
            "no window has ended since, but steps of five seconds have"
        )
        whole, _ = cost_of(Source(prometheus), config, at, cost, ledger)
    assert whole.samples == pytest.approx(first.samples, rel=0.1)
    assert first.questions <= 55, (
        "delay under load, what is taken on full links, packets that tenants offer, what a switch drops by itself, "
        "and switches that have no processor left, are six of them"
    )


def test_evidence_that_grew_by_the_window_is_that_of_one_look(world: Any) -> None:
    """And what was kept in between, as text, goes on where it was."""
    config = settings(world, period="30m")
    ledger = Ledger(terms(config))
    with Prometheus(world.url, DEADLINE) as prometheus:
        for minutes in (60, 45, 44, 43, 20, 0):
            at = world.end - 60.0 * minutes + 20.0
            grown = evaluate(Source(prometheus), config, at, ledger)
            ledger = Ledger.from_data(json.loads(json.dumps(ledger.as_data())), terms(config))
        long = settings(world, period="90m")
        once = evaluate(Source(prometheus), long, at, Ledger(terms(long)))
    assert grown.end == once.end
    for one, other in zip(grown.findings, once.findings, strict=True):
        assert (one.a, one.b, one.verdict, one.since, one.windows) == (
            other.a, other.b, other.verdict, other.since, other.windows
        ), one  # fmt: skip
        assert one.e_value == pytest.approx(other.e_value, rel=1e-6)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_report_prints_a_table_and_json(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("report", "--prometheus", world.url, "--since", "90m", "--metric", "rtt")
    code, out, _ = run(capsys, *asked)
    assert code == 0
    assert "rtt (lower is better), remote, stamp-64: ovs-gre" in out
    assert "winners" in out and "above the underlay" in out and "ovs-vxlan - twin-vxlan" in out
    assert "security esp" in out and "OpenFlow speed-up" in out and " us " not in out
    assert (
        "blue on n1: hurt by red on n1 from " in out
        and "its contract is 40.0 Mbit/s" in out
        and "pinned: vigia_port_drops_total queue_full" in out
    )
    code, out, _ = run(capsys, *asked, "--json")
    data = json.loads(out)
    assert code == 0 and data["version"] == 2
    (rtt,) = data["comparisons"]
    assert (rtt["winner"], rtt["decided"], rtt["machines"]) == ("ovs-gre", True, None)
    assert {p["verdict"] for p in rtt["pairs"] if p["kind"] == "contest"} >= {"ovs-gre"}


def test_the_past_is_what_was_recorded_then(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the data nothing was measured; in their first minutes little was known."""
    asked = ("report", "--prometheus", world.url, "--since", "30m", "--metric", "rtt", "--json")
    for at, windows in ((world.end - 7200.0 - 60.0, 0), (world.end - 7200.0 + 380.0, 6)):
        code, out, _ = run(capsys, *asked, "--at", f"{at:.0f}")
        pairs = [p for c in json.loads(out)["comparisons"] for p in c["pairs"]]
        assert code == 0 and {p["windows"] for p in pairs} == ({windows} if windows else set())
    assert run(capsys, *asked, "--at", "3h")[0] == 0


@pytest.mark.parametrize("moment", ["soon", "2026-13-01", "9h9", "1h from now", "2126-01-01"])
def test_a_moment_that_is_none_is_named(moment: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "report", "--at", moment)
    assert code == 2 and f"--at {moment}: is not " in err and len(err.splitlines()) == 1


def test_without_a_service_the_command_line_says_so(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "report", "--prometheus", world.url)
    assert (code, out) == (1, "")
    assert (
        "has no verdict of vigia-compare at " in err
        and "write --since 1h" in err
        and len(err.splitlines()) == 1
    )


def test_paths_that_are_not_compared_are_no_good_end(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A condition that nobody can answer does not hold, and does not fail to hold either."""
    asked = ("report", "--prometheus", world.url, "--since", "90m", "--metric", "rtt")
    code, _, err = run(capsys, *asked, "--fail-if", "ipsec:ovs-vxlan")
    assert code == 1 and "--fail-if ipsec:ovs-vxlan: these two are not compared" in err


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
        (["--since", "20s"], "--since: 20s is shorter than 5 windows of 60s; write at least 5m"),
        (
            ["--since", "10m", "--against", "1d"],
            "--since: 600s is shorter than 12 windows of 60s; write at least 12m",
        ),
        (["--window", "1m"], "--window: goes with --since or --against"),
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
    with Prometheus(world.url, DEADLINE) as one, pytest.raises(Refused, match=r"refuses rate\(x"):
        Source(one).windows("rate(x", Grid.before(time.time(), 60, 600))
    with Prometheus(world.url + "/nowhere") as one, pytest.raises(BadAnswer, match="without a result"):
        Source(one).last_recorded(time.time())
