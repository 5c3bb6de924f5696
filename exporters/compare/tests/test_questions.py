"""What Prometheus is asked: valid PromQL about metrics that exist, and what becomes of its answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import promql_parser
import pytest
import yaml

import vigia_catalog
from vigia_compare import coincidence, engine, facts, interference, losses
from vigia_compare.engine import MAX_PATHS, PathAttributes
from vigia_compare.evaluation import evaluate
from vigia_compare.measures import LOST, MEASURES, SENT
from vigia_compare.source import Source
from vigia_compare.windows import CLOCK, Grid
from vigia_prometheus import Prometheus, PrometheusError

from .test_outcomes import BASE, CONFIG

NOW = 1_800_000_000.0
GRID = Grid.before(NOW, 60.0, 3600.0)
CATALOGUE = vigia_catalog.load()
ROOT = Path(__file__).parents[3]
RTT = "path:vigia_probe_rtt_seconds:p50_rate1m"


def expressions() -> Iterator[tuple[str, str]]:
    for m in MEASURES.values():
        yield f"{m.name}", m.expression
        if m.twins:
            yield f"{m.name} twins", m.twins
    yield from (("lost", LOST), ("sent", SENT), ("path losses", losses.LOST), ("info", engine.INFO))
    for name in ("LOSS", "DELAY", "SENT", "RECEIVED", "POLICED", "BEYOND"):
        yield f"interference {name}", getattr(interference, name)
    for i, common in enumerate(interference.COMMON):
        yield f"interference common {i}", common
    yield from losses.COUNTERS.items()
    yield "hosts", losses.SEEN
    for name, text in facts.FAST.items():
        yield f"fast {name}", text
    for name, text in facts.details(["n-1", 'a"b\\.c|']).items():
        yield f"detail {name}", text


EXPRESSIONS = dict(expressions())


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_question_is_promql_about_what_exists(name: str) -> None:
    text = GRID.question(EXPRESSIONS[name].replace("TENANT", "_infra"))
    promql_parser.parse(text)
    assert not re.search(r"TENANT|\$", text)
    for function, metric, selector in re.findall(r"(\w+)\((vigia_\w+)(?:\{([^}]*)\})?\[", text):
        declared = CATALOGUE[metric]
        used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector)) - {"job"}
        assert used <= {*declared.labels, "node"}, f"{metric}: {used - set(declared.labels)}"
        assert function in ("last_over_time", "max_over_time", "count_over_time")
        assert declared.type in ("counter", "gauge") and (declared.type == "gauge" or function[:4] == "last")
    assert "histogram_quantile" not in text and "_bucket" not in text, "distributions are read as recorded"


def test_every_record_that_is_read_is_made() -> None:
    """By the pair of nodes, path, tenant and class; distributions once a minute, by the group that sets the clock."""
    groups = [
        g for f in (ROOT / "alert-rules").glob("*.rules.yml") for g in yaml.safe_load(f.read_text())["groups"]
    ]
    made = {r["record"]: (g["name"], r["expr"]) for g in groups for r in g["rules"] if "record" in r}
    asked = {r for text in EXPRESSIONS.values() for r in re.findall(r"path:\w+:\w+", text)}
    assert len(asked) == 6
    for record in asked:
        group, expression = made[record]
        assert "sum by (src, dst, path, tenant, probe)" in expression
        assert group == ("vigia-paths" if re.search("sent|lost", record) else "vigia-windows"), record
    intervals = {g["name"]: g["interval"] for g in groups}
    assert (intervals["vigia-windows"], intervals["vigia-paths"]) == ("1m", "15s")
    assert re.findall(r"path:\w+:\w+", CLOCK)[0] in made


class Store:
    """Answers by the metric that is asked about; everything else is empty."""

    def __init__(self, **answers: list[tuple[Mapping[str, str], Any]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = {k: v[0] for k, v in parse_qs(request.content.decode()).items()}
        self.asked.append(asked["query"])
        metric = next((m for m in self.answers if re.search(rf"\b{m}\b", asked["query"])), "")
        found = self.answers.get(metric, [])
        if request.url.path.endswith("/query"):
            return self._answer("vector", [])
        at = np.arange(float(asked["start"]), float(asked["end"]) + 0.5, float(asked["step"]))
        result = [
            {"metric": dict(labels), "values": [[float(t), "NaN" if np.isnan(v) else repr(float(v))] for t, v in zip(at, values[-at.size :], strict=False)]}
            for labels, values in found
        ]  # fmt: skip
        return self._answer("matrix", result)

    @staticmethod
    def _answer(kind: str, result: list[Any]) -> httpx.Response:
        body = {"status": "success", "data": {"resultType": kind, "result": result}}
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(body).encode()))

    def source(self) -> Source:
        return Source(Prometheus("http://made.test", transport=httpx.MockTransport(self)))


def test_attributes_are_those_that_a_path_had_last() -> None:
    had = np.arange(60) < 30
    info = {"path": "gre", "placement": "remote", "encap": "gre", "mode": ""}
    series = [
        (info, np.where(had, np.nan, 1.0)),
        ({**info, "placement": "local"}, np.where(had, 1.0, np.nan)),
        ({"placement": "local"}, np.ones(60)),
        ({"path": "never"}, np.full(60, np.nan)),
    ]
    store = Store(vigia_path_info=series)
    assert engine.attributes(store.source(), GRID) == {
        "gre": PathAttributes("remote", "unknown", "gre", "unknown", "unknown", "unknown")
    }
    store = Store(vigia_path_info=series[::-1])
    assert engine.attributes(store.source(), GRID)["gre"].placement == "remote", "in whatever order"


def test_paths_are_compared_within_their_placement_and_probe_class_alone() -> None:
    rtt = [
        ({"path": path, "probe": probe}, BASE * factor)
        for path, factor in (("near-a", 1.0), ("near-b", 2.0), ("far", 3.0), ("unknown", 4.0))
        for probe in ("stamp-64", "stamp-1400")
    ]
    known = {p: PathAttributes(placement=where) for p, where in (("near-a", "local"), ("near-b", "local"), ("far", "remote"))}  # fmt: skip
    store = Store(**{RTT: [*rtt, ({"probe": "stamp-64"}, BASE)]})
    groups = engine.compare_measure(store.source(), MEASURES["rtt"], "_infra", GRID, known, 12, 0.95)
    assert [(g.placement, g.probe, [p.path for p in g.paths]) for g in groups] == [
        ("local", "stamp-1400", ["near-a", "near-b"]),
        ("local", "stamp-64", ["near-a", "near-b"]),
        ("remote", "stamp-1400", ["far"]),
        ("remote", "stamp-64", ["far"]),
        ("unknown", "stamp-1400", ["unknown"]),
        ("unknown", "stamp-64", ["unknown"]),
    ]
    assert [g.winner for g in groups if g.placement == "local"] == ["near-a", "near-a"]
    assert all(g.pairs == [] and not g.enough_data for g in groups if g.placement != "local")


def test_holm_corrects_over_all_pairs_of_a_metric() -> None:
    rng = np.random.default_rng(41)
    one = {"a": rng.normal(1.0, 0.1, 40), "b": rng.normal(1.08, 0.1, 40)}
    ((alone,), family) = (
        engine.compare_groups(MEASURES["rtt"], {("x", "p"): one}, 12, 0.95),
        engine.compare_groups(
            MEASURES["rtt"],
            {("x", "p"): one, **{("y", str(i)): {"a": one["a"], "b": one["a"]} for i in range(20)}},
            12,
            0.95,
        ),
    )
    mine = next(g for g in family if g.placement == "x")
    assert mine.pairs[0].p_value == alone.pairs[0].p_value == alone.pairs[0].adjusted_p_value
    assert mine.pairs[0].adjusted_p_value == pytest.approx(min(1.0, 21 * alone.pairs[0].p_value))


def test_pairs_of_a_group_are_bounded() -> None:
    paths = {f"path-{i:03}": BASE[:6] * (1.0 + i / 100) for i in range(MAX_PATHS + 8)}
    pairs = engine.compare_group(MEASURES["rtt"], paths, 0.95)
    assert len(pairs) == MAX_PATHS * (MAX_PATHS - 1) // 2


def test_the_floor_of_loss_comes_from_what_was_sent() -> None:
    sent = [
        ({"path": "gre", "probe": "p"}, np.full(60, 100.0 / 60.0)),
        ({"path": "idle", "probe": "p"}, np.zeros(60)),
    ]
    floors = engine.loss_floors(Store(**{"path:vigia_probe_sent:rate1m": sent}).source(), "_infra", GRID, {})
    assert list(floors) == [("unknown", "p", "gre")]
    assert floors[("unknown", "p", "gre")] == pytest.approx(3.0 / 6000, rel=0.02), "the rule of three"


def test_interference_is_looked_for_where_a_tenant_has_probes() -> None:
    bad = (np.arange(60) >= 20) & (np.arange(60) < 26)
    who = {"node": "n1", "tenant": "red"}
    store = Store(
        vigia_probe_lost_total=[({"src": "n1", "tenant": "blue"}, 0.3 * bad)],
        vigia_port_bytes_total=[
            (who, 1e7 * bad + 1e3),
            ({"node": "n1", "tenant": "blue"}, np.full(60, 1e4)),
            ({"node": "n2", "tenant": "white"}, 1e7 * bad),
        ],
    )
    (found,) = interference.find(store.source(), GRID)
    assert (found.node, found.tenant, found.measure, found.bad_windows) == ("n1", "blue", "loss", 6)
    assert found.verdict() == ("attributed", "red")
    assert {c.name for c in found.offenders} == {"red"}, "white is on another node"
    assert interference.find(Store().source(), GRID) == []


def test_a_path_is_pinned_by_counters_of_its_two_ends_and_of_the_site() -> None:
    lost = np.where(np.isin(np.arange(60), (3, 4, 17, 22, 23, 24, 41, 55)), 4.0, 0.0)
    key = {"src": "n1", "dst": "n2", "path": "gre", "tenant": "red"}
    store = Store(
        vigia_probe_lost_total=[(key, lost)],
        vigia_port_drops_total=[({"node": n, "reason": "queue_full"}, lost) for n in ("n1", "n2", "n3")],
        vigia_qdisc_drops_total=[({"device": "eth0"}, 2.0 * lost)],
        node_softnet_dropped_total=[({"node": "n1"}, np.zeros(60))],
    )
    (found,) = losses.find(store.source(), GRID)
    assert found.verdict == "pinned"
    assert {(c.node, c.name, c.detail) for c in found.counters} == {
        ("n1", "vigia_port_drops_total", "queue_full"),
        ("n2", "vigia_port_drops_total", "queue_full"),
        ("", "vigia_qdisc_drops_total", "eth0"),
    }
    assert found.counters[0].name == "vigia_port_drops_total", "it counted just what was lost"


def test_an_evaluation_without_any_data_says_nothing() -> None:
    store = Store()
    found = evaluate(store.source(), CONFIG, NOW)
    assert (found.at, found.groups, found.loss_floors) == (NOW, [], {})
    assert not any((found.costs, found.speedups, found.interference, found.losses))


def test_an_evaluation_that_fails_in_the_middle_is_none() -> None:
    answers = Store(**{RTT: [({"path": "a", "probe": "p"}, BASE)]})
    failing = iter([False] * 3 + [True] * 100)

    def sometimes(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503, stream=httpx.ByteStream(b"")) if next(failing) else answers(request)

    source = Source(Prometheus("http://made.test", transport=httpx.MockTransport(sometimes)))
    with pytest.raises(PrometheusError, match="answers 503 without a result"):
        evaluate(source, CONFIG, NOW)


# Coincidence


def test_rotations_are_bounded_and_p_values_honest() -> None:
    effect = np.where(np.arange(2000) % 100 == 0, 1.0, 0.0)
    (same,) = coincidence.rank(effect, {"same": effect}, coincidence.rank_correlation)
    assert same.share == pytest.approx(1.0)
    assert 1 / 500 <= same.p_value <= 0.05, "a period of 100 comes back in one of a hundred rotations"
    assert len(coincidence._rotations(2000)) == 499
    assert coincidence._rotations(10) == list(range(1, 10))


def test_the_largest_of_many_candidates_is_corrected_for() -> None:
    rng = np.random.default_rng(42)
    effect = rng.random(120)
    one = {"a": rng.random(120)}
    many = one | {f"x{i}": rng.random(120) for i in range(50)}
    alone = coincidence.rank(effect, one, coincidence.rank_correlation)[0]
    among = {c.name: c for c in coincidence.rank(effect, many, coincidence.rank_correlation)}
    assert among["a"].share == pytest.approx(alone.share) and among["a"].p_value > alone.p_value
    assert min(c.p_value for c in among.values()) > 0.05, "fifty chances, none of them believed"


def test_no_answer_from_too_few_windows() -> None:
    for size, found in ((coincidence.LEAST_WINDOWS - 1, 0), (coincidence.LEAST_WINDOWS, 1)):
        values = np.arange(float(size))
        assert len(coincidence.rank(values, {"a": values}, coincidence.rank_correlation)) == found
    assert coincidence.rank(np.arange(50.0), {}, coincidence.rank_correlation) == []
