"""What rules record, from series whose rates and distributions are known: in a real Prometheus.

promtool of this version knows no native histograms, so that its tests begin at the records. Here begins what these
are made of.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

import pytest
from prometheuskit import ROOT, Family, Native, rates_known, running

from vigia_dashboards.expressions import recorded
from vigia_prometheus import Prometheus
from vigia_testing import eventually

PATH = {"src": "c1", "dst": "c2", "path": "ovs-gre", "tenant": "red", "probe": "stamp-64"}
LOST = {
    "unknown": 2,
    "forward": 1,
    "reverse": 1,
    "send_error": 50,
    "local_overflow": 50,
    "reflector_overflow": 50,
}
"""Per second, of 100 sent; the last three are not the network's."""

SENT = {("p1", "red"): 1000, ("p2", "red"): 500, ("p3", "blue"): 4000}
"""Bytes per second from the tenant, by port and tenant; to the tenant it is ten times as much."""

DROPS = {"queue_full": 20, "mtu": 5, "no_memory": 0, "rate_limit": 1000, "meter": 500}
"""Per second at p1; the last two are meant."""

ROUND_TRIPS = {0.001: 80, 0.009: 10, 0.011: 10}
JUDGED = {"delay": 90, "jitter": 80}
SLOW, UNSTEADY = 9, 32
"""Per second, of those that were judged."""
MESH = {
    "src": "c1",
    "src_zone": "z1",
    "dst_zone": "z2",
    "path": "ovs-gre",
    "tenant": "_infra",
    "probe": "stamp-64",
}
LAGS = {0.0001: 90, 0.02: 10}
TAXES = {-0.00001: 10, 0.0002: 90}
VARIATIONS = {-0.002: 30, 0.0001: 40, 0.002: 30}
"""Of round trips; those of each way alone are ten times as much."""

BY_PROMTOOL = {
    "node_tenant:vigia_others_sent_bytes:surge_rate1m",
    "node:vigia_probe_host_busy:ratio_rate5m",
    "site:node_timex_sync_status:max",
    "dst_scope:vigia_probe_unreachable:ratio",
    *(f"dst:vigia_probe_unreachable:{of}" for of in ("ratio", "node", "rack", "zone")),
    *(f"{of}:vigia_probe_outside_unreachable:ratio" for of in ("rack", "zone")),
}
"""Records of what happens for a while, or of other programs: promtool has them in alert-rules/tests."""


class World:
    """Everything grows as it says above."""

    def __init__(self) -> None:
        self._begun = time.time() - 1000.0

    def probe(self) -> list[Family]:
        passed = time.time() - self._begun

        def grown(counts: Mapping[float, int]) -> Native:
            return Native({value: int(n * passed) for value, n in counts.items()})

        judged = [({**PATH, "objective": kind}, n * passed) for kind, n in JUDGED.items()]
        return [
            Family("vigia_probe_sent_total", "counter", [(PATH, 100 * passed)]),
            Family(
                "vigia_probe_lost_total",
                "counter",
                [({**PATH, "cause": cause}, n * passed) for cause, n in LOST.items()],
            ),
            Family("vigia_probe_rtt_seconds", "histogram", [(PATH, grown(ROUND_TRIPS))]),
            Family("vigia_probe_judged_total", "counter", list(judged)),
            Family("vigia_probe_slow_total", "counter", [(PATH, SLOW * passed)]),
            Family("vigia_probe_unsteady_total", "counter", [(PATH, UNSTEADY * passed)]),
            Family("vigia_probe_schedule_lag_seconds", "histogram", [({}, grown(LAGS))]),
            Family("vigia_probe_mesh_rtt_seconds", "histogram", [(MESH, grown(ROUND_TRIPS))]),
            Family("vigia_probe_mesh_sent_total", "counter", [(MESH, 100 * passed)]),
            Family(
                "vigia_probe_mesh_lost_total",
                "counter",
                [({**MESH, "cause": cause}, n * passed) for cause, n in (("network", 4), ("host", 50))],
            ),
            Family("vigia_probe_overlay_tax_seconds", "histogram", [(PATH, grown(TAXES))]),
            Family(
                "vigia_probe_delay_variation_seconds",
                "histogram",
                [
                    (
                        {**PATH, "direction": way},
                        grown({v * (1 if way == "roundtrip" else 10): n for v, n in VARIATIONS.items()}),
                    )
                    for way in ("roundtrip", "forward", "reverse")
                ],
            ),
        ]

    def exporter(self) -> list[Family]:
        passed = time.time() - self._begun
        way = {"from_tenant": 1, "to_tenant": 10}
        red = {"port": "p1", "tenant": "red", "direction": "from_tenant"}
        return [
            Family(
                "vigia_port_bytes_total",
                "counter",
                [
                    ({"port": port, "tenant": tenant, "direction": d}, n * k * passed)
                    for (port, tenant), n in SENT.items()
                    for d, k in way.items()
                ],
            ),
            Family(
                "vigia_port_drops_total",
                "counter",
                [({**red, "reason": reason}, n * passed) for reason, n in DROPS.items()],
            ),
        ]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    world = World()
    pages = {"vigia-probe": world.probe, "vigia-exporter": world.exporter}
    with running(tmp_path_factory.mktemp("prometheus"), pages, {"node": "c1"}) as server:
        rates_known(server, time.time())
        for name in set(recorded()) - BY_PROMTOOL:
            eventually(lambda name=name: server.instant(name), f"{name} to be recorded")
        yield server


def values(prometheus: Prometheus, name: str, per: str = "") -> list[tuple[Mapping[str, str], float]]:
    """Return a record's series; divided by another expression, if one is given, of the instant of the record."""
    (at,) = prometheus.instant(f"max(timestamp({name}))")
    expression = f"{name} / scalar({per})" if per else name
    found = prometheus.instant(expression, at.value)
    return [({k: v for k, v in s.labels.items() if k != "__name__"}, s.value) for s in found]


def agree(prometheus: Prometheus, name: str, per: str, want: Mapping[tuple[str, ...], float]) -> None:
    """Compare a record, by its labels' values, in units of another rate.

    A scrape that was stored just after the rule was evaluated is in one of the two
    alone: then they agree at the next evaluation.
    """
    order = ("node", "port", "src", "dst", "path", "tenant", "probe", "direction", "reason")

    def found() -> dict[tuple[str, ...], float]:
        return {tuple(m[k] for k in order if k in m): v for m, v in values(prometheus, name, per)}

    eventually(lambda: found() == pytest.approx(want, rel=1e-6), lambda: f"{name} is {found()}, not {want}")


def become(prometheus: Prometheus, name: str, want: list[tuple[Mapping[str, str], object]]) -> None:
    """Wait until a record is what it has to be."""

    def found() -> list[tuple[Mapping[str, str], float]]:
        return values(prometheus, name)

    eventually(lambda: found() == want, lambda: f"{name} is {found()}, not {want}")


PATHS = {
    "path:vigia_probe_loss:ratio_rate1m": pytest.approx(0.04, rel=0.01),
    "path:vigia_probe_loss:ratio_rate5m": pytest.approx(0.04, rel=0.01),
    "path:vigia_probe_loss:ratio_rate30m": pytest.approx(0.04, rel=0.01),
    "path:vigia_probe_loss:ratio_rate1h": pytest.approx(0.04, rel=0.01),
    "path:vigia_probe_loss:ratio_rate6h": pytest.approx(0.04, rel=0.01),
    "path:vigia_probe_slow:ratio_rate5m": pytest.approx(0.1, rel=0.01),
    "path:vigia_probe_slow:ratio_rate1h": pytest.approx(0.1, rel=0.01),
    "path:vigia_probe_unsteady:ratio_rate5m": pytest.approx(0.4, rel=0.01),
    "path:vigia_probe_unsteady:ratio_rate1h": pytest.approx(0.4, rel=0.01),
    "path:vigia_probe_rtt_seconds:p50_rate1m": pytest.approx(0.001, rel=0.1),
    "path:vigia_probe_rtt_seconds:p99_rate1m": pytest.approx(0.011, rel=0.1),
    "path:vigia_probe_rtt_seconds:p99_median10m": pytest.approx(0.011, rel=0.1),
    "path:vigia_probe_overlay_tax_seconds:p50_rate1m": pytest.approx(0.0002, rel=0.1),
    "path:vigia_probe_delay_variation_seconds:iqr_rate1m": pytest.approx(0.004, rel=0.1),
    "path:vigia_probe_overlay_tax_seconds:p50_median1d": pytest.approx(0.0002, rel=0.1),
}

COUNTED = {
    "path:vigia_probe_sent:rate1m": ("1m", 100.0),
    "path:vigia_probe_lost:rate1m": ("1m", 4.0),
    "path:vigia_probe_sent:rate5m": ("5m", 100.0),
    "path:vigia_probe_lost:rate5m": ("5m", 4.0),
    "path:vigia_probe_delay_judged:rate5m": ("5m", 90.0),
    "path:vigia_probe_slow:rate5m": ("5m", 9.0),
    "path:vigia_probe_jitter_judged:rate5m": ("5m", 80.0),
    "path:vigia_probe_unsteady:rate5m": ("5m", 32.0),
}
"""Over which window, and how many per second."""

AVERAGED = {"path:vigia_probe_sent:rate30m": "avg_over_time(path:vigia_probe_sent:rate5m[30m])"}


@pytest.mark.parametrize("name", PATHS)
def test_records_of_paths(prometheus: Prometheus, name: str) -> None:
    """A bucket of a native histogram is nine percent wide.

    The two rates that a share is made of are recorded one after the other: a scrape
    that is stored in between is in one of them alone, and they agree at the next evaluation.
    """
    become(prometheus, name, [(PATH, PATHS[name])])


@pytest.mark.parametrize("name", COUNTED)
def test_records_of_samples(prometheus: Prometheus, name: str) -> None:
    """Windows are longer than the test has run, and rates in them too low: one is measured by another."""
    window, rate = COUNTED[name]
    lost = f'rate(vigia_probe_lost_total{{cause="forward"}}[{window}])'
    agree(prometheus, name, lost, {tuple(PATH.values()): rate})


@pytest.mark.parametrize("name", AVERAGED)
def test_records_of_long_windows(prometheus: Prometheus, name: str) -> None:
    """They are made of records of short ones, which are there when a long one is evaluated."""
    agree(prometheus, name, AVERAGED[name], {tuple(PATH.values()): 1.0})


def test_records_of_tenants(prometheus: Prometheus) -> None:
    alone = 'rate(vigia_port_bytes_total{port="p2",direction="from_tenant"}[1m])'
    name = "node_tenant:vigia_port_bytes:rate1m"
    agree(
        prometheus,
        name,
        alone,
        {("c1", tenant, "from_tenant"): n for tenant, n in (("red", 3.0), ("blue", 8.0))},
    )

    def others(name: str) -> dict[str, float]:
        return {m["tenant"]: v for m, v in values(prometheus, name)}

    def hurt_alike(name: str) -> bool:
        found = others(name)
        share = pytest.approx(1500 / 4000, rel=0.05)
        return set(found) == {"red", "blue"} and found["red"] > 0 and found["blue"] / found["red"] == share

    for name in (
        "node_tenant:vigia_others_sent_bytes:rate1m",
        "node_tenant:vigia_others_sent_bytes:median10m",
    ):
        eventually(lambda of=name: hurt_alike(of), lambda of=name: f"{of} is {others(of)}")


def test_records_of_meshes(prometheus: Prometheus) -> None:
    between = {k: v for k, v in MESH.items() if k != "src"}
    for name, want in (
        ("zone:vigia_probe_mesh_rtt_seconds:p99_rate1m", pytest.approx(0.011, rel=0.1)),
        ("zone:vigia_probe_mesh_loss:ratio_rate1m", pytest.approx(0.04, rel=0.01)),
    ):
        become(prometheus, name, [(between, want)])


def test_records_of_senders(prometheus: Prometheus) -> None:
    name = "node:vigia_probe_schedule_lag_seconds:p99_rate1m"
    become(prometheus, name, [({"node": "c1"}, pytest.approx(0.02, rel=0.1))])


def test_records_of_drops(prometheus: Prometheus) -> None:
    """What limits and meters drop is meant; where nothing is dropped there is no series."""
    mtu = 'rate(vigia_port_drops_total{reason="mtu"}[1m])'
    at_p1 = ("c1", "p1", "red", "from_tenant")
    name = "node_port:vigia_port_drops:rate1m"
    agree(prometheus, name, mtu, {(*at_p1, "queue_full"): 4.0, (*at_p1, "mtu"): 1.0})


def test_every_record_is_looked_at() -> None:
    tenants = {"node_tenant:vigia_port_bytes:rate1m", "node_port:vigia_port_drops:rate1m"}
    tenants |= {f"node_tenant:vigia_others_sent_bytes:{of}" for of in ("rate1m", "median10m")}
    others = {f"zone:vigia_probe_mesh_{of}" for of in ("rtt_seconds:p99_rate1m", "loss:ratio_rate1m")}
    others |= {"node:vigia_probe_schedule_lag_seconds:p99_rate1m"}
    assert set(recorded()) == tenants | others | BY_PROMTOOL | set(PATHS) | set(COUNTED) | set(AVERAGED)
    tested = "".join(f.read_text() for f in (ROOT / "alert-rules/tests").glob("*.test.yml"))
    assert all(re.search(f"expr: '?{name}\\b", tested) for name in BY_PROMTOOL)
