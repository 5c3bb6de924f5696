"""Thanos above two replicas: one series of two, whichever is down, and old blocks from the bucket."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from scalekit import Machines, Replica, free_ports, instant

from vigia_testing import eventually

pytestmark = [pytest.mark.long, pytest.mark.scale, pytest.mark.thanos]

BLOCKS = ("--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h")
OLD = 86_400
"""Seconds ago for which only replica a has a block."""


class Sites:
    """Two replicas with a sidecar each, and a query above them and a store."""

    def __init__(self, machines: Machines) -> None:
        self.counter = machines.counter()
        self.old = int(time.time()) - OLD
        bucket = machines.folder / "bucket"
        bucket.mkdir()
        grpc = dict(zip("ab", free_ports(2), strict=True))
        store_grpc, store_http, query_grpc, query_http = free_ports(4)
        self.replicas = {n: Replica(machines, n, self.counter.address, {}, *BLOCKS) for n in "ab"}
        _backfill(self.replicas["a"].host.folder / "lib/prometheus", self.old)
        shared = {"/var/lib/vigia/thanos/bucket": str(bucket)}
        for name, replica in self.replicas.items():
            (http,) = free_ports(1)
            mine = {"127.0.0.1:10901": f"127.0.0.1:{grpc[name]}", "127.0.0.1:10902": f"127.0.0.1:{http}"}
            replica.host.texts |= shared | mine
            replica.host.put("deploy/thanos/bucket.yml", {})
            replica.start()
            replica.host.start("thanos-sidecar", "http://127.0.0.1:10902/-/ready")
        eventually(lambda: list(bucket.glob("*/meta.json")), "a block in the bucket")
        self.central = machines.host(
            "central",
            {
                **shared,
                "127.0.0.1:10901": f"127.0.0.1:{grpc['a']}",
                "127.0.0.1:11901": f"127.0.0.1:{grpc['b']}",
                "127.0.0.1:10911": f"127.0.0.1:{store_grpc}",
                "127.0.0.1:10912": f"127.0.0.1:{store_http}",
                "127.0.0.1:10921": f"127.0.0.1:{query_grpc}",
                "127.0.0.1:10922": f"127.0.0.1:{query_http}",
            },
        )
        self.central.put("deploy/thanos/bucket.yml", {})
        self.central.start("thanos-store", "http://127.0.0.1:10912/-/ready")
        self.central.start("thanos-query", "http://127.0.0.1:10922/-/ready")
        self.url = f"http://127.0.0.1:{query_http}"

    def newest(self) -> int:
        """Return the newest scrape that the query shows; there is one series."""
        found = instant(self.url, 'vigia_test_scrape{series="0"}')
        assert len(found) <= 1, found
        assert all("replica" not in f["metric"] and f["metric"]["site"] == "lis1" for f in found)
        return int(found[0]["value"][1]) if found else 0


def _backfill(data: Path, at: int) -> None:
    """Write a block of an hour that ends at a time, as Prometheus would have."""
    lines = [f'vigia_test_old{{series="0"}} {i} {at - 3600 + 60 * i}' for i in range(60)]
    page = data.parent / "old.txt"
    page.write_text("# TYPE vigia_test_old gauge\n" + "\n".join(lines) + "\n# EOF\n")
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", page, data], check=True, capture_output=True
    )


@pytest.fixture
def sites(machines: Machines) -> Sites:
    return Sites(machines)


def test_one_series_of_two_replicas_and_old_blocks_from_the_bucket(sites: Sites) -> None:
    sites.counter.more(5)
    eventually(
        lambda: len(instant(sites.url, 'vigia_test_scrape{series="0"}', dedup="false")) == 2, "both replicas"
    )
    eventually(lambda: sites.newest() > 5, "a series")
    histogram = "histogram_count(vigia_test_delay_seconds)"
    eventually(
        lambda: [float(f["value"][1]) > 10 for f in instant(sites.url, histogram)] == [True],
        "a native histogram",
    )
    sites.replicas["a"].host.close()
    seen = sites.counter.more(5)
    eventually(lambda: sites.newest() >= seen, "what replica b has scraped since")
    # Only the bucket has this now.
    eventually(
        lambda: [
            f["value"][1] for f in instant(sites.url, "count_over_time(vigia_test_old[2h])", time=sites.old)
        ]
        == ["60"],
        "the old block",
    )
