"""Every panel and annotation shows what happens: asked of a real Prometheus, in which everything happens.

The series there are the catalogue's, with every value that their closed labels can have; nothing is taken from the
queries. A query that asks for what no program exports finds nothing, and fails.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from prometheuskit import Classic, Family, Native, rates_known, running

import vigia_catalog
from vigia_dashboards.annotations import ANNOTATIONS
from vigia_dashboards.expressions import ACTIONS, FOREIGN, FOREIGN_VALUES, IN_FORCE, UnknownName, check
from vigia_dashboards.grafana import LOSS_CLASSES
from vigia_dashboards.live import Found, ask, every_panel, offered
from vigia_dashboards.model import Dashboard, Panel, Query
from vigia_dashboards.pages import PAGES
from vigia_dashboards.tables import Row, holes, joined
from vigia_prometheus import Prometheus

JOBS = {
    "probe": "vigia-probe",
    "exporter": "vigia-exporter",
    "enforcer": "vigia-enforcer",
    "agent": "isolation-agent",
    "compare": "vigia-compare",
    "campaign": "node",  # through node_exporter's textfile collector
}

EXAMPLES: Mapping[str, Sequence[str]] = {
    "src": ("lb1",),
    "dst": ("lb2",),
    "node": ("lb1",),
    "tenant": ("red", "_infra"),
    "probe": ("stamp-64", "tcp-443"),
}
"""Values of open labels that are conventions of the contract between the parts; others have any."""

NATIVE = ("probe", "enforcer")
"""Programs whose histograms are native ones; those of the others are classic."""

LEVELS = {"vigia_port_flood_score": 100.0, "vigia_compare_e_value_needed": 20.0}
"""Gauges whose values panels and annotations compare with a level."""

MOST = 150
"""Series of a metric. Beyond that not all combinations are made, but every value is there."""

EXCLUSIVE = {name for name, *_ in LOSS_CLASSES}
"""Queries of one panel of which one has data at a time: the median's line by the loss of the moment."""


def combinations(labels: Sequence[str], closed: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return series of a metric: all combinations of its labels' values, or some in which each value is."""
    choices = [closed.get(label) or EXAMPLES.get(label, ("x",)) for label in labels]
    if math.prod(map(len, choices)) <= MOST:
        rows: Iterable[tuple[str, ...]] = itertools.product(*choices)
    else:
        rows = [tuple(c[i % len(c)] for c in choices) for i in range(max(map(len, choices)))]
    return [dict(zip(labels, row, strict=True)) for row in rows]


@dataclass
class World:
    """What all programs export, and the foreign ones of which panels know; counters grow all the time."""

    busy: bool = False
    """Gauges are 1, not 0; who leads and what is up is so in either case."""

    def value(self, name: str, kind: str, native: bool, now: float) -> float | Native | Classic:
        """Return what a series of a metric has now."""
        grown = int(10 * (now % 1e6))
        if kind == "histogram":
            values = {0.8: grown, -0.8: grown} if "variation" in name else {0.8: grown}
            return Native(values) if native else Classic({0.1: 0, 1.0: grown}, grown)
        if kind == "counter":
            return grown * (1e6 if name.endswith("_bytes_total") else 1.0)
        if name in LEVELS:
            return LEVELS[name] if self.busy or name == "vigia_compare_e_value_needed" else 0.0
        return 1.0 if self.busy or name == "vigia_agent_leader" else 0.0

    def page(self, job: str) -> list[Family]:
        """Return what the programs of a job export."""
        now = time.time()
        out = []
        for part in (part for part, its in JOBS.items() if its == job):
            for m in vigia_catalog.part_metrics(part):
                value = self.value(m.name, m.type, part in NATIVE, now)
                series = combinations(m.labels, m.values)
                out.append(Family(m.name, m.type, [(labels, value) for labels in series]))
        if job == "node":
            out += self.foreign("node_", now)
        out += self.foreign("process_", now)
        return out

    def foreign(self, prefix: str, now: float) -> Iterator[Family]:
        """Yield the metrics of other programs whose names begin so."""
        for name, labels in FOREIGN.items():
            if name.startswith(prefix):
                closed = {k: FOREIGN_VALUES[name, k] for k in labels if (name, k) in FOREIGN_VALUES}
                kind = "counter" if name.endswith("_total") or "netstat" in name else "gauge"
                value = self.value(name, kind, native=False, now=now)
                if name == "process_start_time_seconds" and self.busy:
                    value = now  # it starts again and again
                yield Family(name, kind, [(c, value) for c in combinations(sorted(labels), closed)])


def reloads(world: World, families: list[Family]) -> list[Family]:
    """A configuration is loaded again and again."""
    now = float(int(time.time()))
    return [
        Family(f.name, f.type, [(labels, now) for labels, _ in f.samples])
        if world.busy and f.name.endswith("_config_last_reload_success_timestamp_seconds")
        else f
        for f in families
    ]


QUERIES = [
    *((f"{page.uid}: {panel.title}", query) for page, panel in every_panel() for query in panel.asked),
    *((f"annotation: {a.name}", Query(a.expression)) for a in ANNOTATIONS),
]


@dataclass(frozen=True)
class Answers:
    """What every query found while nothing happened, and while everything did."""

    server: Prometheus
    calm: Mapping[str, Found]
    busy: Mapping[str, Found]
    at: float
    """When everything happened and no series was stale: later a machine that stalls may fail a scrape."""

    def best(self, query: Query) -> Found:
        """Return what a query found, at best."""
        busy = self.busy[query.expression]
        return busy if busy.series else self.calm[query.expression]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    world = World()
    pages = {job: (lambda job=job: reloads(world, world.page(job))) for job in sorted(set(JOBS.values()))}
    with running(tmp_path_factory.mktemp("prometheus"), pages, {"node": "lb1"}) as server:

        def answered() -> tuple[dict[str, Found], float]:
            now = rates_known(server, time.time())
            return {q.expression: ask(server, q, now) for _, q in QUERIES}, now

        calm, _ = answered()
        world.busy = True
        yield Answers(server, calm, *answered())


def finite(found: Found) -> bool:
    return found.sample is not None and any(map(math.isfinite, found.sample[1]))


ALWAYS = [(where, query) for where, query in QUERIES if query.legend not in EXCLUSIVE]


@pytest.mark.parametrize(("where", "query"), ALWAYS, ids=[f"{w} {q.legend}" for w, q in ALWAYS])
def test_every_query_finds_something(answers: Answers, where: str, query: Query) -> None:
    assert finite(answers.best(query)), (
        f"{where}: nothing that programs export is found by {query.expression}"
    )


def test_one_line_is_there_by_the_loss_of_the_moment(answers: Answers) -> None:
    lines = [query for _, query in QUERIES if query.legend in EXCLUSIVE]
    assert [q.legend for q in lines] == [name for name, *_ in LOSS_CLASSES]
    assert [q.legend for q in lines if finite(answers.busy[q.expression])] == [LOSS_CLASSES[-1][0]]


@pytest.mark.parametrize(
    ("page", "panel"),
    [(page, panel) for page, panel in every_panel() if panel.quiet],
    ids=lambda x: getattr(x, "uid", getattr(x, "title", "")),
)
def test_a_panel_without_data_while_all_is_well_has_some_otherwise(
    answers: Answers, page: Dashboard, panel: Panel
) -> None:
    for query in panel.asked:
        assert finite(answers.busy[query.expression]), query.expression


@pytest.mark.parametrize(
    ("page", "panel"), list(every_panel()), ids=lambda x: getattr(x, "uid", getattr(x, "title", ""))
)
def test_legends_and_columns_are_labels_of_the_answer(
    answers: Answers, page: Dashboard, panel: Panel
) -> None:
    every: set[str] = set()
    for query in panel.asked:
        if query.legend in EXCLUSIVE:
            continue
        found = {
            label for labels, _ in answers.best(query).series for label, value in labels.items() if value
        }
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= found, query.expression
        every |= found
    assert set(panel.columns) <= every


TABLES = [(page, panel) for page, panel in every_panel() if panel.kind == "table" and len(panel.queries) > 1]


def merged(panel: Panel, found: Sequence[Found]) -> list[Row]:
    return joined(panel, [[(labels, values[-1]) for labels, values in f.series] for f in found])


@pytest.mark.parametrize(("page", "panel"), TABLES, ids=lambda x: getattr(x, "uid", getattr(x, "title", "")))
def test_the_columns_of_a_table_are_of_one_row(answers: Answers, page: Dashboard, panel: Panel) -> None:
    """With everything there is, no column is in rows of its own: that row would have nothing in the others."""
    found = [answers.best(query) for query in panel.asked]
    rows = merged(panel, found)
    whole = [values for _, values in rows if len(values) == len(panel.queries)]
    assert whole, "no row has a value in each column"
    assert len(rows) <= max(len(f.series) for f in found) + sum(1 for _, v in rows if len(v) == 1)
    for query, answer in zip(panel.queries, found, strict=True):
        assert any(query.legend in values for values in whole), query.legend
        assert {name for labels, _ in answer.series for name in labels} <= set(panel.columns), query.legend


@pytest.mark.parametrize(
    ("page", "panel"),
    [(page, panel) for page, panel in every_panel() if panel.kind == "table"],
    ids=lambda x: getattr(x, "uid", getattr(x, "title", "")),
)
def test_no_cell_of_a_table_is_empty(answers: Answers, page: Dashboard, panel: Panel) -> None:
    rows = merged(panel, [answers.best(query) for query in panel.asked])
    assert rows and not holes(panel, rows)


def test_metrics_as_they_are_would_not_be_of_one_row(answers: Answers) -> None:
    """What tables did: each column but the first was empty, since the names of metrics are labels."""
    panel = next(p for _, p in TABLES if p.title == "Effect")
    found = [ask(answers.server, query, answers.at) for query in panel.queries]
    assert all(f.series for f in found)
    assert not [values for _, values in merged(panel, found) if len(values) > 1]
    assert [values for _, values in merged(panel, [answers.best(q) for q in panel.asked]) if len(values) == 3]


@pytest.mark.parametrize(
    ("page", "panel"),
    [(page, panel) for page, panel in every_panel() if panel.kind in ("timeseries", "state")],
    ids=lambda x: getattr(x, "uid", getattr(x, "title", "")),
)
def test_no_two_lines_have_one_name(answers: Answers, page: Dashboard, panel: Panel) -> None:
    names: list[str] = []
    for query in panel.asked:
        for labels, _ in answers.best(query).series:
            name = re.sub(r"\{\{(\w+)\}\}", lambda m, has=labels: has.get(m[1], ""), query.legend)
            names.append(name)
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)[:5]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
def test_every_variable_offers_values(answers: Answers, page: Dashboard) -> None:
    for variable in page.variables:
        assert offered(answers.server, variable), variable.query


def test_a_value_that_no_program_exports_is_found_out(answers: Answers) -> None:
    """The agent says active. A panel asked for ACTIVE once, and its test made the series up from the query."""
    before = 'sum by (policy, level) (vigia_isolation_actions{state="ACTIVE"})'
    assert not ask(answers.server, Query(before), answers.at).series
    assert ask(answers.server, Query(before.lower()), answers.at).series
    with pytest.raises(
        UnknownName, match=r"vigia_isolation_actions\{state\} is never 'ACTIVE', but received, "
    ):
        check(before)


def test_annotations_mark_what_happens_alone(answers: Answers) -> None:
    """Nothing happens in the calm world but that its clocks are not synchronised, of which alerts may say so."""
    for a in ANNOTATIONS:
        assert answers.busy[a.expression].series, a.name
        assert a.name == "Alerts begin" or not answers.calm[a.expression].series, a.name


def test_actions_of_a_replica_that_led_before_do_not_count(answers: Answers) -> None:
    """Nobody leads for a moment: what the replica counted last stays, and does not count."""
    server, now = answers.server, answers.at
    every, led = ask(server, Query("vigia_isolation_actions"), now), ask(server, Query(ACTIONS), now)
    assert len(every.series) == len(led.series) > 50
    in_force = {labels["state"] for labels, _ in ask(server, Query(IN_FORCE), now).series}
    assert in_force == {"active", "stepped_up", "stepped_down"}
    for expression in (ACTIONS, IN_FORCE):
        deposed = expression.replace("== 1", "== 0")
        assert deposed != expression and not ask(server, Query(deposed), now).series


def test_the_world_has_every_value_of_every_closed_label() -> None:
    metrics = [m for part in JOBS for m in vigia_catalog.part_metrics(part)]
    for m in metrics:
        made = combinations(m.labels, m.values)
        assert 1 <= len(made) <= MOST and len({tuple(c.values()) for c in made}) == len(made)
        for label, values in m.values.items():
            assert {c[label] for c in made} == set(values), (m.name, label)


def test_the_list_of_quiet_panels_is_short_and_gives_reasons() -> None:
    every = list(every_panel())
    quiet = [panel for _, panel in every if panel.quiet]
    assert len(quiet) < len(every) / 2
    assert all(len(panel.quiet) > 10 for panel in quiet)
