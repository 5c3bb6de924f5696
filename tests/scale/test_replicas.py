"""Two Prometheus replicas and one store: a sample for each interval, whichever of them was down."""

from __future__ import annotations

import math
import time

import pytest
from scalekit import Machines, Program, Replica, free_ports, samples, vm_samples

from vigia_testing import eventually

pytestmark = [pytest.mark.long, pytest.mark.scale]

SELECTOR = '{__name__="vigia_test_scrape",series="0"}'


class Site:
    """Two replicas that scrape one page each second and send to one store, which keeps one sample in a second."""

    def __init__(self, machines: Machines) -> None:
        (port,) = free_ports(1)
        self.store_url = f"http://127.0.0.1:{port}"
        store = {"127.0.0.1:8428": f"127.0.0.1:{port}"}
        self.counter = machines.counter()
        self.central = machines.host("central", {**store, "=15s": "=1s"})
        self.central.start("victoria-metrics", f"{self.store_url}/health")
        self.a, self.b = (Replica(machines, name, self.counter.address, store) for name in "ab")
        self._deaths: list[tuple[Replica, set[int], float]] = []
        """Who died, which intervals the store had just before, and a time between its death and its next start."""

    def kill(self, replica: Replica, program: Program) -> None:
        """Kill one of the two, once the store has what they scraped until now."""
        sent = self.complete()
        program.kill()
        self._deaths.append((replica, sent, time.time()))

    def intervals(self) -> list[int]:
        """Return the interval of each sample that the store has, by the second at its end."""
        found = vm_samples(self.store_url, SELECTOR, "site", "replica")
        assert set(found) <= {("lis1", "")}, "one series, without the label replica"
        return sorted(math.ceil(t) for t, _ in found.get(("lis1", ""), []))

    def scraped(self) -> set[int]:
        """Return the intervals in which one of the two has scraped, but for what only one had that died before it sent."""
        local = {
            r: {math.ceil(t) for t, _ in samples(r.url, SELECTOR, "series")[("0",)]} for r in (self.a, self.b)
        }
        for replica, sent, at in self._deaths:
            local[replica] -= {i for i in local[replica] if i < at + 1} - sent
        return local[self.a] | local[self.b]

    def complete(self) -> set[int]:
        """Wait until the store has a sample for each interval in which one has scraped; returns them."""
        wanted = self.scraped()
        eventually(
            lambda: wanted <= set(self.intervals()),
            lambda: f"intervals {sorted(wanted - set(self.intervals()))}",
        )
        return wanted


@pytest.fixture
def site(machines: Machines) -> Site:
    return Site(machines)


def test_the_store_has_one_sample_for_each_interval_and_none_is_missing(site: Site) -> None:
    a, b = site.a.start(), site.b.start()
    site.counter.more(8)
    # What one of them scraped just before it died may not have been sent; then the other one's is there.
    site.kill(site.a, a)
    site.counter.more(5)
    a.start()
    site.counter.more(8)
    site.kill(site.b, b)
    site.counter.more(5)
    b.start()
    site.counter.more(5)
    assert len(site.complete()) > 12
    kept = site.intervals()
    assert len(kept) == len(set(kept)), "two samples in one interval"
