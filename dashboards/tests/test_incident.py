"""The page of one incident: of one tenant and one time range, and reached with both."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from panelkit import by_title, document, properties

from vigia_dashboards.expressions import labels_of, ranges, selectors, substituted
from vigia_dashboards.model import Dashboard, Panel, Query
from vigia_dashboards.pages import PAGES
from vigia_dashboards.pages.harm import MARGIN
from vigia_dashboards.pages.incident import INCIDENT
from vigia_dashboards.pages.now import NOW
from vigia_dashboards.pages.tenants import INTERFERENCE

PANELS = [panel for row in INCIDENT.rows for panel in row.panels]
BY_PANEL = pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.title)
SHOWN = {"$__range": "7h", "$__rate_interval": "2m"}
"""A range that no query has by itself."""

INTO = ((NOW, "Who hurts whom"), (INTERFERENCE, "Who hurt it"), (INCIDENT, "Incidents"))
"""Tables that lead to an incident."""


def asked(panel: Panel) -> list[tuple[Query, str]]:
    """Return the queries, and the expressions as Grafana asks them while seven hours are shown."""
    return [(q, substituted(q.expression, SHOWN)) for q in panel.asked]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """The panels of the committed page, by title."""
    return by_title(INCIDENT)


def test_it_is_of_one_tenant_and_of_none_of_the_infrastructure() -> None:
    (variable,) = document(INCIDENT)["templating"]["list"][1:]
    assert variable["name"] == "tenant" and variable["includeAll"] is False
    assert not variable.get("current"), "the first tenant is chosen, not All, which there is none of"
    assert 'tenant!~"_.*"' in str(variable["query"])


def test_its_rows_are_the_questions_in_the_order_in_which_they_are_asked() -> None:
    rows = [row.title for row in INCIDENT.rows]
    assert rows == ["What happened", "Cause, action and evidence", "Load and limits", "Effect"]
    assert [p.title for p in INCIDENT.rows[1].panels][:2] == ["Causes, largest first", "What was done"]
    assert {uid for uid, _ in INCIDENT.links} == {"vigia-now", "vigia-tenants", "vigia-isolation"}


@BY_PANEL
def test_windows_follow_the_range_that_is_shown(panel: Panel) -> None:
    """An incident of seven hours is counted over seven hours, and a line has points of the step's width."""
    wanted = timedelta(hours=7) if panel.instant else timedelta(minutes=2)
    for _, expression in asked(panel):
        for selector, over in ranges(expression):
            assert over == wanted, (selector.name, over)


def test_there_are_windows_of_both_kinds() -> None:
    """Otherwise nothing was tested above."""
    over = {w for p in PANELS for _, e in asked(p) for _, w in ranges(e)}
    assert over == {timedelta(hours=7), timedelta(minutes=2)}


@BY_PANEL
def test_what_is_of_the_tenant_is_of_the_chosen_one(panel: Panel) -> None:
    """Who did it, and what was done to whom, is of all tenants: the offender is another one."""
    of_all = {"What tenants send", "Limits", "What was done", "Incidents", "What the probes recorded"}
    if panel.title in of_all:
        return
    for query in panel.queries:
        for selector in selectors(query.expression):
            own = str(selector.name).startswith(("path:", "vigia_compare_interference", "vigia_compare_loss"))
            if own and "tenant" in (labels_of(str(selector.name)) or ()):
                chosen = [m.name for m in selector.matchers.matchers if m.value == ".+"]
                by_join = "verdict" in {m.name for m in selector.matchers.matchers}
                assert "tenant" in chosen or by_join, (query.legend, selector.name)


def test_numbers_are_the_worst_of_the_range(made: dict[str, Any]) -> None:
    """The latest value of an incident that is over says that all is well."""
    stats = [p for p in made.values() if p["type"] == "stat"]
    assert len(stats) == 6
    for panel in stats:
        assert panel["options"]["reduceOptions"]["calcs"] == ["max"], panel["title"]
        assert all(t["range"] and not t.get("instant") for t in panel["targets"]), panel["title"]


def test_the_timeline_has_a_word_for_every_state(made: dict[str, Any]) -> None:
    """Each query has a number of its own, and 0 for that it is not so."""
    (panel,) = (p for p in PANELS if p.kind == "state")
    factors = [re.match(r"(\d) \* ", q.expression) for q in panel.queries]
    numbers = {"0"} | {m[1] if m else "1" for m in factors}
    assert len(numbers) == len(panel.queries) + 1
    assert all("> bool" in q.expression for q in panel.queries), "0 or 1, not gaps"
    (mapping,) = made[panel.title]["fieldConfig"]["defaults"]["mappings"]
    assert mapping["options"].keys() == numbers


@BY_PANEL
def test_what_is_empty_while_all_is_well_says_why(panel: Panel, made: dict[str, Any]) -> None:
    """Where nothing happened a filter finds nothing, and harm, evidence and limits have no series."""
    absent = ("vigia_compare_interference", "vigia_compare_loss_verdict", "vigia_isolation_limit")
    for query in panel.queries:
        filtered = re.search(r" > 0$|\[7h\]\) > 0", substituted(query.expression, SHOWN))
        of_absent = any(str(s.name).startswith(absent) for s in selectors(query.expression))
        if panel.kind != "state" and (filtered or of_absent):
            assert panel.quiet, query.legend
            assert made[panel.title]["description"].endswith(f"No data is normal if {panel.quiet}.")


@pytest.mark.parametrize(("page", "title"), INTO, ids=lambda x: getattr(x, "uid", x))
def test_a_click_on_who_was_hurt_shows_that_incident(page: Dashboard, title: str) -> None:
    table = by_title(page)[title]
    (link,) = properties(table, "hurt")["links"]
    assert link["url"].startswith("/d/vigia-incident?${datasource:queryparam}&var-tenant=${__data.fields[0]}")
    assert link["url"].endswith("&from=${__data.fields.from.numeric}&to=${__data.fields.to.numeric}")
    order = next(t for t in table["transformations"] if t["id"] == "organize")["options"]["indexByName"]
    assert min(order, key=lambda name: order[name]) == "tenant", "field 0 is who was hurt"


@pytest.mark.parametrize(("page", "title"), INTO, ids=lambda x: getattr(x, "uid", x))
def test_its_time_range_is_that_of_the_incident_and_five_minutes(page: Dashboard, title: str) -> None:
    """Whole milliseconds: Grafana takes a time with a fraction for a name."""
    table = by_title(page)[title]
    targets = {t["legendFormat"]: t["expr"] for t in table["targets"]}
    assert MARGIN == 300
    for heading, bound in (
        ("from", "begin_timestamp_seconds - 300)"),
        ("to", "end_timestamp_seconds + 300)"),
    ):
        assert properties(table, heading)["custom.hidden"] is True, "it is there for the address alone"
        assert "(floor(1000 * (" in targets[heading] and bound in targets[heading]
        assert "or 1000 * (time()" in targets[heading], (
            "what has no times opens the hour that was asked about"
        )


def test_every_page_with_a_table_of_harm_is_among_those() -> None:
    leads = {
        (page.uid, panel.title)
        for page in PAGES
        for row in page.rows
        for panel in row.panels
        if any("/d/vigia-incident" in address for address in (panel.drill, *panel.clicks.values()))
    }
    assert leads == {(page.uid, title) for page, title in INTO}
