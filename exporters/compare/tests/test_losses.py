"""Losses with a planted cause: the counter that saw it is named, and where none did, that is said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from vigia_compare import losses
from vigia_compare.losses import Pinned
from vigia_compare.paths import Known, attributes
from vigia_compare.source import Source
from vigia_compare.windows import Grid
from vigia_prometheus import Prometheus
from vigia_statistics.samples import Floats

from .test_questions import GRID, Store

WINDOWS = GRID.count
PATH = {"src": "n1", "dst": "n2", "path": "ovs-gre", "tenant": "blue"}


@dataclass
class Hosts:
    """What the programs of two nodes count by the minute while a path loses probes."""

    rng: np.random.Generator
    growth: dict[str, list[tuple[Mapping[str, str], Floats]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A neighbour at its limit, a full queue of its own, strays of devices: they count all the time, or now and then.
        for node in ("n1", "n2"):
            busy = self.rng.poisson(200.0, WINDOWS) * (self.rng.random(WINDOWS) < 0.3)
            self.count("vigia_isolation_policed_packets_total", busy, node=node, tenant="red")
            self.count("vigia_port_drops_total", busy, node=node, tenant="red", reason="rate_limit")
            stray = self.rng.poisson(0.2, WINDOWS)
            self.count("vigia_port_drops_total", stray, node=node, tenant="blue", reason="other")
            self.count(
                "node_network_receive_drop_total", self.rng.poisson(1.0, WINDOWS), node=node, device="up0"
            )
            self.count(
                "vigia_ovs_port_drops_total", self.rng.poisson(0.1, WINDOWS), node=node, device="br-int"
            )
            self.count("vigia_exporter_collector_success", np.ones(WINDOWS), node=node)

    def count(self, metric: str, values: Any, **labels: str) -> None:
        self.growth.setdefault(metric, []).append((labels, np.asarray(values, dtype=float)))

    def loses(self, lost: Floats, cause: str = "unknown") -> None:
        self.count("vigia_probe_lost_total", lost, **PATH, cause=cause)

    def episodes(self) -> Floats:
        """Probes lost by window: one burst, or several, of one window or more; some of it spills into the next."""
        lost = np.zeros(WINDOWS)
        for _ in range(self.rng.integers(1, 5)):
            begin = self.rng.integers(2, WINDOWS - 6)
            length = self.rng.integers(1, 4)
            lost[begin : begin + length] += self.rng.integers(4, 200)
        return lost

    def beside(self, lost: Floats, factor: float) -> Floats:
        """What a counter has of it, scraped a little later: tenants' packets are dropped with the probes."""
        part = self.rng.uniform(0.0, 0.25)
        counted = np.round(lost * factor * self.rng.uniform(0.9, 1.1, WINDOWS))
        late = np.round(counted * part)
        return counted - late + np.concatenate([[0.0], late[:-1]])

    def find(self) -> Pinned:
        source = self.source()
        (found,) = losses.find(source, GRID, attributes(source, GRID))
        return found

    def source(self) -> Source:
        return Source(Prometheus("http://made.test", transport=httpx.MockTransport(Exact(**self.growth))))


class Exact(Store):
    """Answers by the first metric of a question."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        first = re.search(r"\b(?:vigia|node)_\w+", parse_qs(request.content.decode())["query"][0])
        assert first is not None
        everything = self.answers
        self.answers = {first[0]: everything.get(first[0], [])}
        if first[0] == "vigia_probe_lost_total":  # asked for together
            self.answers[first[0]] = self.answers[first[0]] + everything.get("vigia_probe_sent_total", [])
        try:
            return super().__call__(request)
        finally:
            self.answers = everything


def policer(h: Hosts) -> None:
    lost = h.episodes()
    h.loses(lost)
    more = h.beside(lost, 30.0)
    h.count("vigia_isolation_policed_packets_total", more, node="n1", tenant="blue")
    h.count("vigia_port_drops_total", more, node="n1", tenant="blue", reason="rate_limit")


def queue(h: Hosts) -> None:
    lost = h.episodes()
    h.loses(lost)
    more = h.beside(lost, 50.0)
    h.count("vigia_port_drops_total", more, node="n1", tenant="blue", reason="queue_full")
    h.count("vigia_qdisc_drops_total", more + h.rng.poisson(3.0, WINDOWS), node="n1", device="up0")


def socket_of_the_prober(h: Hosts) -> None:
    h.loses(h.episodes(), "local_overflow")
    h.loses(h.rng.poisson(0.01, WINDOWS).astype(float), "unknown")


def socket_of_the_reflector(h: Hosts) -> None:
    lost = h.episodes()
    h.loses(lost, "reflector_overflow")
    h.count("vigia_reflector_overflow_total", h.beside(lost, 1.0), node="n2")


def forced_drop(h: Hosts) -> None:
    """A rule of a firewall: the probes alone, one for one."""
    lost = h.episodes()
    h.loses(lost)
    h.count("vigia_port_drops_total", h.beside(lost, 1.0), node="n2", tenant="blue", reason="policy")


def mtu(h: Hosts) -> None:
    lost = h.episodes()
    h.loses(lost)
    h.count("vigia_port_drops_total", h.beside(lost, 1.5), node="n1", tenant="blue", reason="mtu")


def table_miss(h: Hosts) -> None:
    """Packets that matched nothing: looked up, and not matched."""
    lost = h.episodes()
    h.loses(lost)
    h.count("vigia_openflow_table_lookups_total", h.beside(lost, 3.0), node="n1", table="0")


def upcalls_lost(h: Hosts) -> None:
    lost = h.episodes()
    h.loses(lost)
    h.count("vigia_ovs_datapath_lookups_total", h.beside(lost, 20.0), node="n2", result="lost")


def openflow_rule(h: Hosts) -> None:
    """A rule that drops, in a switch in user space: no port and no table counts that, but the switch does."""
    lost = h.episodes()
    h.loses(lost)
    more = h.beside(lost, 1.2)
    h.count("vigia_ovs_coverage_events_total", more, node="n1", event="drop_action_of_pipeline")


PLANTED: Mapping[Callable[[Hosts], None], set[tuple[str, str, str]]] = {
    policer: {
        ("n1", "vigia_isolation_policed_packets_total", ""),
        ("n1", "vigia_port_drops_total", "rate_limit"),
    },
    queue: {("n1", "vigia_port_drops_total", "queue_full"), ("n1", "vigia_qdisc_drops_total", "up0")},
    socket_of_the_prober: {("n1", "vigia_probe_lost_total", "local_overflow")},
    socket_of_the_reflector: {("n2", "vigia_probe_lost_total", "reflector_overflow")},
    forced_drop: {("n2", "vigia_port_drops_total", "policy")},
    mtu: {("n1", "vigia_port_drops_total", "mtu")},
    table_miss: {("n1", "vigia_openflow_table_lookups_total", "0")},
    upcalls_lost: {("n2", "vigia_ovs_datapath_lookups_total", "lost")},
    openflow_rule: {("n1", "vigia_ovs_coverage_events_total", "drop_action_of_pipeline")},
}


@pytest.mark.parametrize("runs", [pytest.param(30), pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("plant", PLANTED, ids=lambda f: f.__name__)
def test_the_counter_of_a_planted_cause_is_named(plant: Callable[[Hosts], None], runs: int) -> None:
    said: Counter[object] = Counter()
    for seed in range(runs):
        hosts = Hosts(np.random.default_rng([51, seed]))
        plant(hosts)
        found = hosts.find()
        best = found.counters[0] if found.counters else None
        said[(found.verdict, (best.node, best.name, best.detail) if best else None)] += 1
    right = sum(n for (verdict, where), n in said.items() if verdict == "pinned" and where in PLANTED[plant])
    assert right >= 0.9 * runs, said


def test_losses_that_no_host_has_are_not_on_these_hosts() -> None:
    """In the network between: everything that the hosts drop was counted, and it is too little."""
    said = Counter()
    for seed in range(60):
        hosts = Hosts(np.random.default_rng([52, seed]))
        hosts.loses(hosts.episodes() + 20.0 * (np.arange(WINDOWS) == 30))
        said[hosts.find().verdict] += 1
    assert said["not on these hosts"] >= 54 and said["pinned"] <= 3, said


def test_a_host_whose_counters_are_missing_may_have_dropped_it() -> None:
    hosts = Hosts(np.random.default_rng(53))
    hosts.loses(hosts.episodes())
    assert hosts.find().verdict == "not on these hosts"
    success = hosts.growth["vigia_exporter_collector_success"]
    hosts.growth["vigia_exporter_collector_success"] = success[:1]
    assert hosts.find().verdict in ("insufficient evidence", "no counter"), "n2 has no exporter"
    hosts.growth["vigia_exporter_collector_success"] = [success[0], (success[1][0], np.zeros(WINDOWS))]
    assert hosts.find().verdict in ("insufficient evidence", "no counter"), "it cannot read what it drops"


def test_what_a_neighbour_loses_at_its_own_port_is_no_cause() -> None:
    lost = np.where(np.isin(np.arange(WINDOWS), (10, 11, 30, 45)), 20.0, 0.0)
    hosts = Hosts(np.random.default_rng(54))
    hosts.loses(lost)
    hosts.count("vigia_port_drops_total", 1000.0 * lost, node="n1", tenant="red", reason="rate_limit")
    assert hosts.find().verdict == "not on these hosts"
    hosts.count("vigia_port_drops_total", 30.0 * lost, node="n1", tenant="_shared", reason="queue_full")
    found = hosts.find()
    assert (found.verdict, found.counters[0].detail) == ("pinned", "queue_full"), "a class that they share"


def _full_queue_and_one_path(seed: int, others: float) -> Pinned:
    """A path loses a third of its probes in one minute, and another one so many of its 60, while a queue is full."""
    lost = np.where(np.arange(WINDOWS) == 30, 20.0, 0.0)
    hosts = Hosts(np.random.default_rng([58, seed]))
    hosts.loses(lost)
    full = np.where(np.arange(WINDOWS) == 30, 900.0, 0.0)
    hosts.count("vigia_qdisc_drops_total", full, node="n1", device="eth0")
    hosts.count("node_qdisc_drops_total", full, node="n1", device="eth0")
    hosts.count("vigia_port_drops_total", full, node="n1", tenant="_infra", reason="queue_full")
    back = {**PATH, "src": "n2", "dst": "n1"}
    beside = {**PATH, "path": "linuxbridge-vxlan", "tenant": "green"}
    for labels in (PATH, back, beside):
        hosts.count("vigia_probe_sent_total", np.full(WINDOWS, 60.0), **labels)
    hosts.count("vigia_probe_lost_total", others * lost / lost.max(), **beside, cause="unknown")
    source = hosts.source()
    return next(p for p in losses.find(source, GRID, attributes(source, GRID)) if p.path == PATH["path"])


def test_a_path_to_another_host_tells_nothing_of_a_queue() -> None:
    """It may leave by another device."""
    lost = np.where(np.arange(WINDOWS) == 30, 20.0, 0.0)
    hosts = Hosts(np.random.default_rng(61))
    hosts.loses(lost)
    hosts.count("vigia_qdisc_drops_total", 30 * lost, node="n1", device="eth0")
    for labels in (PATH, {**PATH, "dst": "n3", "tenant": "green"}):
        hosts.count("vigia_probe_sent_total", np.full(WINDOWS, 60.0), **labels)
    assert hosts.find().verdict == "pinned"


@pytest.mark.parametrize("seed", range(5))
def test_a_full_queue_loses_no_path_more_than_the_others_through_it(seed: int) -> None:
    """Another path between the hosts was measured meanwhile: it tells what the queue, which cannot choose, lost."""
    found = _full_queue_and_one_path(seed, others=0.0)
    assert found.verdict == "not on these hosts"
    covered = {c.name: c.covered for c in found.counters}
    assert covered["vigia_qdisc_drops_total"] == covered["node_qdisc_drops_total"] == 0.15
    found = _full_queue_and_one_path(seed, others=17.0)
    assert (found.verdict, found.counters[0].detail) == ("pinned", "queue_full")


@pytest.mark.parametrize(
    ("dataplane", "verdict"), [("ovs-userspace", "not on these hosts"), ("linuxbridge", "pinned")]
)
def test_who_does_not_cross_the_switch_tells_nothing_of_its_ports(dataplane: str, verdict: str) -> None:
    lost = np.where(np.arange(WINDOWS) == 30, 20.0, 0.0)
    hosts = Hosts(np.random.default_rng(60))
    hosts.growth["vigia_ovs_port_drops_total"] = []
    hosts.loses(lost)
    hosts.count("vigia_ovs_port_drops_total", 30 * lost, node="n2", device="phy0")
    beside = {**PATH, "path": "other", "tenant": "green"}
    for labels in (PATH, beside):
        hosts.count("vigia_probe_sent_total", np.full(WINDOWS, 60.0), **labels)
    for path, plane in ((PATH["path"], "ovs-userspace"), ("other", dataplane)):
        hosts.count("vigia_path_info", np.ones(WINDOWS), node="n1", path=path, dataplane=plane)
    assert hosts.find().verdict == verdict


def test_who_loses_most_beside_it_tells_what_a_queue_lost() -> None:
    key, other, first = ("n1", "n2", "p", "red"), ("n1", "n2", "q", "blue"), ("n1", "n2", "q", "_infra")
    sent = {k: np.array([60.0, 60.0, 60.0]) for k in (key, other, first)}
    lost = {key: np.array([np.nan, 20.0, 0.0]), other: np.array([0.0, 7.0, 0.0])}
    assert losses._alike(key, lost, sent) == pytest.approx(10 / 20), "7 and 3 of 60, where it lost 20"
    assert losses._alike(key, {key: lost[key]}, sent) == pytest.approx(3 / 20), "one that lost none"
    few = {**sent, ("n1", "n2", "r", "blue"): np.array([5.0, 5.0, 5.0])}
    assert losses._alike(key, {key: lost[key]}, few) == pytest.approx(3 / 20), "too few to tell anything"
    assert losses._alike(key, lost, {key: sent[key]}) == 1.0, "no other path is measured"
    assert losses._alike(key, lost, {other: sent[other]}) == 1.0, "nobody says how many were sent"
    back = {key: sent[key], ("n2", "n1", "p", "red"): sent[key]}
    assert losses._alike(key, lost, back) == 1.0, "its own way back is no other path"


def test_what_another_path_lost_a_minute_earlier_is_not_of_this_queue() -> None:
    """One prober's losses are scraped together; those of the other one may be counted a window later."""
    key, there, back = ("n1", "n2", "p", "red"), ("n1", "n2", "q", "blue"), ("n2", "n1", "q", "blue")
    minutes = np.array([60.0, 60.0, 60.0])
    lost = {key: np.array([0.0, 20.0, 0.0]), there: np.array([50.0, 0.0, 50.0])}
    assert losses._alike(key, lost, {key: minutes, there: minutes}) == pytest.approx(3 / 20)
    lost = {key: lost[key], back: np.array([1.0, 2.0, 4.0])}
    assert losses._alike(key, lost, {key: minutes, back: minutes}) == pytest.approx(10 / 20), "7 and 3"
    both = {key: minutes, back: minutes, there: minutes}
    assert losses._alike(key, lost, both) == pytest.approx(3 / 20), "the same prober's tells it better"
    few = {**both, there: np.array([60.0, 5.0, 60.0])}
    assert losses._alike(key, lost, few) == pytest.approx(10 / 20), "unless it sent too few then"


def test_the_ports_own_queue_is_no_shared_one() -> None:
    """What is counted as the tenant's is the tenant's, whatever others lose."""
    lost = np.where(np.arange(WINDOWS) == 30, 20.0, 0.0)
    hosts = Hosts(np.random.default_rng(59))
    hosts.loses(lost)
    hosts.count("vigia_port_drops_total", 40 * lost, node="n2", tenant="blue", reason="queue_full")
    hosts.count("vigia_qdisc_drops_total", 40 * lost, node="n2", device="tap1")
    # The uplink's was full as well, by a bulk test: the same reason on the same node.
    hosts.count("vigia_port_drops_total", 3 * lost, node="n2", tenant="_infra", reason="queue_full")
    for labels in (PATH, {**PATH, "tenant": "green"}):
        hosts.count("vigia_probe_sent_total", np.full(WINDOWS, 60.0), **labels)
    found = hosts.find()
    assert (found.verdict, found.counters[0].name) == ("pinned", "vigia_port_drops_total")


def test_few_windows_are_enough_where_one_counter_counted_then_alone() -> None:
    """A lab that has run for ten minutes: too few for a p-value."""
    lost = np.full(WINDOWS, np.nan)
    lost[-10:] = [0, 0, 0, 12, 4, 0, 0, 0, 0, 0]
    counted = {("n1", "vigia_port_drops_total", "queue_full"): np.nan_to_num(20.0 * lost)}
    found = losses.pin("n1", "n2", "p", "t", lost, counted)
    assert (found.verdict, found.known, found.counters[0].p_value) == ("pinned", 10, 1.0)
    counted[("n1", "vigia_port_drops_total", "queue_full")][-8:] += 100.0
    assert losses.pin("n1", "n2", "p", "t", lost, counted).verdict == "insufficient evidence"


@pytest.mark.parametrize(
    ("recent", "verdict"),
    [
        ([0, 300, 101], "insufficient evidence"),
        ([0, 401, 0], "insufficient evidence"),
        ([0, 0, 300, 101], "pinned"),
        ([0, 0, 401, 0], "pinned"),
    ],
)
def test_a_counter_must_have_been_quiet_in_a_minute_apart_from_the_losses(
    recent: list[float], verdict: str
) -> None:
    """A lab of three minutes has none: what was lost in one may be counted in those beside it."""
    lost = np.full(WINDOWS, np.nan)
    lost[-len(recent) :] = recent
    counted = {("n2", "vigia_port_drops_total", "queue_full"): np.nan_to_num(80.0 * lost)}
    assert losses.pin("n1", "n2", "p", "t", lost, counted, seen=True).verdict == verdict


def test_what_the_tenants_own_port_counted_goes_before_what_all_share() -> None:
    """Numbers of a lab that had run for four minutes: a rule of nftables, and the operator's bulk test."""
    lost = np.full(WINDOWS, np.nan)
    lost[-4:] = [0, 101, 0, 0]
    policy, queue = ("n1", "vigia_port_drops_total", "policy"), ("n2", "vigia_qdisc_drops_total", "eth0")
    counted = {policy: np.nan_to_num(lost) * 225 / 101, queue: np.nan_to_num(lost) * 178 / 101}
    found = losses.pin("n1", "n2", "p", "t", lost, counted)
    assert [(c.node, c.name, c.detail, c.alone) for c in found.counters] == [(*policy, True), (*queue, True)]
    del counted[policy]
    found = losses.pin("n1", "n2", "p", "t", lost, counted)
    assert (found.verdict, found.counters[0].detail) == ("pinned", "eth0"), "where nothing else counted"


def test_a_cause_with_a_name_goes_before_the_remainder_that_has_none() -> None:
    """Numbers of a lab: too large for a port, which the bridge says of what it forwards and not of what the guest sends."""
    lost = np.full(WINDOWS, np.nan)
    lost[-6:] = [0, 0, 0, 400, 0, 0]
    named, rest = (("n2", "vigia_port_drops_total", reason) for reason in ("mtu", "unattributed"))
    counted = {rest: np.nan_to_num(lost), named: np.nan_to_num(lost) * 403 / 400}
    found = losses.pin("n1", "n2", "p", "t", lost, counted)
    assert [(c.node, c.name, c.detail, c.alone) for c in found.counters] == [(*named, True), (*rest, True)]
    del counted[named]
    found = losses.pin("n1", "n2", "p", "t", lost, counted)
    assert (found.verdict, found.counters[0].detail) == ("pinned", "unattributed"), (
        "where nothing else counted"
    )


@pytest.mark.parametrize(
    ("dataplane", "verdict"),
    [("linuxbridge", "not on these hosts"), ("macvlan", "not on these hosts"), ("ovs-userspace", "pinned")],
)
def test_a_switch_that_a_path_does_not_cross_lost_nothing_of_it(dataplane: str, verdict: str) -> None:
    """Numbers of a lab: probes of a Linux bridge, and what Open vSwitch lost at its uplink in that minute."""
    lost = np.where(np.arange(WINDOWS) == 40, 19.0, 0.0)
    hosts = Hosts(np.random.default_rng(56))
    hosts.growth["vigia_ovs_port_drops_total"] = []
    hosts.loses(lost)
    hosts.count("vigia_ovs_port_drops_total", lost * 25 / 19, node="n2", device="phy0")
    hosts.count("vigia_path_info", np.ones(WINDOWS), node="n1", path=PATH["path"], dataplane=dataplane)
    assert hosts.find().verdict == verdict
    del hosts.growth["vigia_path_info"]
    assert hosts.find().verdict == "pinned", "nobody says what the path goes through"


def test_the_underlay_may_cross_a_switch() -> None:
    """A host's own port is often one of Open vSwitch."""
    lost = np.where(np.arange(WINDOWS) == 40, 19.0, 0.0)
    hosts = Hosts(np.random.default_rng(57))
    hosts.growth["vigia_ovs_port_drops_total"] = []
    hosts.loses(lost)
    hosts.count("vigia_ovs_port_drops_total", lost, node="n2", device="phy0")
    hosts.count("vigia_path_info", np.ones(WINDOWS), node="n1", path=PATH["path"], dataplane="none")
    assert hosts.find().verdict == "pinned"


def test_what_was_lost_just_now_may_be_counted_in_a_moment() -> None:
    """A counter that counts for the first time shows some scrapes later: no host is cleared before."""
    lost = np.zeros(WINDOWS)
    lost[-1] = 20.0
    quiet = {("n2", "vigia_ovs_port_drops_total", "phy0"): np.where(np.arange(WINDOWS) == 3, 2.0, 0.0)}
    assert losses.pin("n1", "n2", "p", "t", lost, quiet, seen=True).verdict == "insufficient evidence"
    later = np.roll(lost, -1)
    assert losses.pin("n1", "n2", "p", "t", later, quiet, seen=True).verdict == "not on these hosts"
    lost[-9] = 100.0
    assert losses.pin("n1", "n2", "p", "t", lost, quiet, seen=True).verdict == "not on these hosts", (
        "most is old"
    )


@pytest.mark.parametrize(
    ("away", "verdict"),
    [(29, "insufficient evidence"), (30, "insufficient evidence"), (28, "not on these hosts")],
)
def test_a_host_must_be_seen_at_both_ends_of_a_window(away: int, verdict: str) -> None:
    """The counters of a minute that began without them grow by nothing that is known."""
    lost = np.where(np.arange(WINDOWS) == 30, 20.0, 0.0)
    hosts = Hosts(np.random.default_rng(62))
    hosts.loses(lost)
    success = hosts.growth["vigia_exporter_collector_success"]
    there = np.where(np.arange(WINDOWS) == away, np.nan, 1.0)
    hosts.growth["vigia_exporter_collector_success"] = [success[0], (success[1][0], there)]
    assert hosts.find().verdict == verdict


def test_a_few_lost_probes_are_pinned_to_nothing_that_counted_by_chance() -> None:
    """Numbers of a lab that had run for eight minutes: one probe, and eleven strays at a port."""
    lost = np.full(WINDOWS, np.nan)
    lost[-8:] = [0, 0, 0, 1, 0, 0, 0, 0]
    counted = {("n2", "vigia_ovs_port_drops_total", "phy0"): np.nan_to_num(11.0 * lost)}
    found = losses.pin("n1", "n2", "p", "t", lost, counted, seen=True)
    assert (found.verdict, found.counters[0].alone) == ("insufficient evidence", False)
    lost[-4] = losses.LEAST_LOST
    found = losses.pin("n1", "n2", "p", "t", lost, counted, seen=True)
    assert (found.verdict, found.counters[0].alone) == ("pinned", True)


def test_a_grid_is_asked_once_for_all_paths() -> None:
    grid = Grid.before(GRID.end, 60.0, 3600.0)
    hosts = Hosts(np.random.default_rng(55))
    hosts.loses(np.ones(WINDOWS))
    store = Exact(**hosts.growth)
    source = Source(Prometheus("http://made.test", transport=httpx.MockTransport(store)))
    losses.find(source, grid, Known({}, {}, {}))
    assert len(store.asked) == 2 + len(losses.COUNTERS)
