"""Units of the statistics, and coincidence that is none."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

import vigia_catalog
from vigia_compare import coincidence, interference, losses
from vigia_compare.units import block_size, independent, lag_one, merged, midranks, runs


def _independent(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.lognormal(3.0, 0.3, n)


def _dependent(rng: np.random.Generator, n: int) -> np.ndarray:
    """First-order autoregression with r = 0.5, skewed."""
    noise = rng.normal(size=n + 20)
    for i in range(1, n + 20):
        noise[i] += 0.5 * noise[i - 1]
    return np.exp(3.0 + 0.3 * noise[20:])


def test_without_merging_dependence_would_name_winners_by_chance() -> None:
    rng = np.random.default_rng(12)
    sizes = [block_size(_dependent(rng, 120)) for _ in range(200)]
    assert np.median(sizes) >= 4
    assert np.mean([block_size(_independent(rng, 120)) == 1 for _ in range(200)]) > 0.9
    assert lag_one(np.zeros(30)) == 0.0
    assert lag_one(np.arange(30.0)) > 0.8


def test_units() -> None:
    assert merged(np.arange(7.0), 3).tolist() == [2.0, 5.0], "the oldest that fill no block are left out"
    assert runs(np.array([1.0, 1.0, 2.0, 2.0, 1.0])).tolist() == [1.0, 2.0, 1.0]
    assert runs(np.array([])).size == 0
    assert midranks(np.array([5.0, 1.0, 5.0])).tolist() == [2.5, 1.0, 2.5]
    a, b = independent(np.zeros(100), np.zeros(60), rare=True)
    assert (a.size, b.size) == (33, 20)
    trend = np.arange(20.0)
    a, b = independent(trend, trend, rare=False)
    assert (a.size, b.size) == (2, 2), "a pair never vanishes: it says that it has not enough data"


def _traffic(rng: np.random.Generator, n: int, names: str) -> Mapping[str, np.ndarray]:
    return {name: np.convolve(rng.lognormal(10, 1, n + 4), np.ones(5), "valid") for name in names}


def test_unrelated_tenants_are_hardly_ever_blamed() -> None:
    rng = np.random.default_rng(13)
    blamed = 0
    for _ in range(200):
        loss = np.where(rng.random(120) < 0.05, rng.random(120), 0.0)
        found = interference.attribute("n", "victim", loss, None, _traffic(rng, 120, "abcd"))
        assert found is not None
        blamed += found.offender() is not None
    assert blamed / 200 <= 0.09


def test_the_one_who_did_it_is_blamed_among_many() -> None:
    rng = np.random.default_rng(14)
    right = 0
    for _ in range(50):
        traffic = dict(_traffic(rng, 120, "abcd"))
        begin = rng.integers(5, 100)
        traffic["b"] = traffic["b"] + 1e7 * ((np.arange(120) >= begin) & (np.arange(120) < begin + 12))
        loss = 0.3 * (traffic["b"] > 5e6) * rng.random(120)
        found = interference.attribute("n", "victim", loss, None, traffic)
        assert found is not None
        offender = found.offender()
        right += offender is not None and offender.name == "b"
    assert right >= 45


def test_delay_counts_when_nothing_is_lost_and_quiet_is_no_case() -> None:
    rng = np.random.default_rng(15)
    delay = np.full(100, 1e-4)
    delay[40:50] = 0.02
    found = interference.attribute("n", "v", np.zeros(100), delay, _traffic(rng, 100, "ab"))
    assert found is not None and (found.measure, found.bad_windows) == ("delay", 10)
    assert interference.attribute("n", "v", np.zeros(100), np.full(100, 1e-4), {}) is None
    alone = interference.attribute("n", "v", None, delay, {})
    assert alone is not None and alone.offender() is None
    few = interference.attribute("n", "v", None, delay[30:60], _traffic(rng, 30, "ab"))
    assert few is not None and few.offenders == [], "thirty windows are too few for an answer"


def test_pinning_without_a_counter_or_without_coincidence_says_so() -> None:
    rng = np.random.default_rng(16)
    lost = np.where(np.arange(120) % 40 < 4, 5.0, 0.0)
    assert losses.pin("a", "b", "p", "t", lost, {}).verdict == "no counter"
    young = np.where(np.arange(120) >= 90, lost, np.nan)
    short = losses.pin("a", "b", "p", "t", young, {("a", "drops", "x"): np.nan_to_num(young)})
    assert (short.verdict, short.known) == ("insufficient evidence", 30), "thirty windows are too few"
    unrelated = {("a", "drops", "x"): rng.poisson(2.0, 120).astype(float)}
    assert losses.pin("a", "b", "p", "t", lost, unrelated).verdict == "insufficient evidence"


def test_every_kind_of_counter_on_a_path_is_tried() -> None:
    """Exporter, softnet, qdisc, Open vSwitch, reflector: by names and labels that the catalogue declares."""
    assert {
        "vigia_port_drops_total",
        "node_softnet_dropped_total",
        "vigia_qdisc_drops_total",
        "vigia_ovs_port_drops_total",
        "vigia_ovs_datapath_lookups_total",
        "vigia_reflector_overflow_total",
    } <= set(losses.COUNTERS)
    declared = {m.name: {*m.labels, "node"} for m in vigia_catalog.load().values()}
    for name, query in losses.COUNTERS.items():
        asked = set(re.findall(r"last_over_time\((\w+)", query))
        assert name in asked and asked <= {name, "up", "vigia_openflow_table_matched_total"}
        for grouped in re.findall(r"by \(([^)]*)\)", query):
            used = {*grouped.split(", "), *re.findall(r"[{,](\w+)=", query)} - {"job"}
            assert name.startswith("node_") or used <= declared[name], query


def test_shares_add_up_to_what_the_fit_explains() -> None:
    rng = np.random.default_rng(17)
    causes = rng.random((3, 200))
    effect = 2 * causes[0] + causes[2] + 0.01 * rng.random(200)
    shares = coincidence.explained_shares(effect[None], causes)[0]
    assert shares.sum() == pytest.approx(1.0, abs=0.01)
    assert shares[0] == pytest.approx(0.8, abs=0.1)
    assert shares[1] < 0.01
    assert coincidence.explained_shares(-causes[1:2], causes)[0, 1] == 0.0, "traffic cannot help"
    assert coincidence.rank_correlation(causes[:1], np.array([causes[0], np.zeros(200)]))[
        0
    ].tolist() == pytest.approx([1, 0])
