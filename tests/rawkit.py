"""What raw data say about paths, computed apart from vigia-compare: the probes' records, numpy and scipy."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Key = tuple[str, str]
"""Probe class and path."""

BUCKET = 2.0 ** (1.0 / 8.0)
"""Growth of the histograms' buckets: how exact a quantile of them is."""


def packets(address: str, **labels: str) -> dict[str, Floats]:
    """Every answered probe of the last minute from a probe's memory: sent at (Unix) and RTT, shape (n, 2), by path."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    answer = httpx.get(f"http://{address}/debug/records", params=labels, timeout=60, trust_env=False)
    assert answer.status_code == 200, answer.text
    for line in answer.text.splitlines():
        record = json.loads(line)
        if record["outcome"] == "received" and record.get("rtt_ns") is not None:
            found[record["path"]].append((_unix(record["time"]), record["rtt_ns"] * 1e-9))
    return {path: np.array(rows) for path, rows in found.items()}


def _unix(text: str) -> float:
    return float(np.datetime64(text.removesuffix("Z"), "ns").astype(np.int64)) * 1e-9


def medians(url: str, metric: str, end: float, window: float, count: int) -> dict[Key, Floats]:
    """Median of a native histogram by window, shape (count,), NaN without data: from the raw bucket counts."""
    edges = {
        "start": f"{end - count * window:.3f}",
        "end": f"{end:.3f}",
        "step": f"{window:.3f}",
        "query": f'{metric}{{tenant="_infra"}}',
    }
    body = httpx.get(f"{url}/api/v1/query_range", params=edges, timeout=60, trust_env=False).json()
    assert body["status"] == "success", body
    windows: dict[Key, list[dict[tuple[float, float], float]]] = {}
    for series in body["data"]["result"]:
        key = (series["metric"]["probe"], series["metric"]["path"])
        into = windows.setdefault(key, [{} for _ in range(count)])
        at = {round((t - end) / window) + count: _buckets(h) for t, h in series.get("histograms", ())}
        for i in range(count):
            if i in at and i + 1 in at:
                for bucket, n in at[i + 1].items():
                    into[i][bucket] = into[i].get(bucket, 0.0) + n - at[i].get(bucket, 0.0)
    return {key: np.array([_median(b) for b in each]) for key, each in windows.items()}


def _buckets(histogram: Mapping[str, Any]) -> dict[tuple[float, float], float]:
    return {(float(low), float(high)): float(n) for _, low, high, n in histogram.get("buckets", ())}


def _median(buckets: Mapping[tuple[float, float], float]) -> float:
    if not buckets or sum(buckets.values()) < 1.0 or min(buckets.values()) < 0.0:
        return float("nan")
    ordered = sorted(buckets.items())
    passed, half = 0.0, sum(buckets.values()) / 2.0
    for (low, high), n in ordered:
        if passed + n >= half:
            return low + (high - low) * (half - passed) / n
        passed += n
    raise AssertionError("a median lies in some bucket")
