"""The benchmarks measure what they say: on a real Prometheus with native histograms and the rules as they are shipped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vigia_prometheus import Prometheus
from vigia_testing.browser import chromium
from vigia_testing.paints import table

from . import bench_pages
from . import bench_windows as bench

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def loaded() -> Iterator[tuple[str, float]]:
    end = (time.time() - bench.PHASE) // 60 * 60 + bench.PHASE
    with bench.server(end, 15, records=True) as url:
        yield url, end


def test_further_evaluations_look_at_a_fraction_of_the_samples(loaded: tuple[str, float]) -> None:
    first, later = bench.after(*loaded, turns=2)
    assert first.questions == later.questions > 20
    assert later.samples * 15 < first.samples


def test_raw_series_are_asked_for_what_the_records_say(loaded: tuple[str, float]) -> None:
    url, end = loaded
    with Prometheus(url, 60.0) as prometheus:
        for expression, window, _ in bench._raw():
            asked = expression.replace("$window", f"{4 * window:.0f}s")
            found = [s.value for s in prometheus.instant(asked, end)]
            assert found and np.isfinite(found).all(), asked
    raw = bench.before(url, end, turns=1)
    first, _ = bench.after(url, end, turns=1)
    assert raw.samples > first.samples


def test_the_shipped_rules_are_evaluated(loaded: tuple[str, float]) -> None:
    found = bench.rules(*loaded, turns=1)
    assert found.questions >= 5 and found.samples > 0


def test_every_page_of_the_site_is_painted(tmp_path: Path) -> None:
    with bench_pages.served(tmp_path, nodes=5, ports=2) as program, chromium() as browser:
        url = f"http://{program.listen}"
        seen = program.get("/v1/site").json()
        assert len(seen["floods"]) == len(seen["limits"]) == len(seen["alerts"]) == 5
        wanted = {"_infra", *(f"tenant-{i:02}" for i in range(6))}
        assert {t["tenant"] for t in seen["tenants"]} == wanted
        assert program.get("/mesh").text.count('<td class="h') >= 5 * 4
        found = bench_pages.visits(browser, url, rounds=1, further=2, pause=0.0)
    assert {k: len(v) for k, v in found.items()} == {
        f"{page}, {who}": n
        for page in ("/", "/mesh", "/tenants", "/incidents")
        for who, n in (("first", 1), ("further", 2))
    }
    assert all(0 < p.answered <= p.painted and p.content > p.answered for v in found.values() for p in v)
    assert all(f"\n{what} " in table(found) for what in found)
