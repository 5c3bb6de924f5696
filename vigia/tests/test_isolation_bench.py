"""The benchmark's arithmetic, and one short run of it."""

from __future__ import annotations

import json
import math

import pytest

from vigia.campaign import isolation_bench


def test_quantiles_are_values_that_were_measured() -> None:
    values = [0.3, 0.1, 0.2, 0.4]
    assert isolation_bench.quantile(values, 0.5) == 0.2
    assert isolation_bench.quantile(values, 0.99) == 0.4
    assert math.isnan(isolation_bench.quantile([], 0.5))


def test_the_interval_of_one_run_is_unknown() -> None:
    mean, half = isolation_bench.interval([2.0])
    assert mean == 2.0
    assert math.isnan(half)
    mean, half = isolation_bench.interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(2.484, abs=0.001)


def test_guarantees_are_compared_as_payload() -> None:
    assert isolation_bench.payload(1514.0) == 1448.0


def test_every_budget_is_named_and_judged() -> None:
    good = isolation_bench.Figures("vigia", 5, 0.99, 0.01, 0.9, 0.95, 0.97, 1.0)
    reaction = isolation_bench.Reaction(100, 0, 0.05, 0.1, 0.06, 0.19)
    cost = isolation_bench.Cost(64, 0.005, 0.019, 22 * 2**20)
    none = isolation_bench.Figures("none", 5, 0.1, 0.01, 0.1, 3.0, 1.0, 1.0)
    judged = isolation_bench.budgets([none, good], reaction, cost)
    assert len(judged) == 10
    assert all(b.met for b in judged), "without control nothing is promised"
    bad = isolation_bench.Figures("vigia", 5, 0.94, 0.01, 0.7, 0.8, 0.9, 1.0)
    late = isolation_bench.Reaction(100, 1, 0.05, 0.3, 0.06, math.nan)
    heavy = isolation_bench.Cost(64, 0.03, 0.07, 65 * 2**20)
    missed = isolation_bench.budgets([bad], late, heavy)
    assert not any(b.met for b in missed)
    assert "<= 2.0%" in str(missed[-2])
    assert "7.0%  MISSED" in str(missed[-2])
    assert isolation_bench.budgets([], None, None) == []


def test_it_measures_every_mode_that_is_asked_for(root: None, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--runs", "1", "--seconds", "1", "--pulses", "2", "--vports", "2", "--modes", "none,vigia"]
    assert isolation_bench.main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["mode"] for row in document["modes"]] == ["none", "vigia"]
    assert all(row["used"] > 0 for row in document["modes"])
    assert document["reaction"]["n"] == 2
    assert document["cost"]["vports"] == 2
    assert document["cost"]["rss"] > 1 << 20
    assert len(document["budgets"]) == 10
