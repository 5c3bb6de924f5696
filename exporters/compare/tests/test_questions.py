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
from vigia_compare import coincidence, facts, interference, losses, paths
from vigia_compare.evaluation import Ledger, evaluate, terms
from vigia_compare.measures import LOST, MEASURES, SENT
from vigia_compare.paths import Known, PathAttributes
from vigia_compare.readings import MAX_PATHS, recorded
from vigia_compare.source import Source
from vigia_compare.windows import CLOCK, Grid
from vigia_prometheus import Prometheus, PrometheusError

from .made import BASE
from .test_outcomes import CONFIG

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
        if m.fine:
            yield f"{m.name} fine", m.fine
    yield from (("lost", LOST), ("sent", SENT), ("path losses", losses.PROBES), ("info", paths.INFO))
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
        if name.endswith("fine"):
            assert function == "rate" and declared.type == "histogram"
            continue
        assert function in ("last_over_time", "max_over_time", "count_over_time")
        assert declared.type in ("counter", "gauge") and (declared.type == "gauge" or function[:4] == "last")
    fine = name.endswith("fine")
    assert ("histogram_quantile" in text) == fine and "_bucket" not in text, (
        "distributions are read as recorded"
    )


def test_every_record_that_is_read_is_made() -> None:
    """By the pair of nodes, path, tenant and class; distributions once a minute, by the group that sets the clock."""
    groups = [
        g for f in (ROOT / "alert-rules").glob("*.rules.yml") for g in yaml.safe_load(f.read_text())["groups"]
    ]
    made = {r["record"]: (g["name"], r["expr"]) for g in groups for r in g["rules"] if "record" in r}
    asked = {r for text in EXPRESSIONS.values() for r in re.findall(r"path:\w+:\w+", text)}
    assert len(asked) == 4
    for record in asked:
        group, expression = made[record]
        assert "sum by (src, dst, path, tenant, probe)" in expression
        assert group == "vigia-windows", record
    intervals = {g["name"]: g["interval"] for g in groups}
    assert (intervals["vigia-windows"], intervals["vigia-paths"]) == ("1m", "15s")
    assert re.findall(r"path:\w+:\w+", CLOCK)[0] in made


def test_every_collector_that_counts_drops_is_looked_at() -> None:
    """A host whose collector fails may have dropped anything that this one counts."""
    there = set(re.findall(r'name: "(\w+)"', (ROOT / "exporters/tenant/app/collectors.go").read_text()))
    assert set(losses.COLLECTORS) <= there
    counting = {name.split("_")[1] for name in losses.COUNTERS if name.startswith("vigia_")}
    assert counting & there == {"openflow", "ovs", "qdisc"} <= set(losses.COLLECTORS)


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
    info = {"path": "gre", "placement": "remote", "encap": "gre", "mode": "", "node": "n1"}
    series = [
        (info, np.where(had, np.nan, 1.0)),
        ({**info, "placement": "local"}, np.where(had, 1.0, np.nan)),
        ({**info, "node": "n2", "encap": "vxlan"}, np.where(np.arange(60) < 50, 1.0, np.nan)),
        ({"placement": "local"}, np.ones(60)),
        ({"path": "never"}, np.full(60, np.nan)),
    ]
    here = PathAttributes("remote", "unknown", "gre", "unknown", "unknown", "unknown")
    for order in (series, series[::-1]):
        found = paths.attributes(Store(vigia_path_info=order).source(), GRID)
        assert found.of("n1", "gre") == found.of("elsewhere", "gre") == here, "in whatever order"
        assert found.of("n2", "gre").encap == "vxlan" and found.of("n1", "never") == PathAttributes()
        changed = GRID.start + 30 * 60.0
        assert (found.since("n1", "gre"), found.since("n2", "gre")) == (changed, 0.0)
        assert found.since("n1", "never") == 0.0


def test_cells_are_of_one_placement_probe_class_rate_and_number_of_machines() -> None:
    where = {"src": "n1", "dst": "n2"}
    rtt = [
        ({**where, "path": path, "probe": probe}, BASE * factor)
        for path, factor in (("near-a", 1.0), ("near-b", 2.0), ("far", 3.0), ("unknown", 4.0))
        for probe in ("stamp-64", "stamp-1400")
    ]
    at = {
        p: PathAttributes(placement=x)
        for p, x in (("near-a", "local"), ("near-b", "local"), ("far", "remote"))
    }
    store = Store(**{RTT: [*rtt, ({**where, "probe": "stamp-64"}, BASE)]})
    found = recorded(store.source(), MEASURES["rtt"], "_infra", GRID, Known({}, at, {}))
    shown = [(c.placement, c.probe, sorted(p)) for c, p in sorted(found.cells.items())]
    assert shown == [
        ("local", "stamp-1400", ["near-a", "near-b"]),
        ("local", "stamp-64", ["near-a", "near-b"]),
        ("remote", "stamp-1400", ["far"]),
        ("remote", "stamp-64", ["far"]),
        ("unknown", "stamp-1400", ["unknown"]),
        ("unknown", "stamp-64", ["unknown"]),
    ]
    runs = [
        ({**where, "path": p, "probe": "bulk", "rate": r, "machines": n}, BASE)
        for p in "ab"
        for r, n in (("100Mbit", "2"), ("200Mbit", "2"), ("200Mbit", "8"))
    ]
    store = Store(vigia_bulk_goodput_bytes_per_second=runs)
    udp = recorded(store.source(), MEASURES["udp_throughput"], "_infra", GRID, Known({}, {}, {}))
    assert [(c.machines, c.probe, sorted(p)) for c, p in sorted(udp.cells.items())] == [
        ("2", "bulk 100Mbit", ["a", "b"]),
        ("2", "bulk 200Mbit", ["a", "b"]),
        ("8", "bulk 200Mbit", ["a", "b"]),
    ], "rates and numbers of machines are questions of their own, never averaged"


def test_paths_of_a_cell_are_bounded() -> None:
    where = {"src": "n1", "dst": "n2", "probe": "p"}
    store = Store(**{RTT: [({**where, "path": f"path-{i:03}"}, BASE) for i in range(MAX_PATHS + 8)]})
    found = recorded(store.source(), MEASURES["rtt"], "_infra", GRID, Known({}, {}, {}))
    assert [len(p) for p in found.cells.values()] == [MAX_PATHS]


def test_loss_is_read_as_counts() -> None:
    where = {"src": "n1", "dst": "n2", "probe": "p"}
    sent = [({**where, "path": "gre"}, np.full(60, 50.0)), ({**where, "path": "idle"}, np.zeros(60))]
    lost = [({**where, "path": "gre"}, np.where(np.arange(60) == 7, 60.0, np.nan))]
    store = Store(vigia_probe_sent_total=sent, vigia_probe_lost_total=lost)
    found = recorded(store.source(), MEASURES["loss"], "_infra", GRID, Known({}, {}, {}))
    (cell,) = found.cells
    ratio = found.cells[cell]["gre"][("n1", "n2")]
    assert ratio[7] == 1.0 and np.nansum(ratio) == 1.0, "never more than was sent"
    assert np.isnan(found.cells[cell]["idle"][("n1", "n2")]).all()


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
        vigia_probe_lost_total=[({**key, "cause": "unknown"}, lost)],
        vigia_port_drops_total=[({"node": n, "reason": "queue_full"}, lost) for n in ("n1", "n2", "n3")],
        vigia_qdisc_drops_total=[({"device": "eth0"}, 2.0 * lost)],
        node_softnet_dropped_total=[({"node": "n1"}, np.zeros(60))],
    )
    (found,) = losses.find(store.source(), GRID, Known({}, {}, {}))
    assert found.verdict == "pinned"
    assert {(c.node, c.name, c.detail) for c in found.counters} == {
        ("n1", "vigia_port_drops_total", "queue_full"),
        ("n2", "vigia_port_drops_total", "queue_full"),
        ("", "vigia_qdisc_drops_total", "eth0"),
    }
    assert found.counters[0].name == "vigia_port_drops_total", "it counted just what was lost"


def test_an_evaluation_without_any_data_says_nothing() -> None:
    store = Store()
    found = evaluate(store.source(), CONFIG, NOW, Ledger(terms(CONFIG)))
    assert (found.at, found.findings, found.standings, found.paths, found.loss_floors) == (
        NOW,
        [],
        [],
        [],
        {},
    )
    assert not any((found.costs, found.speedups, found.interference, found.losses))


def test_an_evaluation_that_fails_in_the_middle_is_none() -> None:
    answers = Store(**{RTT: [({"path": p, "probe": "p", "src": "a", "dst": "b"}, BASE) for p in "ab"]})
    failing = iter([False] * 3 + [True] * 100)

    def sometimes(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503, stream=httpx.ByteStream(b"")) if next(failing) else answers(request)

    source = Source(Prometheus("http://made.test", transport=httpx.MockTransport(sometimes)))
    ledger = Ledger(terms(CONFIG))
    with pytest.raises(PrometheusError, match="answers 503 without a result"):
        evaluate(source, CONFIG, NOW, ledger)
    assert not ledger.book.findings(NOW, {}, 0.0), "nothing is half taken in"


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
