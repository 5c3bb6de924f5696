"""Against a real VictoriaMetrics that has what Prometheus has: the same is said."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from portkit import free_port

from vigia_compare import report
from vigia_compare.config import Config
from vigia_compare.evaluation import Ledger, evaluate, terms
from vigia_compare.source import Memory, Source
from vigia_prometheus import Prometheus
from vigia_testing import DEADLINE, eventually


@pytest.fixture(scope="module")
def victoria(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("victoria")
    address = f"127.0.0.1:{free_port()}"
    words = [f"-storageDataPath={folder}/data", f"-httpListenAddr={address}", "-retentionPeriod=1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["victoria-metrics", *words, "-memory.allowedBytes=256MB"], stdout=log, stderr=log
        )
    client = httpx.Client(base_url=f"http://{address}", timeout=60, trust_env=False)

    def ready() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            return client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    try:
        with client:
            eventually(ready, "VictoriaMetrics to be ready")
            assert client.post("/api/v1/import/prometheus", content=_in_milliseconds(world.page)).is_success
            asked = {
                "query": "count(path:vigia_probe_rtt_seconds:p50_rate1m)",
                "time": f"{world.end - 600.0:.3f}",
            }

            def there() -> bool:
                client.get("/internal/force_flush")
                return bool(client.get("/api/v1/query", params=asked).json()["data"]["result"])

            eventually(there, "VictoriaMetrics to show what it took")
            yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def _in_milliseconds(page: str) -> str:
    lines = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
    return "\n".join(f"{sample} {float(at) * 1000:.0f}" for sample, _, at in lines) + "\n"


def said(source: Source, config: Config, at: float) -> dict[str, Any]:
    """Every value by where it is."""
    return dict(_leaves("", report.as_json(evaluate(source, config, at, Ledger(terms(config))))))


def _leaves(where: str, found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, dict | list):
        for name, value in found.items() if isinstance(found, dict) else enumerate(found):
            yield from _leaves(f"{where}/{name}", value)
    else:
        yield where, found


def test_it_says_the_same_as_prometheus(world: Any, victoria: str) -> None:
    """As a whole, and by the newest windows."""
    config = Config(prometheus=victoria)
    with Prometheus(world.url, DEADLINE) as prometheus, Prometheus(victoria, DEADLINE) as store:
        source = Source(store, Memory())
        for minutes in (10, 9, 8):
            at = world.end - 60.0 * minutes + 20.0
            by_store, by_prometheus = said(source, config, at), said(Source(prometheus), config, at)
            assert {"/comparisons/0/winner", "/losses/0/verdict", "/interference/0/verdict"} <= set(by_store)
            # They do not add up in the same order.
            assert by_store == pytest.approx(by_prometheus, rel=1e-6, abs=1e-12)
