"""The figures of the paths, from a Prometheus of a few lines that answers what it is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from vigia.demo import measured
from vigia.errors import VigiaError
from vigia.lab.model import Lab
from vigia_prometheus import Prometheus


def directions(lab: Lab) -> list[tuple[str, str, str]]:
    return sorted(
        (t.path, t.source, t.destination) for n in lab.nodes for t in lab.targets(n) if t.tenant == "_infra"
    )


def answering(lab: Lab, value: Callable[[str, tuple[str, str, str]], float | None]) -> Prometheus:
    """A server that has for each direction what a function says of a query; None is no series."""

    def answer(request: httpx.Request) -> httpx.Response:
        (query,) = parse_qs(request.content.decode())["query"]
        found = [
            {
                "metric": dict(zip(("path", "src", "dst"), key, strict=True)),
                "value": [1.0, str(v).replace("nan", "NaN")],
            }
            for key in directions(lab)
            if (v := value(query, key)) is not None
        ]
        body = {"status": "success", "data": {"resultType": "vector", "result": found}}
        return httpx.Response(200, content=iter([json.dumps(body).encode()]))

    return Prometheus("http://prometheus.test", transport=httpx.MockTransport(answer))


def usual(query: str, key: tuple[str, str, str]) -> float:
    """The figures of a quiet lab."""
    if "histogram_quantile(0.5" in query:
        return 73e-6
    if "histogram_quantile(0.99" in query:
        return 1.037e-3
    if "jitter" in query:
        return 30e-6
    if "histogram_count" in query:
        return 119.0
    assert re.search(r"vigia_probe_lost_total.* / .*vigia_probe_sent_total", query), query
    return 0.0


def test_the_demo_has_ten_directions(pairs: Lab) -> None:
    """Four paths: the direct one on both wires."""
    assert len(directions(pairs)) == 10


def test_figures_of_every_direction(pairs: Lab) -> None:
    found = measured.read(pairs, answering(pairs, usual))
    assert [(f.path, f.source, f.destination) for f in found] == directions(pairs)
    assert {(f.p50, f.p99, f.jitter, f.loss, f.samples) for f in found} == {
        (73e-6, 1.037e-3, 30e-6, 0.0, 119)
    }
    lines = measured.as_table(found).splitlines()
    assert lines[0].split() == ["path", "from", "to", "RTT", "p50", "RTT", "p99", "jitter", "loss", "samples"]
    assert lines[1].split()[3:] == ["73.0", "µs", "1.04", "ms", "30.0", "µs", "0", "%", "119"]
    assert found[0].as_json()["p99"] == 1.037e-3
    narrow = measured.as_table(found, 64).splitlines()
    assert max(map(len, narrow)) <= 64 and "1.04 ms" in narrow[1], "names are folded, figures are not"


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_direction_without_figures_is_named(pairs: Lab, missing: float | None) -> None:
    def value(query: str, key: tuple[str, str, str]) -> float | None:
        lost = key == ("ovs-gre", "ovs2", "ovs1") and "0.99" in query
        return missing if lost else usual(query, key)

    with pytest.raises(VigiaError, match="Prometheus has no figures of path ovs-gre from ovs2 to ovs1"):
        measured.read(pairs, answering(pairs, value))


def test_waiting_counts_the_directions_that_have_enough(pairs: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_PAUSE", 0.0)
    asked: list[str] = []

    def value(query: str, key: tuple[str, str, str]) -> Any:
        if not asked or asked[-1] != key[0] or key not in directions(pairs)[1:]:
            asked.append(key[0])
        slow = key == directions(pairs)[-1] and len(asked) < 2 * len(directions(pairs))
        return 99.0 if slow else 100.0

    counts = list(measured.wait_for_samples(pairs, answering(pairs, value), 100, 30))
    assert counts[-1] == 10
    assert counts == sorted(counts)


def test_waiting_gives_up_and_names_the_path(pairs: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_DEADLINE", -1.0)

    def value(query: str, key: tuple[str, str, str]) -> float:
        return 3.0 if key == ("direct", "lb2", "lb1") else 100.0

    with pytest.raises(
        VigiaError, match=r"path direct from lb2 to lb1 still has fewer than 100 answered probes"
    ) as e:
        list(measured.wait_for_samples(pairs, answering(pairs, value), 100, 30))
    assert "http://127.77.0.2:9871/debug/targets" in str(e.value)
