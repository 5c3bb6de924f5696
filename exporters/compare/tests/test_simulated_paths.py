"""Paths with known truth, through everything that the service does but the network: identical ones tie.

Prometheus' answers are made up; asking, windows, merging, tests, correction, verdict and exposition are the
program's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest
from prometheus_client import generate_latest

from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation, evaluate
from vigia_compare.exposition import Metrics
from vigia_compare.source import Source
from vigia_prometheus import Prometheus
from vigia_statistics import Verdict
from vigia_statistics.samples import Floats

NOW = 1_800_000_000.0
CONFIG = Config(metrics=["rtt"], window="60s", period="2h", minimum_windows=5)  # type: ignore[arg-type]
WINDOWS = 120
RTT = "path:vigia_probe_rtt_seconds:p50_rate1m"
TAX = "path:vigia_probe_overlay_tax_seconds:p50_rate1m"

Paths = Mapping[str, Floats]


class Made:
    """A server that answers round trips, and differences of twins, of its choice."""

    def __init__(self, paths: Paths, twins: Paths | None = None) -> None:
        self.values = {RTT: paths, TAX: twins or {}}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = {k: v[0] for k, v in parse_qs(request.content.decode()).items()}
        if request.url.path.endswith("/query"):
            return self._answer("vector", [{"metric": {}, "value": [NOW, repr(NOW - 21.5)]}])
        if "vigia_path_info" in asked["query"]:
            found = [self._info(p) for p in self.values[RTT]]
            return self._answer(
                "matrix", [{"metric": i, "values": [[float(asked["end"]), "1"]]} for i in found]
            )
        wanted = [m for m in self.values if f'{m}{{tenant="_infra"}}' in asked["query"]]
        if len(wanted) != 1:
            return self._answer("matrix", [])
        at = float(asked["start"]) + float(asked["step"]) * np.arange(WINDOWS)
        assert at[-1] == float(asked["end"]) == NOW - 21.5, "windows end where the rules were evaluated"
        return self._answer(
            "matrix",
            [
                {
                    "metric": {"path": path, "probe": "stamp-64"},
                    "values": [
                        [t, "NaN" if np.isnan(v) else repr(float(v))] for t, v in zip(at, values, strict=True)
                    ],
                }
                for path, values in self.values[wanted[0]].items()
            ],
        )

    @staticmethod
    def _info(path: str) -> dict[str, str]:
        layer = "underlay" if path == "direct" else "overlay"
        return {"path": path, "placement": "remote", "layer": layer}

    @staticmethod
    def _answer(kind: str, result: list[Any]) -> httpx.Response:
        body = {"status": "success", "data": {"resultType": kind, "result": result}}
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(body).encode()))

    def evaluation(self) -> Evaluation:
        transport = httpx.MockTransport(self)
        with Prometheus("http://made.test", transport=transport) as prometheus:
            return evaluate(Source(prometheus), CONFIG, NOW)


def _independent(rng: np.random.Generator) -> Floats:
    return 1e-6 * rng.lognormal(3.0, 0.3, WINDOWS)


def _dependent(rng: np.random.Generator) -> Floats:
    """First-order autoregression with r = 0.5, skewed."""
    noise = rng.normal(size=WINDOWS + 20)
    for i in range(1, WINDOWS + 20):
        noise[i] += 0.5 * noise[i - 1]
    return 1e-6 * np.exp(3.0 + 0.3 * noise[20:])


@pytest.mark.parametrize(
    ("families", "draw", "rates"),
    [
        (250, _independent, (0.01, 0.08)),
        (250, _dependent, (0.02, 0.12)),
        pytest.param(2000, _independent, (0.03, 0.055), marks=pytest.mark.long),
        pytest.param(2000, _dependent, (0.06, 0.10), marks=pytest.mark.long),
    ],
)
def test_two_identical_paths_tie(
    families: int, draw: Callable[[np.random.Generator], Floats], rates: tuple[float, float]
) -> None:
    """But for 5 % nominal. Interval and test must both separate, which takes some of it for windows that do
    not depend on each other (4 %); merging is an approximation for those that do (8 %). The bounds are three
    standard errors around that: a comparison that never separates fails as well."""
    rng = np.random.default_rng(11)
    named = 0
    for _ in range(families):
        (group,) = Made({"one": draw(rng), "two": draw(rng)}).evaluation().groups
        assert group.enough_data and [p.windows for p in group.paths] == [WINDOWS, WINDOWS]
        named += group.winner is not None
    assert rates[0] <= named / families <= rates[1]


def test_what_is_exposed_is_the_verdict() -> None:
    rng = np.random.default_rng(12)
    metrics = Metrics()
    key = 'metric="rtt",path="{}",placement="remote",probe="stamp-64",tie="{}"'
    one, two = _independent(rng), _independent(rng)
    for paths, labels in (
        ({"one": one, "two": two}, key.format("", "true")),
        ({"one": one, "two": 2.0 * two}, key.format("one", "false")),
    ):
        metrics.findings.show(Made(paths).evaluation())
        assert f"vigia_compare_winner{{{labels}}} 1.0" in generate_latest(metrics.registry).decode()
    gap = np.where(np.arange(WINDOWS) < WINDOWS - 4, np.nan, one)
    metrics.findings.show(Made({"one": gap, "two": 2.0 * two}).evaluation())
    text = generate_latest(metrics.registry).decode()
    assert "vigia_compare_winner{" not in text and 'verdict="not enough data"' in text


def test_twins_decide_by_wilcoxon_what_common_noise_hides() -> None:
    """Load that both probes of a pair meet hides 1 us from unpaired tests, and cancels in the differences."""
    rng = np.random.default_rng(13)
    common = 1e-6 * rng.lognormal(4.0, 0.8, WINDOWS)
    paths = {"direct": common, "ovs-vxlan": common + rng.normal(1e-6, 5e-7, WINDOWS)}
    (unpaired,) = Made(paths).evaluation().groups
    assert unpaired.pairs[0].verdict is Verdict.TIE and unpaired.pairs[0].test == "mann-whitney"
    tax = {"ovs-vxlan": paths["ovs-vxlan"] - paths["direct"]}
    made = Made(paths, tax).evaluation()
    (paired,) = made.groups
    (pair,) = paired.pairs
    assert (pair.a, pair.b, pair.test) == ("direct", "ovs-vxlan", "wilcoxon signed-rank")
    assert paired.winner == "direct" and pair.samples_a == WINDOWS
    assert pair.lower < -1e-6 < pair.upper < 0.0
    (cost,) = made.costs
    assert cost.element == "overlay ovs-vxlan" and cost.estimate == pytest.approx(0.5e-6, rel=0.15)


def test_identical_twins_tie_at_the_nominal_rate() -> None:
    rng = np.random.default_rng(14)
    named = 0
    for _ in range(200):
        values = _independent(rng)
        made = Made({"direct": values, "gre": values}, {"gre": rng.normal(0.0, 1e-6, WINDOWS)})
        named += made.evaluation().groups[0].winner is not None
    assert named / 200 <= 0.09


def test_twins_of_one_of_two_underlays_stay_unpaired() -> None:
    """Nobody knows which of them the twin took."""
    rng = np.random.default_rng(15)
    made = Made({"direct": _independent(rng), "gre": _independent(rng)}, {"gre": _independent(rng)})
    made._info = lambda path: {"path": path, "placement": "remote", "layer": "underlay"}  # type: ignore[method-assign]
    (group,) = made.evaluation().groups
    assert group.pairs[0].test == "mann-whitney"
