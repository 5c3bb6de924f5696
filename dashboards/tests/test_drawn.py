"""What Grafana draws of the committed JSON: regions, axes, columns with room for their values, links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from panelkit import by_title, document, panels_of, properties

from vigia_dashboards.annotations import ANNOTATIONS, STEP
from vigia_dashboards.expressions import labels_of, selectors
from vigia_dashboards.grafana import CHARACTER, HALF, NARROW
from vigia_dashboards.model import Dashboard, Panel
from vigia_dashboards.pages import PAGES

BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
TABLES = [(page, p) for page in PAGES for row in page.rows for p in row.panels if p.kind == "table"]
BY_TABLE = pytest.mark.parametrize(
    ("page", "panel"), TABLES, ids=lambda x: getattr(x, "uid", getattr(x, "title", ""))
)

SCREEN = 1600
"""Pixels of a usual screen; panels have all of it but their margins."""

MARGINS = 32

SCROLLED = {"Every pair", "Evidence"}
"""Tables whose last columns are beyond a usual screen; only ever fewer."""


@BY_PAGE
def test_floods_and_limits_are_regions_on_every_panel_with_a_time_axis(page: Dashboard) -> None:
    drawn = {a["name"]: a for a in document(page)["annotations"]["list"]}
    for name, colour in (("Floods", "purple"), ("Limits", "blue")):
        a = drawn[name]
        assert a["enable"] and not a.get("hide"), "it is drawn when the page opens"
        assert not a.get("filter"), "a filter would leave panels out"
        assert a["iconColor"] == colour
        assert a["step"] == STEP == "1m", "looks that follow each other at this distance are one region"
        assert "[$__interval] offset -30s" in a["expr"], "a look sees half a step before it and after it"
    assert {p["type"] for p in panels_of(page)} & {"timeseries", "state-timeline"}


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=lambda a: a.name)
def test_an_annotation_names_what_its_series_have(annotation: Any) -> None:
    """A label that the expression drops is written as nothing: "limit on"."""
    wanted = set(re.findall(r"\{\{(\w+)\}\}", annotation.title)) | set(annotation.tags.split(","))
    kept = re.match(r"\w+ by \(([^)]*)\)", annotation.expression)
    if kept:
        assert wanted <= set(kept[1].split(", "))
    else:
        assert all(wanted <= (labels_of(str(s.name)) or set()) for s in selectors(annotation.expression))


@BY_PAGE
def test_no_unit_makes_milli_packets(page: Dashboard) -> None:
    """Grafana writes 0.07 packets a second as 70 mp/s; the axis says what there is a second of instead."""
    given = {p.title: p for row in page.rows for p in row.panels}
    for panel in panels_of(page):
        units = {panel["fieldConfig"]["defaults"]["unit"]} | {
            p["value"]
            for override in panel["fieldConfig"]["overrides"]
            for p in override["properties"]
            if p["id"] == "unit"
        }
        assert not units & {"pps", "cps", "ops", "cpm", "wps", "rps"}, panel["title"]
        says = {
            "pps": "packets a second",
            "cps": "a second",
            "ops": "a second",
            "cpm": "a minute",
            "B": "bytes",
        }
        if panel["type"] == "timeseries":
            label = panel["fieldConfig"]["defaults"]["custom"].get("axisLabel", "")
            assert label == says.get(given[panel["title"]].unit, ""), panel["title"]


@BY_PAGE
def test_delays_have_a_logarithmic_axis_and_counts_one_from_zero(page: Dashboard) -> None:
    given = {p.title: p for row in page.rows for p in row.panels}
    for panel in (p for p in panels_of(page) if p["type"] == "timeseries"):
        custom = panel["fieldConfig"]["defaults"]["custom"]
        scale = custom.get("scaleDistribution", {"type": "linear"})
        if panel["fieldConfig"]["defaults"]["unit"] == "s" and not given[panel["title"]].signed:
            assert scale == {"type": "log", "log": 10}, panel["title"]
            assert "axisSoftMin" not in custom, "a logarithmic axis has no zero"
        else:
            assert scale["type"] == "linear", panel["title"]
            assert ("axisSoftMin" in custom) != given[panel["title"]].signed, "below zero is cut off"


def widths(panel: Panel, made: Any) -> dict[str, int]:
    """Return the least width of every column that is shown, in pixels, by label or legend."""
    headings = {c: panel.names.get(c, c) for c in panel.columns}
    headings |= {q.legend: q.legend or "value" for q in panel.queries if not q.hidden}
    found = {name: properties(made, heading) for name, heading in headings.items()}
    return {name: p.get("custom.width") or p.get("custom.minWidth") or 0 for name, p in found.items()}


@BY_TABLE
def test_columns_have_room_for_their_heading_and_their_words(page: Dashboard, panel: Panel) -> None:
    made = by_title(page)[panel.title]
    for name, width in widths(panel, made).items():
        heading = panel.names.get(name, name)
        assert width >= CHARACTER * len(heading), f"{heading} is cut off at {width} pixels"
    for query in panel.queries:
        for _, word, _ in query.words:
            assert properties(made, query.legend)["custom.minWidth"] >= CHARACTER * len(word), word


@BY_TABLE
def test_what_decides_fits_a_usual_screen(page: Dashboard, panel: Panel) -> None:
    """Columns that qualify a row come last: a table that is too wide is scrolled, and what decides is there."""
    found = widths(panel, by_title(page)[panel.title])
    room = SCREEN * panel.width // (2 * HALF) - MARGINS
    assert sum(w for name, w in found.items() if name not in panel.after) <= room
    assert (sum(found.values()) > room) == (panel.title in SCROLLED)


@BY_PAGE
def test_columns_of_a_matrix_have_room_for_a_number(page: Dashboard) -> None:
    matrices = {p.title for row in page.rows for p in row.panels if p.kind == "matrix"}
    for title in matrices:
        assert by_title(page)[title]["fieldConfig"]["defaults"]["custom"]["minWidth"] == NARROW


def addresses(part: Any) -> Iterator[str]:
    """Yield every address in a part of a document."""
    if isinstance(part, dict):
        yield from (v for k, v in part.items() if k == "url" and v)
        part = list(part.values())
    for inner in part if isinstance(part, list) else ():
        yield from addresses(inner)


@BY_PAGE
def test_every_address_leads_to_a_page_and_variables_that_exist(page: Dashboard) -> None:
    known = {p.uid: {v["name"] for v in document(p)["templating"]["list"]} for p in PAGES}
    found = list(addresses(document(page)))
    assert found
    for address in found:
        match = re.fullmatch(r"/d/([a-z-]+|vigia-\$\{__value\.text\})(\?.+)?", address)
        assert match, address
        variables = set(re.findall(r"[?&]var-(\w+)=", address))
        assert variables <= (known[match[1]] if match[1] in known else set().union(*known.values())), address
        assert match[1] in known or match[1].endswith("}"), address
        if match[2]:
            times = "${__url_time_range}" in address or ("&from=" in address and "&to=" in address)
            assert times and match[2].startswith("?${datasource:queryparam}&"), "time and source are kept"


@BY_PAGE
def test_links_at_the_top_keep_the_time_and_what_is_chosen(page: Dashboard) -> None:
    """But for a page of one thing, which must not open with all that are chosen here."""
    single = {p.uid for p in PAGES if any(v.single for v in p.variables)}
    assert "vigia-incident" in single
    for link in document(page)["links"]:
        assert link["keepTime"] is True
        if link["type"] == "link":
            assert link["includeVars"] == (link["url"].removeprefix("/d/") not in single), link["title"]


NOTED = [(page, p) for page, p in TABLES if "note" in p.columns]


@pytest.mark.parametrize(("page", "panel"), NOTED, ids=lambda x: getattr(x, "uid", getattr(x, "title", "")))
def test_a_verdict_is_shown_with_what_it_may_be_about_instead(page: Dashboard, panel: Panel) -> None:
    """A verdict may be that of two programs or pairs of hosts: its note comes with it, and none is said, too."""
    assert page.uid == "vigia-comparison"
    made = by_title(page)[panel.title]
    (mapping,) = properties(made, "note")["mappings"]
    assert mapping["options"][""]["text"] == "none"
    assert "Note: what the two paths differ in besides" in made["description"]
    for target in made["targets"]:
        assert re.match(r"max by \([^)]*\bnote\)", target["expr"]), "aggregation must not drop it"
    assert any(
        "group_left (note)" in q or "verdict, note)" in q for q in (t["expr"] for t in made["targets"])
    )


def test_verdicts_and_winners_have_notes_and_their_tables_show_them() -> None:
    assert all("note" in (labels_of(f"vigia_compare_{name}") or ()) for name in ("verdict", "winner"))
    assert {panel.title for _, panel in NOTED} == {"Which path is best", "Every pair"}
    assert "verdict, note" not in json.dumps(document(PAGES[0])), "the first page says the best path alone"
