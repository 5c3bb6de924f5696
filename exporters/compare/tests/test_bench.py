"""The benchmark asks what there is: on a real Prometheus with native histograms and the rules as they are shipped."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from vigia_prometheus import Prometheus

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
