"""The benchmark's arithmetic, and one short run of it."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any

import pytest

from vigia.isolation import bench, borrow
from vigia.isolation.alerts import Alarm, Alarms
from vigia.isolation.borrow import Borrowed
from vigia.isolation.model import FlowOutcome, TrafficFlow


def test_quantiles_are_values_that_were_measured() -> None:
    values = [0.3, 0.1, 0.2, 0.4]
    assert bench.quantile(values, 0.5) == 0.2
    assert bench.quantile(values, 0.99) == 0.4
    assert math.isnan(bench.quantile([], 0.5))


def test_the_interval_of_one_run_is_unknown() -> None:
    mean, half = bench.interval([2.0])
    assert mean == 2.0
    assert math.isnan(half)
    mean, half = bench.interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(2.484, abs=0.001)


def test_guarantees_are_compared_as_payload() -> None:
    assert bench.payload(1514.0) == 1448.0


def test_reaction_times_are_read_from_the_logs_of_both_enforcers() -> None:
    line = bench._Line
    told = [
        line(100.10, " first_drop_seconds=0.04"),
        line(101.35, " first_drop_seconds=0.05"),
        line(101.40, " x=1"),
    ]
    held = [line(100.11, ""), line(101.45, "")]
    found = bench.reaction([100.0, 101.2, 102.4], told, held)
    assert (found.n, found.missed) == (3, 1)
    assert found.told_p50 == pytest.approx(0.10)
    assert found.held_p99 == pytest.approx(0.25)
    assert found.drop_p50 == pytest.approx(0.05)
    assert found.drop_p99 == pytest.approx(0.15)
    assert found.messages == 1.5


def test_the_cost_of_packets_is_read_from_gos_output() -> None:
    out = "BenchmarkVport/count-2  \t 100\t 12 ns/op\t  9.0 ns/packet\nBenchmarkClassify/send \t1\t85 ns/packet\nok\n"
    out += "BenchmarkVport/count#01-2\t 100\t 12 ns/op\t 10.0 ns/packet\nBenchmarkClassify/send#01-2\t1\t86 ns/packet\n"
    assert bench.packets(out) == [("Vport/count", 9.0), ("Classify/send", 85.0)]


def test_a_share_of_a_core_is_that_of_the_quietest_turn() -> None:
    turns = iter([0.2, 0.0, 0.2])

    def work() -> None:
        end = time.monotonic() + 0.3
        busy = time.process_time() + next(turns)
        while time.process_time() < busy:
            pass
        time.sleep(max(0.0, end - time.monotonic()))

    assert bench._share(os.getpid(), work) < 0.2
    assert next(turns, None) is None, "it measured fewer turns"


def test_a_borrower_is_judged_by_its_worst_second_and_its_worst_tenth() -> None:
    a, b = TrafficFlow("a", 2, 1), TrafficFlow("b", 3, 1, "udp")
    goodput = [100.0] * 30 + [0.0] + [90.0] * 9 + [90.0] * 5 + [40.0] + [90.0] * 4 + [95.0] * 10
    beside = [0.0] * 30 + [10.0] * 30
    found = borrow.judge("b", FlowOutcome(a, goodput, 0), FlowOutcome(b, beside, 0), 50.0, 1.1)
    assert found.second == pytest.approx((9 * 90 + 40) / 10 / 90), (
        "the second of the neighbour's beginning is left out"
    )
    assert found.window == 40 / 50, "and the window of it"
    assert found.mean == pytest.approx((85 / 90 + 95 / 90) / 2)
    assert found.retransmits == 1.1


def test_neighbours_keep_to_their_contract() -> None:
    for _, flow in borrow.neighbours():
        assert flow.protocol == "udp"
        assert flow.rate <= 0.2 * 0.95 * 200e6


def test_lateness_is_the_bound_of_a_range() -> None:
    name = "vigia_enforcer_tick_lateness_seconds_bucket"
    before = {f'{name}{{le="{le}"}}': 10.0 for le in ("0.0001", "0.02", "+Inf")}
    after = {f'{name}{{le="{le}"}}': n for le, n in (("0.0001", 20.0), ("0.02", 109.0), ("+Inf", 110.0))}
    assert bench._lateness(before, after, 0.99) == 0.02
    assert bench._lateness(before, after, 1.0) == math.inf
    assert math.isnan(bench._lateness(after, after, 0.99))


def test_every_budget_is_named_and_judged() -> None:
    none = bench.Figures("none", 5, 0.1, 0.01, 0.1, 3.0, 1.0, 1.0)
    good = bench.Measured(
        [none, bench.Figures("vigia", 5, 0.99, 0.01, 0.9, 0.95, 0.97, 1.0)],
        bench.Reaction(100, 0, 0.05, 0.1, 0.06, 0.3, 0.05, 0.19, 1.0),
        Alarms([Alarm(0.1, 2.0)] * 100),
        bench.Innocent(3, 0.0, 0.001),
        bench.Cost(64, 0.005, 0.019, 22 * 2**20, 120.0, 1000, 0.005),
        [
            ("Vport/count", 9.0),
            ("Vport/count_displaced", 24.0),
            ("Vport/signals", 149.0),
            ("Classify/send", 185.0),
        ],
        bench.Kills(100, True, "73 of 100 kills left a limit in force, none for more than its time"),
        [Borrowed("5 Mbit/s", 0.99, 0.96, 1.7, 1.1)],
        {"alone": 0.0004, "hostile": 0.0009},
    )
    judged = bench.budgets(good)
    assert len(judged) == 23
    assert all(b.met for b in judged), "without control nothing is promised"
    bad = bench.Measured(
        [bench.Figures("vigia", 5, 0.94, 0.01, 0.7, 0.8, 0.9, 1.0)],
        bench.Reaction(100, 1, 0.05, 0.3, 0.06, 0.1, 0.1, math.nan, 1.2),
        Alarms([Alarm(0.1, 2.0)] * 98 + [Alarm(0.4, 5.5), Alarm(0.4, None)]),
        bench.Innocent(3, 0.002, 0.5),
        bench.Cost(64, 0.03, 0.07, 65 * 2**20, 151.0, 1000, 0.1),
        [("Vport/count", 11.0), ("Vport/signals", 151.0)],
        bench.Kills(100, False, "a limit outlives its time"),
        [Borrowed("5 Mbit/s", 0.7, 0.4, 0.5, 2.0)],
        {"alone": 0.0004, "hostile": 0.0011},
    )
    missed = bench.budgets(bad)
    assert not any(b.met for b in missed), [str(b) for b in missed if b.met]
    assert "7.0%  MISSED" in next(str(b) for b in missed if "full link" in b.name)
    assert bench.budgets(bench.Measured()) == []


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    """Run the benchmark with nothing but what is asked for, and return its document."""
    nothing = ["--runs", "1", "--seconds", "1", "--modes", "", *LEFT_OUT, "--json", *argv]
    assert bench.main(nothing) in (0, 1), "a busy machine may miss a budget"
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


LEFT_OUT = [
    w
    for o in ("pulses", "alerts", "innocent", "vports", "programs", "kills", "borrower", "hostile")
    for w in (f"--{o}", "0")
]


@pytest.mark.long
def test_modes_and_the_fast_loop_are_measured(root: None, capsys: pytest.CaptureFixture[str]) -> None:
    document = run(capsys, "--modes", "none,vigia", "--pulses", "2")
    assert [row["mode"] for row in document["rows"]] == ["none", "vigia"]
    assert all(row["used"] > 0.3 for row in document["rows"]), "the link is worked"
    assert document["reaction"]["n"] == 2
    assert document["price"] is None and document["alarms"] is None


def test_the_alert_path_is_measured(root: None, capsys: pytest.CaptureFixture[str]) -> None:
    document = run(capsys, "--alerts", "1")
    (alarm,) = document["alarms"]["found"]
    assert 0 < alarm["detected"] < alarm["verified"], "the flood was met by a limit"
    assert document["rows"] == []


@pytest.mark.long
def test_the_enforcers_cost_is_measured(
    root: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_TURNS", 1)
    price = run(capsys, "--vports", "2")["price"]
    assert price["vports"] == 2
    assert price["rss"] > 1 << 20
    assert price["runs"] > 0
    assert price["run_ns"] > 0


@pytest.mark.long
def test_an_innocent_tenants_loss_is_measured(root: None, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "--innocent", "1", "--seconds", "4")["innocent"]
    assert found["n"] == 1
    assert 0 <= found["beside"] < 0.05, "it shares the flood's node and not its path"
    assert 0 <= found["beneath"] < 0.05, "it shares the flood's path, and has what it bought"
