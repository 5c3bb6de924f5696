"""What the service said, read back from its own series; and state files that cannot be used."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation, Ledger
from vigia_compare.findings import COSTS, NO_COMMON_HOSTS, OPEN, Finding
from vigia_compare.levels import Level
from vigia_compare.paths import Kind, PathAttributes
from vigia_compare.published import published
from vigia_compare.readings import Cell
from vigia_compare.source import Source
from vigia_prometheus import Prometheus
from vigia_statistics.sequential import Change

from .made import BASE, END, HOSTS, KNOWN, TERMS, evaluation_of, families, known, readings

CELL = Cell("rtt", "remote", "", "stamp-64")
OTHER = ("n3", "n4")
RNG = np.random.default_rng(71)
Row = tuple[dict[str, str], float]


class Shown:
    """A Prometheus that has what an evaluation exposes, and the hosts and attributes of paths."""

    def __init__(self, evaluation: Evaluation, hosts: Sequence[tuple[str, tuple[str, str]]] = ()) -> None:
        self.rows: dict[str, list[Row]] = {
            f.name: [(dict(s.labels), s.value) for s in f.samples] for f in families(evaluation)
        }
        self.rows["vigia_compare_e_value_needed"] = [({}, 20.0)]
        self.hosts: list[Row] = [({"path": p, "src": s, "dst": d}, 1.0) for p, (s, d) in hosts]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = {k: v[0] for k, v in parse_qs(request.content.decode() or request.url.query.decode()).items()}
        if request.url.path.endswith("query_range"):
            rows = _info() if "vigia_path_info" in asked["query"] else []
            at = float(asked["start"])
            result = [{"metric": labels, "values": [[at, str(v)]]} for labels, v in rows]
            return self._answer("matrix", result)
        hosts = self.hosts if "path:vigia_probe_sent" in asked["query"] else []
        rows = self.rows.get(asked["query"], hosts)
        return self._answer("vector", [{"metric": labels, "value": [END, repr(v)]} for labels, v in rows])

    @staticmethod
    def _answer(kind: str, result: list[Any]) -> httpx.Response:
        body = {"status": "success", "data": {"resultType": kind, "result": result}}
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(body).encode()))

    def read(self, metrics: Sequence[str] = ("rtt", "loss")) -> Evaluation | None:
        transport = httpx.MockTransport(self)
        config = Config(metrics=list(metrics), prometheus="http://made.test")
        return published(Source(Prometheus("http://made.test", transport=transport)), config, END)


def _info() -> list[Row]:
    names = [f.name for f in fields(PathAttributes)]
    return [({"path": p, "node": "n1", **{n: getattr(k, n) for n in names}}, 1.0) for p, k in KNOWN.items()]


def said(shown: Shown) -> Evaluation:
    found = shown.read()
    assert found is not None
    return found


@cache
def several() -> Evaluation:
    level = {
        "gre": BASE,
        "vxlan": 1.5 * BASE,
        "netdev": 1.51 * BASE,
        "direct": 0.5 * BASE,
        "ipsec": 2.0 * BASE,
    }
    noisy = {p: v * RNG.lognormal(0.0, 0.02, v.size) for p, v in level.items()}
    lost = {"gre": np.zeros(60), "vxlan": RNG.binomial(600, 0.05, 60) / 600}
    return evaluation_of(readings("rtt", noisy), readings("loss", lost, sent=600.0))


def test_what_is_read_back_is_what_was_said() -> None:
    """Of every pair: kind, verdict, evidence, effect, words; and so the winners table."""
    before = several()
    back = said(Shown(before))
    assert {f.kind for f in before.findings} == set(Kind), "each kind of pair is among them"
    assert len({f.verdict for f in before.findings}) >= 3
    found, expected = ({(f.cell, f.a, f.b): f for f in e.findings} for e in (back, before))
    assert set(found) == set(expected)
    for key, pair in found.items():
        was = expected[key]
        same = ("kind", "verdict", "scale", "since", "began", "e_value", "e_equivalent", "needed")
        for name in (*same, "windows", "hosts", "ahead", "words", "said"):
            assert getattr(pair, name) == getattr(was, name), f"{name} of {key}"
        assert pair.shift == pytest.approx(was.shift, nan_ok=True)
        assert (pair.ratio is None) == (was.ratio is None)
    assert back.standings == before.standings and back.costs


def test_medians_are_read_back_with_their_intervals() -> None:
    before = several()
    back = said(Shown(before))
    expected = {(p.cell, p.path): (p.windows, p.median.estimate, p.median.lower) for p in before.paths}
    assert {(p.cell, p.path): (p.windows, p.median.estimate, p.median.lower) for p in back.paths} == expected
    assert {p.median.confidence for p in back.paths} == {0.95}


def test_changes_of_level_are_read_back() -> None:
    levels = [
        Level(CELL, "gre", HOSTS, Change(END - 60.0, END - 7200.0, True, 1.25)),
        Level(CELL, "vxlan", OTHER, Change(END - 60.0, END - 3600.0, False, 0.75)),
    ]
    back = said(Shown(replace(several(), levels=levels)))
    # When it was found is no series: the moment stands for it.
    assert back.levels == [replace(x, change=replace(x.change, at=END)) for x in levels]


def test_where_no_verdict_is_shown_nothing_was_said() -> None:
    assert Shown(Evaluation(at=END)).read() is None


def test_metrics_that_nobody_asks_for_are_left_out() -> None:
    back = Shown(several()).read(("loss",))
    assert back is not None and {f.cell.metric for f in back.findings} == {"loss"}
    assert {p.cell.metric for p in back.paths} == {s.cell.metric for s in back.standings} == {"loss"}


def test_series_of_a_metric_that_is_none_are_left_out() -> None:
    shown = Shown(several())
    count = len(said(shown).findings)
    for rows in shown.rows.values():
        rows.extend([({**labels, "metric": "ping"}, v) for labels, v in rows if "metric" in labels])
    assert len(said(shown).findings) == count


@pytest.mark.parametrize("listed", [True, False])
def test_paths_without_common_hosts_name_the_hosts_that_are_known(listed: bool) -> None:
    alone = Finding(CELL, "gre", "vxlan", Kind.CONTEST, NO_COMMON_HOSTS, words="apart")
    hosts = [("gre", HOSTS), ("vxlan", OTHER)] if listed else []
    (found,) = said(Shown(Evaluation(at=END, findings=[alone]), hosts)).findings
    first, second = ("n1-n2", "n3-n4") if listed else ("?-?", "?-?")
    assert found.said.startswith(f"gre ({first}) and vxlan ({second}) share no pair of hosts")
    assert (found.e_value, found.windows, found.progress) == (0.0, 0, 0.0)


def test_bounds_that_were_not_shown_are_none() -> None:
    """A series whose value is not finite is left out: what is missing has no end, and is no zero."""
    bare = Finding(CELL, "gre", "direct", Kind.REFERENCE, OPEN, e_value=2.0, windows=1, hosts=1)
    (found,) = said(Shown(Evaluation(at=END, findings=[bare]))).findings
    assert (found.shift[0], found.shift[2]) == (-math.inf, math.inf) and math.isnan(found.shift[1])
    assert found.ratio is None and found.ahead == "" and found.since == 0.0
    half = replace(bare, verdict=COSTS, since=END, shift=(1e-6, 2e-6, math.inf))
    (cost,) = said(Shown(Evaluation(at=END, findings=[half]))).findings
    assert (cost.shift, cost.ahead, cost.since) == ((1e-6, 2e-6, math.inf), "direct", END)


# State files: whatever is in them is refused at once, or does no harm later


@cache
def ledger() -> Ledger:
    made = Ledger(TERMS)
    runs = readings("tcp_throughput", {"gre": np.arange(60.0) + 1e8, "vxlan": np.arange(60.0) + 2e8})
    given = [readings("rtt", {"gre": BASE, "vxlan": 1.5 * BASE, "direct": 0.5 * BASE}), runs]
    made.book.take(given, known(), fine=False)
    made.book.news(replace(known(), by_node={("n1", "gre"): KNOWN["gre"]}), END)
    made.levels.take(given, known())
    return made


def damaged(change: Callable[[dict[str, Any]], object]) -> Any:
    data = copy.deepcopy(ledger().as_data())
    change(data)
    return data


def every(part: Callable[[dict[str, Any]], dict[str, Any]], **fields: Any) -> Any:
    return damaged(lambda data: [kept.update(fields) for kept in part(data).values()])


@pytest.mark.parametrize("runs", [5, [], {"n1\nn2": [1.0]}, {"n1\nn2": None}, {"n1\nn2": [None] * 5}])
def test_runs_that_are_none_are_refused(runs: Any) -> None:
    with pytest.raises(ValueError, match="it is damaged"):
        Ledger.from_data(every(lambda d: d["evidence"]["watched"], runs=runs), TERMS)


@pytest.mark.parametrize("time", ["inf", "-Infinity", "nan", math.inf])
def test_times_that_never_come_are_refused(time: Any) -> None:
    """A pair or a level that was seen at the end of time would take no window, ever."""
    for data in (
        every(lambda d: d["levels"], seen=time),
        every(lambda d: d["evidence"]["watched"], seen=time),
        every(lambda d: d["evidence"]["watched"], shown=time),
        damaged(lambda d: d["evidence"].update(fine_seen=time)),
        damaged(lambda d: d["evidence"].update(paths={"n1\ngre\nx": time})),
    ):
        with pytest.raises(ValueError, match="it is damaged"):
            Ledger.from_data(data, TERMS)


@pytest.mark.parametrize(
    "key", ["5", "[]", '["rtt"]', '["ping","","","p","gre","a","b"]', '[[],"","","","","",""]', "{"]
)
def test_levels_of_a_key_that_is_none_are_refused(key: str) -> None:
    with pytest.raises(ValueError):
        Ledger.from_data(
            damaged(lambda d: d["levels"].update({key: next(iter(d["levels"].values()))})), TERMS
        )
