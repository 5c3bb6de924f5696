"""Stores that take remote write: nothing is lost, and nothing is there twice, after they were away."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from scalekit import HTTP, Counter, Machines, Samples, free_ports, samples, vm_samples

from vigia_testing import eventually

pytestmark = [pytest.mark.long, pytest.mark.scale]

EVERY = 2
"""Seconds between scrapes, and within which one has to be answered: one that is too late is lost before it is sent, and
`up` says so."""
HOUR = 10
"""Scrapes that stand for an hour: 1:180."""
QUEUE = "max_shards: 1\n      capacity: 100\n      max_samples_per_send: 50"
"""In memory less than two scrapes wait, so that the log is what keeps the others."""


class Stores:
    """A Prometheus and a VictoriaMetrics that receive, and an agent that sends to both what a page counts."""

    def __init__(self, machines: Machines) -> None:
        agent, receiver, victoria = free_ports(3)
        self.counter = machines.counter()
        self.remote = machines.host("remote", {"127.0.0.1:9090": f"127.0.0.1:{receiver}"})
        self.remote.texts["127.0.0.1:8428"] = f"127.0.0.1:{victoria}"
        self.prometheus_url = f"http://127.0.0.1:{receiver}"
        self.victoria_url = f"http://127.0.0.1:{victoria}"
        (self.remote.folder / "etc/prometheus").mkdir()
        (self.remote.folder / "etc/prometheus/receiver.yml").write_text("")
        self.receiver = self.remote.start("receiver", f"{self.prometheus_url}/-/ready")
        self.remote.texts["=15s"] = "=1ms"  # every sample is looked at
        self.victoria = self.remote.start("victoria-metrics", f"{self.victoria_url}/health")
        # In its file the agent has the stores' addresses, on its command line its own.
        self.branch = machines.host("branch", self.remote.texts)
        changes = {"scrape_interval: 15s": f"scrape_interval: {EVERY}s", "max_shards: 10": QUEUE}
        self.branch.put("deploy/prometheus/agent.yml", changes)
        self.branch.targets(vigia_exporter=[{"targets": [self.counter.address], "labels": {"node": "n1"}}])
        # Its log is cut as rarely as on the page: on a busy machine the stores are away for longer than for HOUR.
        self.branch.texts = {"127.0.0.1:9090": f"127.0.0.1:{agent}"}
        self.agent_url = f"http://127.0.0.1:{agent}"
        self.agent = self.branch.start("agent", f"{self.agent_url}/-/ready")

    def metric(self, name: str) -> float:
        """Return the sum of a metric of the agent's own over its queues."""
        lines = HTTP.get(f"{self.agent_url}/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def both(self) -> dict[str, Samples]:
        return self._of('{__name__="vigia_test_scrape",site="opo1",node="n1"}', "series")

    def _of(self, selector: str, *labels: str) -> dict[str, Samples]:
        return {
            "prometheus": samples(self.prometheus_url, selector, *labels),
            "victoria-metrics": vm_samples(self.victoria_url, selector, *labels),
        }

    def missing(self, scrapes: int) -> dict[str, int]:
        """Return how many of the samples of the first scrapes each store lacks, but for scrapes that were too late."""
        ups = self._of('up{site="opo1",node="n1",job="vigia-exporter"}')
        late = {name: [t for t, v in found.get((), []) if v == 0] for name, found in ups.items()}
        return {
            name: sum(lacking(found.get((str(i),), []), scrapes, late[name]) for i in range(Counter.series))
            for name, found in self.both().items()
        }

    def complete(self, scrapes: int) -> None:
        """Wait until no sample of the first scrapes is missing."""
        eventually(
            lambda: not any(self.missing(scrapes).values()),
            lambda: f"all of {scrapes} scrapes: {self.missing(scrapes)}",
        )

    def absence(self, scrapes: int) -> int:
        """Take both stores away for so many scrapes; returns how many there have been in all."""
        self.receiver.kill()
        self.victoria.stop()
        seen = self.counter.more(scrapes)
        self.receiver.start()
        self.victoria.start()
        return seen


def lacking(kept: Sequence[tuple[float, float]], scrapes: int, late: Sequence[float]) -> int:
    """Return how many counts up to one are not there, but for as many as scrapes were too late meanwhile."""
    lost, before = 0, (-math.inf, 0)
    for at, value in [*sorted(kept), (math.inf, scrapes + 1)]:
        count = min(int(value), scrapes + 1)
        gap, excused = count - before[1] - 1, sum(before[0] < t < at for t in late)
        lost += max(0, gap - excused)
        before = (at, count)
    return lost


def test_only_scrapes_that_were_too_late_excuse_what_is_missing() -> None:
    kept = [(2.0, 1.0), (4.0, 2.0), (8.0, 4.0), (10.0, 5.0)]
    assert lacking(kept, 2, []) == 0
    assert lacking(kept, 5, []) == lacking(kept, 5, [2.0, 9.0]) == 1
    assert lacking(kept, 5, [6.0]) == 0
    assert lacking(kept, 7, [6.0, 12.0]) == 1
    assert lacking([], 3, []) == 3


@pytest.fixture
def stores(machines: Machines) -> Stores:
    return Stores(machines)


def test_stores_that_were_away_for_an_hour_have_every_sample_once(stores: Stores) -> None:
    stores.complete(stores.counter.more(5))
    stores.complete(stores.absence(HOUR))
    stores.complete(stores.absence(HOUR))
    for name, found in stores.both().items():
        assert len(found) == Counter.series, name
        for series, kept in found.items():
            values = [v for _, v in kept]
            assert len(values) == len(set(values)), f"{name} has samples of {series} twice"
    for name in ("samples_failed_total", "samples_dropped_total"):
        assert stores.metric(f"prometheus_remote_storage_{name}") == 0, name


def test_a_sender_that_is_restarted_meanwhile_loses_what_waited(stores: Stores) -> None:
    """The limit that the page states; and a loss is one that the test above would see."""
    stores.complete(stores.counter.more(5))
    stores.receiver.kill()
    stores.victoria.stop()
    stores.counter.more(HOUR)
    stores.agent.kill()
    stores.agent.start()
    stores.receiver.start()
    stores.victoria.start()
    last = stores.counter.more(3)
    eventually(
        lambda: all(any(v >= last for _, v in found.get(("0",), [])) for found in stores.both().values()),
        lambda: f"scrape {last}: {stores.missing(last)}",
    )
    assert all(count > 0 for count in stores.missing(last).values())
