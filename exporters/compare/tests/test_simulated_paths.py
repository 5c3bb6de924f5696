"""Paths with known truth, minute after minute, through everything that the service does but the network.

Prometheus' answers are made up; asking, windows, pairing, evidence, family, verdict and exposition are the
program's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest
from prometheus_client import generate_latest

from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation, Ledger, evaluate, terms
from vigia_compare.exposition import Metrics
from vigia_compare.findings import EQUIVALENT, OPEN
from vigia_compare.source import Memory, Source
from vigia_prometheus import Prometheus
from vigia_statistics.samples import Floats

BEGIN = 1_800_000_017.0
CONFIG = Config(metrics=["rtt"], period="30m", prometheus="http://made.test")  # type: ignore[arg-type]
RTT = "path:vigia_probe_rtt_seconds:p50_rate1m"

Paths = Mapping[str, Floats]


class Site:
    """A server whose paths have one value a minute since BEGIN, and may have raw series by 15 s."""

    def __init__(self, paths: Paths, fine: Paths | None = None) -> None:
        self.paths, self.fine = paths, fine or {}
        self.info: dict[str, dict[str, str]] = {}
        self.now = BEGIN
        self.ledger = Ledger(terms(CONFIG))
        self.memory = Memory()
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = {k: v[0] for k, v in parse_qs(request.content.decode()).items()}
        self.asked.append(asked["query"])
        if request.url.path.endswith("/query"):
            recorded = (float(asked["time"]) - BEGIN) // 60.0 * 60.0 + BEGIN
            found = [{"metric": {}, "value": [self.now, repr(recorded)]}] if recorded > BEGIN else []
            return self._answer("vector", found)
        at = np.arange(float(asked["start"]), float(asked["end"]) + 0.5, float(asked["step"]))
        if "vigia_path_info" in asked["query"]:
            return self._matrix({p: np.ones(at.size) for p in self.paths}, at, self._info)
        if RTT in asked["query"]:
            return self._matrix(
                {p: self._values(v, at, 60.0) for p, v in self.paths.items()}, at, self._labels
            )
        if "histogram_quantile(0.5, " in asked["query"] and "vigia_probe_rtt_seconds" in asked["query"]:
            return self._matrix(
                {p: self._values(v, at, 15.0) for p, v in self.fine.items()}, at, self._labels
            )
        return self._answer("matrix", [])

    @staticmethod
    def _values(values: Floats, at: Floats, step: float) -> Floats:
        index = np.round((at - BEGIN) / step).astype(int) - 1
        return np.where(
            (index >= 0) & (index < values.size), values[np.clip(index, 0, values.size - 1)], np.nan
        )

    @staticmethod
    def _labels(path: str) -> dict[str, str]:
        return {"path": path, "probe": "stamp-64", "src": "n1", "dst": "n2"}

    def _info(self, path: str) -> dict[str, str]:
        usual = {"path": path, "node": "n1", "placement": "remote", "mode": "normal", "security": "none"}
        layer = (
            {"layer": "underlay", "encap": "none"}
            if path == "direct"
            else {"layer": "overlay", "encap": "gre"}
        )
        return usual | layer | self.info.get(path, {})

    def _matrix(self, values: Paths, at: Floats, labels: Any) -> httpx.Response:
        return self._answer(
            "matrix",
            [
                {
                    "metric": labels(p),
                    "values": [[t, repr(float(x))] for t, x in zip(at, v, strict=True) if np.isfinite(x)],
                }
                for p, v in values.items()
                if np.isfinite(v).any()
            ],
        )

    @staticmethod
    def _answer(kind: str, result: list[Any]) -> httpx.Response:
        body = {"status": "success", "data": {"resultType": kind, "result": result}}
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(body).encode()))

    def evaluation(self, after: float) -> Evaluation:
        """Evaluate that many seconds after the beginning, as the service would."""
        self.now = BEGIN + after
        with Prometheus("http://made.test", transport=httpx.MockTransport(self)) as prometheus:
            return evaluate(Source(prometheus, self.memory), CONFIG, self.now, self.ledger)

    def said(self, minutes: range) -> list[str]:
        """Verdict on the only pair that competes, after each of these minutes."""
        out = []
        for minute in minutes:
            (found,) = self.evaluation(60.0 * minute + 20.0).findings
            out.append(found.verdict)
        return out


def draw(rng: np.random.Generator, minutes: int, spread: float = 0.2) -> Floats:
    """First-order autoregression with r = 0.5, skewed."""
    noise = rng.normal(size=minutes + 20)
    for i in range(1, minutes + 20):
        noise[i] += 0.5 * noise[i - 1]
    return 40e-6 * np.exp(spread * noise[20:])


def test_identical_paths_that_are_watched_are_hardly_ever_told_apart() -> None:
    """Of 60 pairs watched each minute for four hours at most one in twenty is named: 7 has a chance of 3 %."""
    rng = np.random.default_rng(11)
    named = 0
    for _ in range(60):
        site = Site({"one": draw(rng, 240), "two": draw(rng, 240)})
        named += bool({"one", "two"} & set(site.said(range(10, 240, 23))))
    assert named <= 6


def test_a_third_more_of_a_new_path_is_found_within_half_an_hour_and_stays() -> None:
    """From windows of 15 s, whose neighbours depend on each other."""
    rng = np.random.default_rng(12)
    after = []
    for _ in range(8):
        fine = {"one": draw(rng, 360, 0.1), "two": 1.35 * draw(rng, 360, 0.1)}
        minutes = {p: v.reshape(90, 4).mean(axis=1) for p, v in fine.items()}
        site = Site(minutes, fine)
        said = site.said(range(1, 60, 5))
        first = said.index("one") if "one" in said else len(said)
        after.append(5 * first + 1)
        assert set(said[:first]) <= {OPEN} and set(said[first:]) <= {"one"}, "verdicts do not come and go"
    assert np.median(after) <= 30


def test_the_obvious_is_said_within_a_minute_of_a_path_that_is_new() -> None:
    """Before the rules have recorded anything: from scrapes."""
    rng = np.random.default_rng(13)
    base = 40e-6 * rng.lognormal(0.0, 0.1, 20)
    site = Site({"one": base[:4], "two": 20.0 * base[:4]}, {"one": base, "two": 20.0 * base})
    found = site.evaluation(68.0)
    assert found.news and [(f.verdict, f.windows > 0) for f in found.findings] == [("one", True)]
    assert found.standings[0].winner == "one"
    assert found.findings[0].since - BEGIN <= 60.0
    assert site.evaluation(400.0).findings[0].verdict == "one"
    assert not site.evaluation(460.0).news
    site.evaluation(3700.0)
    site.asked.clear()
    site.evaluation(3760.0)
    assert not any("histogram_quantile" in q for q in site.asked), "raw series are of the first hour alone"


def test_equivalent_is_an_answer() -> None:
    rng = np.random.default_rng(14)
    site = Site({p: 40e-6 * rng.lognormal(0.0, 0.02, 240) for p in ("one", "two")})
    said = site.said(range(20, 240, 20))
    assert said[-1] == EQUIVALENT
    standing = site.evaluation(240 * 60.0 + 20.0).standings[0]
    assert standing.level == ["one", "two"] and standing.said == "one and two are equivalent"


def test_three_paths_and_the_underlay_are_ranked_without_the_underlay() -> None:
    rng = np.random.default_rng(15)
    levels = {"direct": 0.1, "ovs-gre": 1.0, "ovs-vxlan": 5.0, "bridge": 0.2}
    site = Site({p: f * draw(rng, 90, 0.1) for p, f in levels.items()})
    for minute in range(30, 91, 10):
        found = site.evaluation(minute * 60.0 + 20.0)
    (cell,) = found.standings
    assert (cell.winner, list(cell.paths), list(cell.ranks)) == (
        "bridge",
        ["bridge", "ovs-gre", "ovs-vxlan"],
        [1, 2, 3],
    )
    assert {c.path for c in found.costs} == {"bridge", "ovs-gre", "ovs-vxlan"}
    metrics = Metrics()
    metrics.show(found)
    text = generate_latest(metrics.verdicts).decode()
    assert 'vigia_compare_winner{machines="",metric="rtt",note="",path="bridge",placement="remote"' in text
    assert text.count("vigia_compare_winner{") == 1


@pytest.mark.parametrize("changed", [False, True])
def test_a_path_that_is_configured_anew_is_judged_anew(changed: bool) -> None:
    rng = np.random.default_rng(16)
    site = Site({"one": draw(rng, 200, 0.1), "two": 5.0 * draw(rng, 200, 0.1)})
    assert site.said(range(20, 161, 20))[-1] == "one"
    if changed:
        site.info["two"] = {"dataplane": "another"}
        site.memory = Memory()
    (found,) = site.evaluation(166 * 60.0 + 20.0).findings
    assert found.windows == (6 if changed else 166)
    assert changed or found.verdict == "one"
