"""The benchmark's arithmetic, and one short run of it."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from labkit import ROOT

from vigia.errors import VigiaError
from vigia.host.commands import CommandResult
from vigia.isolation import bench, borrow, gobench
from vigia.isolation.alerts import Alarm, Alarms
from vigia.isolation.borrow import Borrowed
from vigia.isolation.model import FlowOutcome, TrafficFlow
from vigia.isolation.overlay import OverlaySwitch

ENFORCER = ROOT / "bin" / "vigia-enforcer"


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
        line(100.10, " congested_seconds=0.04"),
        line(101.35, " congested_seconds=0.05"),
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
    assert gobench.packets(out) == [("Vport/count", 9.0), ("Classify/send", 85.0)]


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
    outcome, beside = FlowOutcome(a, goodput, 0), FlowOutcome(b, [0.0] * 30 + [10.0] * 30, 0)
    mean, second, window = borrow.judge(outcome, [beside], 50.0)
    assert second == pytest.approx((9 * 90 + 40) / 10 / 90), (
        "the second of the neighbour's beginning is left out"
    )
    assert window == 40 / 50, "and the window of it"
    assert mean == pytest.approx((85 / 90 + 95 / 90) / 2)


@pytest.mark.parametrize(
    ("source", "sink", "left"),
    [(3, 1, 80.0), (2, 3, 80.0), (2, 1, 80.0), (1, 2, 100.0), (1, 3, 100.0), (3, 2, 100.0)],
)
def test_neighbours_leave_what_they_do_not_take_of_the_same_way_of_a_link(
    source: int, sink: int, left: float
) -> None:
    outcome = FlowOutcome(TrafficFlow("a", 2, 1), [100.0] * 30 + [80.0] * 30, 0)
    other = FlowOutcome(TrafficFlow("b", source, sink, "udp"), [0.0] * 30 + [20.0] * 30, 0)
    _, second, _ = borrow.judge(outcome, [other], 50.0)
    assert second == pytest.approx(80.0 / left)


def test_what_several_neighbours_carry_is_added_up() -> None:
    outcome = FlowOutcome(TrafficFlow("a", 2, 1), [100.0] * 30 + [60.0] * 30, 0)
    others = [
        FlowOutcome(TrafficFlow(tenant, 3, 1, "udp"), [0.0] * 30 + [20.0] * 30, 0) for tenant in ("b", "c")
    ]
    _, second, _ = borrow.judge(outcome, others, 50.0)
    assert second == pytest.approx(1.0)


def test_neighbours_keep_to_their_contracts() -> None:
    """Rates are of payload; a full frame in VXLAN is at most 8 % longer."""
    names = [s.name for s in borrow.situations()]
    assert len(set(names)) == len(names)
    for situation in borrow.situations():
        for flow in situation.neighbours:
            assert 0 < flow.rate * 1.081 <= borrow.SHARES[flow.tenant] * 0.95 * 0.99 * 200e6, situation.name
            assert flow.tenant != situation.borrower.tenant


def test_the_matrix_has_every_kind() -> None:
    flows = [f for s in borrow.situations() for f in s.neighbours]
    assert {f.protocol for f in flows} == {"udp", "tcp", "syn"}
    assert {f.rate for f in flows if f.protocol == "udp"} >= {1e6, 5e6, 20e6, 34e6}
    assert any(f.on for f in flows), "bursts"
    assert {f.connections for f in flows} == {1, 10} == {s.borrower.connections for s in borrow.situations()}
    assert {len({f.tenant for f in s.neighbours}) for s in borrow.situations()} == {1, 3}, "two tenants, four"
    ways = {(f.source, f.sink) for f in flows}
    assert {(3, 1), (2, 1), (2, 3), (1, 3)} <= ways, "the borrower's two links, each in both directions"


@pytest.mark.long
@pytest.mark.parametrize("switch", list(OverlaySwitch), ids=lambda s: s.value)
def test_a_borrower_is_measured_beside_each_protocol(root: None, switch: OverlaySwitch) -> None:
    wanted = ("20 Mbit/s of UDP", "5 Mbit/s of TCP", "2 Mbit/s of SYN")
    chosen = [s for s in borrow.situations() if s.name in wanted]
    said: list[str] = []
    found = list(
        borrow.borrow(ENFORCER, borrow.Setting(switch, "reno", offload=True), 3.0, chosen, said.append)
    )
    assert [b.neighbour for b in found] == [borrow.NOBODY, *wanted]
    assert len(said) == len(wanted)
    for b in found:
        assert b.setting == f"{switch.value}, reno with offload"
        assert b.window >= 0, "TCP may stand still for a moment, also alone"
        assert 0 <= b.second <= b.mean
        assert b.mean > 0, "it goes on"


def test_lateness_is_the_bound_of_a_range() -> None:
    name = "vigia_enforcer_tick_lateness_seconds_bucket"
    before = {f'{name}{{le="{le}"}}': 10.0 for le in ("0.0001", "0.02", "+Inf")}
    after = {f'{name}{{le="{le}"}}': n for le, n in (("0.0001", 20.0), ("0.02", 109.0), ("+Inf", 110.0))}
    assert bench._lateness(before, after, 0.99) == 0.02
    assert bench._lateness(before, after, 1.0) == math.inf
    assert math.isnan(bench._lateness(after, after, 0.99))


def test_the_quietest_turn_of_each_kind_counts() -> None:
    out = "\n".join(
        f"BenchmarkLateness/{kind}-2   \t       1\t20043903662 ns/op\t   1.000 of-alone\t   {us} p99.9-us\t 0 pairs"
        for kind, us in (("alone", 441.0), ("hostile", 2900), ("alone", 5154), ("hostile", "9.5e+02"))
    )
    assert gobench.late(out + "\nPASS\n") == {
        "alone": pytest.approx(441e-6),
        "hostile": pytest.approx(950e-6),
    }
    assert gobench.late("PASS") == {}


@pytest.mark.parametrize(
    ("bare", "turns", "best"),
    [([900, 4000, 4000, 1], 3, 1600), ([4000, 4000, 4000, 1000, 1], 4, 1500), ([4000] * 9, 9, 1000)],
)
def test_turns_go_on_while_the_machine_keeps_a_bare_thread_waiting(
    monkeypatch: pytest.MonkeyPatch, bare: list[int], turns: int, best: int
) -> None:
    done: list[int] = []

    def go_test(*_arguments: str) -> CommandResult:
        done.append(bare[len(done)])
        kinds = {"bare": done[-1], "alone": 2000, "hostile": 1900 - 100 * len(done)}
        lines = (
            f"BenchmarkLateness/{kind}-2 \t1\t 1.0 of-alone\t {us} p99.9-us" for kind, us in kinds.items()
        )
        return CommandResult(0, "\n".join(lines) + "\n", "")

    monkeypatch.setattr(gobench, "_go_test", go_test)
    found = gobench.lateness(3)
    assert len(done) == turns
    assert found == {"bare": min(done) / 1e6, "alone": 2e-3, "hostile": best / 1e6}


def test_a_loop_that_was_not_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gobench, "_go_test", lambda *_: CommandResult(1, "", "no root"))
    with pytest.raises(VigiaError, match="the loop was not measured: no root"):
        gobench.lateness(3)


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
        gobench.Kills(100, True, "73 of 100 kills left a limit in force, none for more than its time"),
        [Borrowed("linuxbridge, bbr", "5 Mbit/s", 0.99, 0.96, 1.7, 0.0, 0.009)],
        {"bare": 0.0003, "alone": 0.0004, "hostile": 0.0009},
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
        gobench.Kills(100, False, "a limit outlives its time"),
        [Borrowed("linuxbridge, bbr", "5 Mbit/s", 0.7, 0.4, 0.5, 0.1, 0.2)],
        {"bare": 0.0003, "alone": 0.0004, "hostile": 0.0011},
    )
    missed = bench.budgets(bad)
    assert not any(b.met for b in missed), [str(b) for b in missed if b.met]
    assert "7.0%  MISSED" in next(str(b) for b in missed if "full link" in b.name)
    assert bench.budgets(bench.Measured()) == []
    alone = Borrowed("linuxbridge, bbr", f"{borrow.NOBODY}, in ten flows itself", 0.5, 0.1, 0.0, 0.1, 0.1)
    assert bench.budgets(bench.Measured(borrowed=[alone])) == [], "what the bed does by itself is no promise"


@pytest.mark.parametrize(("alone", "most"), [(0.0, 0.01), (0.02, 0.03), (0.05, 0.06), (0.1, 0.12)])
def test_more_is_sent_again_by_a_fifth_or_by_a_hundredth_of_all(alone: float, most: float) -> None:
    assert bench.sent_again(alone) == pytest.approx(most)


def test_a_switch_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--borrower", "linuxbridge,vpp"])
    assert ended.value.code == 2
    assert "'vpp'; have linuxbridge, openvswitch" in capsys.readouterr().err


def test_a_congestion_control_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--congestion", "quick"])
    assert ended.value.code == 2
    assert "this machine has no 'quick'; have " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "least"),
    [
        (["--seconds", "1", "--borrower", "linuxbridge"], 2),
        (["--seconds", "0.5", "--borrower", ""], 1),
        (["--seconds", "1e9", "--borrower", ""], 1),
        (["--seconds", "nan"], 2),
    ],
)
def test_a_flood_that_is_too_short_is_refused_before_anything_runs(
    argv: list[str], least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(argv)
    assert ended.value.code == 2
    assert f"is out of range; write {least} to 3600" in capsys.readouterr().err


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    """Run the benchmark with nothing but what is asked for, and return its document."""
    nothing = ["--runs", "1", "--seconds", "1", "--modes", "", *LEFT_OUT, "--borrower", "", "--json", *argv]
    assert bench.main(nothing) in (0, 1), "a busy machine may miss a budget"
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def run_until(
    capsys: pytest.CaptureFixture[str], good: Callable[[dict[str, Any]], bool], *argv: str
) -> dict[str, Any]:
    """Run it up to five times: on a machine that is busy with other things a run may lack processor time."""
    for _ in range(5):
        document = run(capsys, *argv)
        if good(document):
            break
    return document


LEFT_OUT = [
    w
    for o in ("pulses", "alerts", "innocent", "vports", "programs", "kills", "hostile")
    for w in (f"--{o}", "0")
]


@pytest.mark.long
def test_modes_and_the_fast_loop_are_measured(root: None, capsys: pytest.CaptureFixture[str]) -> None:
    document = run_until(
        capsys,
        lambda d: all(row["used"] > 0.3 for row in d["rows"]) and d["reaction"]["n"] == 2,
        *("--modes", "none,vigia", "--pulses", "2"),
    )
    assert [row["mode"] for row in document["rows"]] == ["none", "vigia"]
    assert all(row["used"] > 0.3 for row in document["rows"]), "the link is worked"
    assert document["reaction"]["n"] == 2
    assert document["price"] is None and document["alarms"] is None


def test_the_alert_path_is_measured(root: None, capsys: pytest.CaptureFixture[str]) -> None:
    document = run_until(capsys, lambda d: d["alarms"]["found"][0]["verified"] is not None, "--alerts", "1")
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
    document = run_until(
        capsys,
        lambda d: max(d["innocent"]["beside"], d["innocent"]["beneath"]) < 0.05,
        *("--innocent", "1", "--seconds", "4"),
    )
    found = document["innocent"]
    assert found["n"] == 1
    assert 0 <= found["beside"] < 0.05, "it shares the flood's node and not its path"
    assert 0 <= found["beneath"] < 0.05, "it shares the flood's path, and has what it bought"
