"""What is known of a flood, read from a real Prometheus: the same as what happened, and bounded in what it asks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from portkit import free_port

from vigia_compare import interference
from vigia_compare.attribution_report import interference_text
from vigia_compare.blame import blame
from vigia_compare.facts import FAST, MOST_NODES, STEP, Facts, details, gather, grid_at
from vigia_compare.source import Memory, Source
from vigia_compare.windows import Grid
from vigia_prometheus import Prometheus
from vigia_statistics.samples import Floats
from vigia_testing import DEADLINE

from .conftest import Page, start
from .costs import counting
from .simulated_site import BEGUN, GUARANTEES, SECONDS, Site
from .test_questions import Store

FLOOD = 500
"""Second at which red begins to flood, for 20 s."""


@pytest.fixture(scope="module")
def site() -> Site:
    made = Site(np.random.default_rng(61), isolation=True)
    made.flood(FLOOD, 20, 40e6)
    made.offered[("n1", "blue")][FLOOD - 30 : FLOOD + 40] = 22e6
    made.arriving[("n2", "red")] = np.where(np.arange(SECONDS) // 20 == FLOOD // 20, 5e6, 1e3)
    return made


@pytest.fixture(scope="module")
def url(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("evidence")
    (folder / "page.txt").write_text(page(site).text())
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "page.txt", folder / "data"],
        check=True,
        capture_output=True,
    )
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    address = f"http://127.0.0.1:{free_port()}"
    process = start(address, folder)
    try:
        yield address
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE)


def page(site: Site) -> Page:
    """What is scraped of the site: the pages of a second while they have something to tell, counters every 15 s."""
    out, known = Page(), site.facts()
    seconds = BEGUN + np.arange(SECONDS) + 0.5
    scrapes = BEGUN + np.arange(site.exporter, SECONDS, 15.0)

    def fast(metric: str, part: str, labels: str, values: Floats) -> None:
        there = np.isfinite(values)
        labelled = f'job="vigia-{part}-fast",{labels}'
        out.add(metric, "gauge", metric, labelled, seconds[there], values[there])

    def counter(family: str, labels: str, by_second: Floats, from_nothing: bool = False) -> None:
        counts = np.interp(
            scrapes - BEGUN, np.arange(SECONDS + 1), np.concatenate([[0.0], np.cumsum(by_second)])
        )
        there = counts > 0.0 if from_nothing else np.ones(counts.size, dtype=bool)
        labelled = f'job="vigia-exporter",{labels}'
        out.add(family, "counter", f"{family}_total", labelled, scrapes[there], counts[there])

    for (node, tenant), flooding in site.flooding.items():
        labels = f'node="{node}",port="{node}-{tenant}",tenant="{tenant}"'
        on = flooding > 0.0
        fast("vigia_port_flood_score", "exporter", labels, np.where(on, 95.0, np.nan))
        fast("vigia_port_udp_destination_ports", "exporter", labels, np.where(on, 400.0, np.nan))
        limited = np.where(site.limited(node, tenant), GUARANTEES[tenant], np.nan)
        fast("vigia_isolation_limit_bytes_per_second", "enforcer", labels, limited)
    for (node, tenant), sent in site.offered.items():
        labels = f'node="{node}",port="{node}-{tenant}",tenant="{tenant}"'
        counter("vigia_port_bytes", f'{labels},direction="from_tenant"', sent)
        counter("vigia_port_packets", f'{labels},direction="from_tenant"', np.round(sent / 1400.0))
        bought = np.full(scrapes.size, GUARANTEES[tenant])
        name = "vigia_isolation_guarantee_bytes_per_second"
        out.add(name, "gauge", name, f'{labels},direction="from_tenant"', scrapes, bought)
    for (node, tenant), arrived in site.arriving.items():
        labels = f'node="{node}",port="{node}-{tenant}",tenant="{tenant}",direction="to_tenant"'
        counter("vigia_port_bytes", labels, arrived)
    drops, _ = site.carried()
    for tenant, dropped in drops.items():
        labels = f'node="n1",port="n1-{tenant}",tenant="{tenant}",direction="from_tenant",reason="queue_full"'
        counter("vigia_port_drops", labels, np.round(dropped / 1400.0), from_nothing=True)
    counter("vigia_resource_drops", 'node="n1",resource="queue/up0",kind="queue",reason="queue_full"',
            sum(drops.values(), start=np.zeros(SECONDS)) / 1400.0, from_nothing=True)  # fmt: skip
    out.add("up", "gauge", "up", 'job="vigia-exporter",node="n1"', scrapes, np.ones(scrapes.size))
    fast("vigia_probe_recent_bad_targets", "probe", 'node="n1"', np.zeros(SECONDS))
    for (src, dst, tenant), values in known.loss.items():
        labels = f'node="{src}",src="{src}",dst="{dst}",tenant="{tenant}",path="gre",probe="p"'
        by_second = np.append(np.repeat(values, int(STEP)), np.full(int(STEP), np.nan))
        fast("vigia_probe_recent_loss_ratio", "probe", labels, by_second)
    return out


def gathered(url: str, now: float) -> Facts:
    with Prometheus(url, DEADLINE) as prometheus:
        return gather(Source(prometheus), grid_at(BEGUN + now, now))


def test_prometheus_says_what_happened(site: Site, url: str) -> None:
    now = SECONDS - 10
    found, expected = gathered(url, now), site.facts(now)
    assert found.grid.end == expected.grid.end and found.grid.count == expected.grid.count + 1
    assert set(found.score) == set(expected.score) == {("n1", "red", "n1-red")}
    for name in ("sent", "packets", "drops", "received", "limit", "guarantee", "lost_at"):
        there, right = getattr(found, name), getattr(expected, name)
        assert set(there) <= set(right) and there, name
        for key, whole in there.items():
            values = whole[1:]
            # The simulation has steps from its beginning on; Prometheus those with two scrapes.
            both = np.isfinite(values) & np.isfinite(right[key])
            assert both.sum() > 5, (name, key)
            np.testing.assert_allclose(
                values[both], right[key][both], rtol=1e-6, atol=1.0, err_msg=f"{name} {key}"
            )
    total = sum(float(np.nansum(v)) for v in found.drops.values())
    assert total == pytest.approx(sum(float(np.nansum(v)) for v in expected.drops.values()), rel=0.01), (
        "what a counter had when it began is counted"
    )


def test_red_is_named_from_prometheus_and_the_answer_stays(url: str) -> None:
    for now in (FLOOD + 30, FLOOD + 120, SECONDS - 10):
        (found,) = blame(gathered(url, now))
        assert (found.node, found.tenant, found.offender, found.source) == ("n1", "blue", "red", "n1")
        assert {c.kind for c in found.clues} >= {"flood", "limit", "contract", "saturation"}
        assert BEGUN + FLOOD - 10 <= found.begin <= BEGUN + FLOOD + 15
    assert {c.kind for c in found.clues} >= {"coincidence"} and found.p_value is not None
    assert 0.5 < found.share < 0.9 and found.share + found.own_share <= 1.0, "blue borrowed, too"


def test_an_evaluation_and_looks_between_say_it(url: str) -> None:
    """With windows of a minute that have nothing of it: no record, no counter of the probes."""
    grid = Grid.before(BEGUN + FLOOD, 60.0, 480.0)
    with Prometheus(url, DEADLINE) as prometheus:
        source = Source(prometheus, Memory())
        assert interference.find(source, grid, BEGUN + FLOOD) == []
        before: list[interference.Interference] = []
        for now in range(FLOOD, FLOOD + 60, 5):
            before = interference.renewed(before, source, BEGUN + now, grid)
            if before:
                break
    assert now <= FLOOD + 30
    (found,) = before
    assert found.verdict() == ("attributed", "red")
    text = interference_text(found)
    assert (
        text.startswith("blue on n1: hurt by red on n1 from 2027-01-15 ")
        and "its contract is 32.0 Mbit/s" in text
    )


def test_a_quiet_site_is_asked_for_the_pages_of_a_second_alone(url: str) -> None:
    with counting(url) as (prometheus, cost):
        gather(Source(prometheus), grid_at(BEGUN + FLOOD - 60, 300.0))
        assert cost.questions == len(FAST) and cost.samples == 0
        cost.clear()
        source = Source(prometheus, Memory())
        gather(source, grid_at(BEGUN + FLOOD + 60, 300.0))
        whole = replace(cost)
        cost.clear()
        gather(source, grid_at(BEGUN + FLOOD + 65, 300.0))
        assert cost.questions == whole.questions == len(FAST) + len(details(["n1"]))
        assert cost.samples <= whole.samples / 10, "the new step, and two again"


def test_nodes_are_bounded_and_what_floods_goes_first() -> None:
    some = np.full(60, 0.5)
    store = Store(
        vigia_probe_recent_loss_ratio=[
            ({"src": f"n{i:02}", "dst": "m", "tenant": "t"}, some) for i in range(2 * MOST_NODES)
        ],
        vigia_port_flood_score=[
            ({"node": "z-flood", "port": "p", "tenant": "red"}, np.append(some[1:], 90.0))
        ],
    )
    gather(store.source(), grid_at(1_800_000_000.0, 300.0))
    last = store.asked[-1]
    assert last.count("|") == MOST_NODES - 1 and "z\\\\-flood" in last
