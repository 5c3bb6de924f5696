"""From windows to words: the grid, groups, derived figures, changes, tables, JSON and series."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest
from prometheus_client import generate_latest

import vigia_json
from vigia_catalog import MAIN_PAGE, VERDICT_PAGE, part_metrics
from vigia_compare import derived, losses, regression, report
from vigia_compare.coincidence import Candidate
from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation
from vigia_compare.exposition import Metrics
from vigia_compare.interference import Interference
from vigia_compare.levels import Level
from vigia_compare.paths import Known, PathAttributes
from vigia_compare.readings import Cell
from vigia_compare.source import Source
from vigia_compare.windows import Grid
from vigia_prometheus import Prometheus
from vigia_statistics.samples import Floats
from vigia_statistics.sequential import Change
from vigia_text.terminal import width_of

from .made import BASE, END, HOSTS, evaluation_of, families, found_in, known, readings

RNG = np.random.default_rng(32)
CELL = Cell("rtt", "remote", "", "stamp-64")


# The grid


def test_a_grid_ends_where_the_rules_were_evaluated() -> None:
    grid = Grid.before(1234.567, 60.0, 600.0)
    assert (grid.end, grid.start, grid.count) == (1234.567, pytest.approx(694.567), 10)
    before = grid.earlier(86_400.0)
    assert (before.end, before.count) == (pytest.approx(1234.567 - 86_400.0), 10)
    assert grid.earlier(90.0).end in (1234.567 - 60.0, 1234.567 - 120.0), (
        "whole windows, so that they stay aligned"
    )


def test_windows_of_minutes_stay_where_they_are_while_time_goes_by() -> None:
    begun = 1_763_853_617.123
    ends = [Grid.before(begun + 60.0 * i, 180.0, 3600.0).end for i in range(9)]
    assert {round((end - begun) % 60.0, 3) for end in ends} <= {0.0, 60.0}
    assert len({round(end, 3) for end in ends}) == 4, "three evaluations, or a part of them, in each"
    assert all(0.0 <= begun + 60.0 * i - end < 179.9 for i, end in enumerate(ends))


def test_how_far_grids_lie_apart() -> None:
    grid = Grid.before(1234.567, 60.0, 600.0)
    later = Grid.before(1234.567 + 3 * 60.0, 60.0, 600.0)
    assert (later.steps_after(grid), grid.steps_after(grid), grid.steps_after(later)) == (3, 0, -3)
    for other in (
        Grid.before(1240.0, 60.0, 600.0),
        Grid.before(1234.567, 120.0, 1200.0),
        Grid.before(1234.567, 60.0, 660.0),
    ):
        assert other.steps_after(grid) is None


def _answer(kind: str, result: list[Any]) -> httpx.Response:
    body = {"status": "success", "data": {"resultType": kind, "result": result}}
    return httpx.Response(200, stream=httpx.ByteStream(json.dumps(body).encode()))


class Answers:
    """A server that answers every query with series of its choice, and remembers what it was asked."""

    def __init__(self, series: Sequence[tuple[Mapping[str, str], Sequence[tuple[float, str]]]]) -> None:
        self.series = series
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append({k: v[0] for k, v in parse_qs(request.content.decode()).items()})
        result = [{"metric": dict(m), "values": [list(p) for p in points]} for m, points in self.series]
        return _answer("matrix", result)

    def source(self) -> Source:
        return Source(Prometheus("http://made.test", transport=httpx.MockTransport(self)))


def test_values_stand_in_their_windows() -> None:
    grid = Grid.before(1234.0, 60.0, 300.0)
    points = [(grid.start, "1"), (grid.start + 60.2, "2"), (grid.start + 120.0, "NaN"), (grid.end - 60.0, "+Inf"),
              (grid.end, "5"), (grid.end + 60.0, "6"), (grid.start - 60.0, "7")]  # fmt: skip
    answers = Answers([({"path": "a"}, points)])
    (series,) = answers.source().windows("f(x[$within]) - f(x[$half] offset $window)", grid)
    assert series.labels == {"path": "a"}
    np.testing.assert_array_equal(series.values, [1.0, 2.0, np.nan, np.nan, 5.0])
    assert answers.asked == [
        {
            "query": "f(x[59999ms]) - f(x[30000ms] offset 60000ms)",
            "start": "994.000",
            "end": "1234.000",
            "step": "60.000",
            "nocache": "1",
        }
    ]


# What is derived from pairs


def derived_costs(
    paths: Mapping[str, Floats], **more: PathAttributes
) -> dict[tuple[str, str, str], derived.Cost]:
    of = known(more)
    return {
        (c.element, c.path, c.without): c for c in derived.costs(found_in(readings("rtt", paths), of=of), of)
    }


def test_an_element_costs_half_of_what_it_adds_to_the_round_trip() -> None:
    adds = {"gre": 0.0, "ipsec": 10e-6, "direct": -8e-6, "vxlan": 1e-6, "both": 20e-6}
    found = derived_costs({p: BASE + more for p, more in adds.items()})
    assert set(found) == {
        ("security esp", "ipsec", "gre"),
        ("overlay gre", "gre", "direct"),
        ("overlay vxlan", "vxlan", "direct"),
        ("mode openflow", "both", "ipsec"),
    }
    esp = found[("security esp", "ipsec", "gre")]
    assert esp.estimate == pytest.approx(5e-6, rel=0.1) and esp.lower <= esp.estimate <= esp.upper
    assert esp.rate == pytest.approx(2e5, rel=0.1)
    assert found[("overlay gre", "gre", "direct")].estimate == pytest.approx(4e-6, rel=0.1)


def test_a_cost_that_may_be_nothing_has_no_rate() -> None:
    (cost,) = derived_costs({"gre": BASE, "ipsec": BASE * RNG.lognormal(0.0, 0.01, 60)}).values()
    assert cost.lower <= 0.0 and cost.rate is None
    assert derived_costs({"gre": BASE, "strange": BASE + 1e-6}, strange=PathAttributes()) == {}


def test_a_speedup_is_a_ratio_of_paths_that_differ_in_their_mode_alone() -> None:
    paths = {"gre": BASE, "openflow": 1.5 * BASE, "both": 2.0 * BASE, "vxlan": BASE}
    (speedup,) = derived.speedups(found_in(readings("rtt", paths)), known())
    assert (speedup.path, speedup.baseline) == ("openflow", "gre")
    assert speedup.ratio == pytest.approx(1 / 1.5, rel=0.05)
    assert speedup.lower < speedup.ratio < speedup.upper


# Loss and counters


def test_the_counter_that_counted_with_the_losses_goes_first() -> None:
    lost = np.where(np.arange(120) % 20 < 2, 5.0, 0.0)
    near = {
        ("a", "vigia_port_drops_total", "queue_full"): 7.0 * lost,
        ("b", "vigia_port_drops_total", "policed"): np.where(np.arange(120) % 20 == 10, 9.0, 0.0),
    }
    found = losses.pin("a", "b", "gre", "red", lost, near)
    assert (found.lost, found.lossy_windows, found.known, found.verdict) == (60.0, 12, 120, "pinned")
    best, other = found.counters
    assert (best.node, best.detail, best.packets) == ("a", "queue_full", 420.0)
    assert best.coincidence == pytest.approx(1.0) and best.p_value <= 0.05
    assert (other.detail, other.packets) == ("policed", 0.0) and other.coincidence < 0.0


def test_nothing_is_asked_of_counters_while_nothing_is_lost() -> None:
    grid = Grid.before(1234.0, 60.0, 3600.0)
    answers = Answers([({"src": "a", "dst": "b", "path": "p", "tenant": "t"}, [(grid.end, "0.4")])])
    assert losses.find(answers.source(), grid, Known({}, {}, {})) == []
    assert len(answers.asked) == 1


# Against the past


class Past:
    """Round trips that are a factor of themselves since a time."""

    def __init__(self, since: float, **factors: float) -> None:
        self.since, self.factors = since, factors

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = {k: v[0] for k, v in parse_qs(request.content.decode()).items()}
        if request.url.path.endswith("/query"):
            return _answer("vector", [])
        if "vigia_path_info" in asked["query"]:
            return _answer("matrix", [])
        at = np.arange(float(asked["start"]), float(asked["end"]) + 1.0, float(asked["step"]))
        result = []
        for path, factor in self.factors.items():
            values = BASE[: at.size] * np.where(at >= self.since, factor, 1.0)
            points = [[float(t), repr(float(v))] for t, v in zip(at, values, strict=True)]
            result.append({"metric": {"path": path, "probe": "p", "src": "a", "dst": "b"}, "values": points})
        return _answer("matrix", result)


CONFIG = Config(metrics=["rtt"], window="60s", period="1h", prometheus="http://made.test")  # type: ignore[arg-type]


def test_what_got_worse_is_told_from_what_got_better_and_what_did_not() -> None:
    now = 1_800_000_000.0
    transport = httpx.MockTransport(Past(now - 4000.0, slower=1.5, faster=0.5, same=1.0))
    source = Source(Prometheus("http://made.test", transport=transport))
    found = regression.changes(source, CONFIG, now, 7200.0, 12)
    assert {c.path: c.said for c in found} == {"slower": "worse", "faster": "better", "same": "tie"}
    text = dict(line.split(": ", 1) for line in regression.as_text(found).splitlines())
    assert set(text) == {"rtt slower p", "rtt faster p", "rtt same p"}
    assert text["rtt slower p"].endswith("p <0.001: worse") and " µs -> " in text["rtt slower p"]
    data = {c["path"]: c for c in regression.as_json(found)["changes"]}
    assert data["slower"]["now"] == pytest.approx(1.5 * data["slower"]["before"], rel=1e-6)
    assert data["slower"]["shift"] > 0 > data["faster"]["shift"]
    assert regression.as_text([]) == "nothing to compare: no path has windows in both periods"


# Words and data


def evaluation() -> Evaluation:
    paths = {"gre": BASE, "vxlan": BASE + 10e-6, "direct": BASE / 2, "ipsec": BASE + 5e-6}
    rtt = readings("rtt", paths)
    found = evaluation_of(rtt, readings("loss", {"gre": np.zeros(60), "vxlan": np.zeros(60)}, sent=1.0))
    guilty = Candidate("red\x1b[31m", 0.75, 0.002)
    blue = Interference("n1", "blue", "loss", 7, None, [guilty], guilty, guilty)
    own = Interference("n1", "white", "delay", 5, Candidate("own", 0.5, 0.01), [], None, None)
    unclear = Interference("n2", "green", "loss", 3, None, [], None, None)
    counter = losses.Counter("n1", "vigia_port_drops_total", "queue_full", 0.9, 0.003, 420.0)
    return replace(
        found,
        levels=[Level(CELL, "gre", HOSTS, Change(END, END - 7200.0, True, 1.25))],
        loss_floors={(CELL, "gre"): 6.25e-5},
        costs=derived.costs(found.findings, known()),
        speedups=[derived.Speedup("openflow", "gre", CELL, 0.667, 0.65, 0.69)],
        interference=[blue, own, unclear],
        losses=[losses.Pinned("n1", "n2", "gre", "blue", 1234.0, 7, [counter])],
    )


def test_an_evaluation_in_words() -> None:
    text = report.as_text(evaluation())
    lines = text.splitlines()
    assert lines[0] == "winners"
    assert lines[1].split() == ["metric", "placement", "machines", "probe", "best"]
    assert lines[2].split()[:6] == ["rtt", "remote", "–", "stamp-64", "gre", "by"]
    assert " µs over vxlan, holds since 2027-01-15 " in lines[2]
    assert lines[3].split()[:4] == ["loss", "remote", "–", "stamp-64"]
    assert "not known yet: neither gre nor vxlan is ahead, e = " in lines[3] and " of 20 needed" in lines[3]
    assert "rtt (lower is better), remote, stamp-64: gre by " in text
    assert "loss (lower is better), remote, stamp-64: not known yet: " in text
    (contest,) = [
        line for line in lines if line.startswith("  gre - vxlan") and line.split()[-2].startswith("20")
    ]
    assert " of 20 " in contest and contest.split()[-1].endswith("Z") and " % " in contest
    (cost,) = [line for line in lines if line.startswith("  gre - direct")]
    assert "+9.9" in cost and " µs " in cost and " costs " in cost
    since = "2027-01-15 06:00Z"
    assert f"rtt of gre n1 to n2 (stamp-64) is worse than usual since {since}: +25 %" in lines
    assert "blue on n1: 7 bad windows (loss); red\\x1b[31m explains 75.0 % of it (p 0.002)" in lines
    assert "white on n1: 5 bad windows (delay); its own traffic explains 50.0 % of it (p 0.010)" in lines
    assert "green on n2: 3 bad windows (loss); insufficient evidence who" in lines
    assert (
        lines[-1] == "gre n1 to n2 (blue): 1 234 probes lost in 7 windows; pinned: "
        "vigia_port_drops_total queue_full on n1"
    )
    assert "\x1b" not in text and " us " not in text
    assert report.as_text(Evaluation(at=0.0)) == "nothing is measured: no series of this tenant in the period"


def test_tables_fit_the_terminal() -> None:
    assert max(map(width_of, report.as_text(evaluation()).splitlines())) > 72
    table_lines = [line for line in report.as_text(evaluation(), 72).splitlines() if line.startswith("  ")]
    assert max(map(width_of, table_lines)) <= 72


def test_an_evaluation_as_data() -> None:
    data = vigia_json.loads(json.dumps(report.as_json(evaluation()), allow_nan=False))
    assert (data["version"], data["end"]) == (2, END)
    rtt, loss = data["comparisons"]
    assert (rtt["winner"], rtt["decided"], rtt["equivalent"], rtt["said"]) == ("gre", True, [], "gre")
    assert rtt["ranking"] == [{"path": "gre", "rank": 1}, {"path": "vxlan", "rank": 2}]
    assert (loss["winner"], loss["decided"]) == (None, False) and loss["said"].startswith("not known yet: ")
    pairs = {(p["a"], p["b"]): p for p in rtt["pairs"]}
    pair = pairs[("gre", "vxlan")]
    assert (pair["kind"], pair["verdict"], pair["windows"], pair["hosts"]) == ("contest", "gre", 60, 1)
    assert pair["ratio"][0] <= pair["ratio"][1] <= pair["ratio"][2] < 1.0
    assert pair["shift"][0] <= pair["shift"][1] <= pair["shift"][2] < 0.0
    assert pair["e_value"] >= pair["needed"] == 20.0 and pair["evidence_since"] < pair["since"] <= END
    assert (pairs[("gre", "direct")]["kind"], pairs[("gre", "direct")]["verdict"]) == ("reference", "costs")
    assert pairs[("gre", "direct")]["ratio"] is None
    (change,) = data["changes_of_level"]
    assert (change["path"], change["worse"], change["change"]) == ("gre", True, 1.25)
    assert data["minimum_detectable_loss"][0]["ratio"] == 6.25e-5
    assert (
        data["interference"][0]["offender"] == "red\x1b[31m"
        and data["interference"][1]["own"]["share"] == 0.5
    )
    assert data["losses"][0]["counters"][0]["packets"] == 420.0
    costs = {c["element"]: c["cost_seconds"][1] for c in data["elements"]}
    assert costs["overlay gre"] == pytest.approx(5e-6, rel=0.1)


@pytest.mark.parametrize("windows", [1, 2, 3, 5, 12])
def test_few_windows_are_data_all_the_same(windows: int) -> None:
    """JSON has no NaN and no infinity, whatever cannot be known yet."""
    paths = {"gre": BASE[:windows], "vxlan": BASE[:windows] + 10e-6, "direct": np.full(windows, 1e-6)}
    found = evaluation_of(readings("rtt", paths), readings("loss", {p: 0.0 * v for p, v in paths.items()}))
    data = vigia_json.loads(json.dumps(report.as_json(found), allow_nan=False))
    assert [p["windows"] for p in data["comparisons"][0]["paths"]] == [windows] * 3
    assert report.as_text(found) and not any(math.isnan(v) for s in exposed(found).values() for _, v in s)


def exposed(found: Evaluation | None) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    out: dict[str, list[Any]] = {}
    for family in families(found):
        for s in family.samples:
            out.setdefault(s.name, []).append((s.labels, s.value))
    return out


def test_an_evaluation_as_series() -> None:
    found = exposed(evaluation())
    declared = {m.name: set(m.labels) for m in part_metrics("compare")}
    for name, samples in found.items():
        assert all(set(labels) == declared[name] for labels, _ in samples), name
        assert len({tuple(sorted(labels.items())) for labels, _ in samples}) == len(samples), name
    winners = [(w["metric"], w["path"], w["tie"]) for w, _ in found["vigia_compare_winner"]]
    assert winners == [("rtt", "gre", "false")], "of loss nothing is known yet"
    decided = {w["metric"]: v for w, v in found["vigia_compare_decided"]}
    progress = {w["metric"]: v for w, v in found["vigia_compare_progress_ratio"]}
    assert decided == {"rtt": 1.0, "loss": 0.0} and progress["rtt"] == 1.0 > progress["loss"] >= 0.0
    ranks = {(w["metric"], w["path"]): v for w, v in found["vigia_compare_rank"]}
    assert (ranks[("rtt", "gre")], ranks[("rtt", "vxlan")], ranks[("loss", "vxlan")]) == (1.0, 2.0, 1.0)
    verdicts = {
        (w["metric"], w["a"], w["b"]): (w["kind"], w["verdict"]) for w, _ in found["vigia_compare_verdict"]
    }
    assert verdicts[("rtt", "gre", "vxlan")] == ("contest", "gre")
    assert verdicts[("rtt", "ipsec", "gre")] == ("element", "costs")
    assert verdicts[("loss", "gre", "vxlan")] == ("contest", "not known yet")
    shifts = {(w["a"], w["b"]): v for w, v in found["vigia_compare_shift_seconds"]}
    assert shifts[("gre", "vxlan")] == pytest.approx(-10e-6, rel=0.1)
    assert shifts[("gre", "direct")] == pytest.approx(10e-6, rel=0.1)
    evidence = {(w["metric"], w["a"], w["b"]): v for w, v in found["vigia_compare_e_value"]}
    p = {(w["metric"], w["a"], w["b"]): v for w, v in found["vigia_compare_p_value"]}
    assert evidence[("rtt", "gre", "vxlan")] >= 20.0
    assert p[("rtt", "gre", "vxlan")] == 1.0 / evidence[("rtt", "gre", "vxlan")]
    since = {(w["metric"], w["a"], w["b"]) for w, _ in found["vigia_compare_verdict_since_timestamp_seconds"]}
    assert ("rtt", "gre", "vxlan") in since and ("loss", "gre", "vxlan") not in since
    assert found["vigia_compare_interference_verdict"][0][0]["offender"] == "red\x1b[31m"
    assert [v for _, v in found["vigia_compare_loss_coincident_packets"]] == [420.0]
    assert exposed(None) == exposed(Evaluation(at=0.0)) == {}


def test_at_most_five_counters_of_a_path_are_series() -> None:
    known = list(losses.COUNTERS)[:8]
    counters = [losses.Counter("n", name, "", 0.9 - i / 10, 0.01, 1.0) for i, name in enumerate(known)]
    found = exposed(Evaluation(at=0.0, losses=[losses.Pinned("a", "b", "p", "t", 1.0, 1, counters)]))
    names = [labels["counter"] for labels, _ in found["vigia_compare_loss_coincidence_ratio"]]
    assert len(known) == 8 and names == known[:5]


def test_every_metric_of_the_program_is_in_the_catalogue() -> None:
    metrics = Metrics()
    metrics.show(evaluation())
    declared = {m.name: m.pages for m in part_metrics("compare")}
    for page, registry in ((MAIN_PAGE, metrics.registry), (VERDICT_PAGE, metrics.verdicts)):
        shown = [s for f in registry.collect() for s in f.samples if s.name.startswith("vigia_")]
        assert shown and {declared[s.name] for s in shown} == {(page,)}
        assert not any(math.isnan(s.value) for s in shown)


def test_what_is_most_of_the_series_is_not_on_the_page_of_every_15_seconds() -> None:
    """Pairs grow with the square of the paths; who hurts whom is news."""
    metrics = Metrics()
    metrics.show(evaluation())
    main = generate_latest(metrics.registry).decode()
    slow = generate_latest(metrics.verdicts).decode()
    assert "vigia_compare_interference_verdict{" in main and "vigia_compare_verdict{" not in main
    assert "vigia_compare_verdict{" in slow and "interference" not in slow
    metrics.show(None)
    assert generate_latest(metrics.verdicts) == b""
