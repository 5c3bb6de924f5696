"""The home page: what is wrong now is named, with what to do, and nothing is coloured while all is well."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from panelkit import by_title, properties

from vigia_dashboards.pages import PAGES
from vigia_dashboards.pages.now import NOW

ROOT = Path(__file__).resolve().parents[2]
RULES = [
    rule
    for file in sorted((ROOT / "alert-rules").glob("*.yml"))
    for group in yaml.safe_load(file.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
]


@pytest.fixture(scope="module")
def panels() -> dict[str, Any]:
    """The panels of the committed page, by title."""
    return by_title(NOW)


def mapped(panel: Any, column: str) -> dict[str, str]:
    """Return which text a column shows in place of a value."""
    values = properties(panel, column)["mappings"]
    return {value: shown["text"] for v in values for value, shown in v["options"].items()}


def test_it_is_the_first_page_that_people_see() -> None:
    assert PAGES[0] is NOW
    settings = (ROOT / "deploy/grafana/grafana.ini").read_text()
    assert "vigia-now.json" in settings


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r["alert"])
def test_every_alert_says_there_what_to_do_and_where_to_look(panels: dict[str, Any], rule: Any) -> None:
    table = panels["Alerts that fire"]
    assert mapped(table, "what to do")[rule["alert"]] == rule["annotations"]["action"]
    page = mapped(table, "next page")[rule["alert"]]
    assert f"vigia-{page}" in {p.uid for p in PAGES}
    assert rule["annotations"]["dashboard_url"].startswith(f"/d/vigia-{page}")


def test_without_an_alert_one_row_says_so(panels: dict[str, Any]) -> None:
    table = panels["Alerts that fire"]
    assert mapped(table, "what to do")["none fires"] == "Nothing."
    for target in table["targets"]:
        assert '"none fires"' in target["expr"] and "unless on () ALERTS" in target["expr"]
        assert "up" in target["expr"], "it is said only while something is scraped"


def test_numbers_have_colour_only_where_something_is_wrong(panels: dict[str, Any]) -> None:
    stats = {t: p for t, p in panels.items() if p["type"] == "stat"}
    assert len(stats) == 6
    for title, panel in stats.items():
        first, *others = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert first["color"] == "text", title
        assert others and {s["color"] for s in others} <= {"orange", "purple"}, title
        assert all(s["value"] > 0 for s in others), f"{title}: nothing is wrong at 0"
        assert panel["options"]["graphMode"] == "area", f"{title} has no sparkline"


def test_who_hurts_whom_is_by_name_and_of_what_is_known(panels: dict[str, Any]) -> None:
    table = panels["Who hurts whom"]
    for target in table["targets"]:
        assert 'verdict=~"attributed|likely"' in target["expr"]
        assert "offender" in target["expr"]


def test_alerts_are_sorted_by_severity_and_not_by_its_spelling(panels: dict[str, Any]) -> None:
    """Tables are sorted by values: a critical alert would come after what is for information, and none before it."""
    table = panels["Alerts that fire"]
    ranks = mapped(table, "severity")
    assert [ranks[rank] for rank in sorted(ranks) if rank] == ["critical", "warning", "info", "none"]
    assert {rule["labels"]["severity"] for rule in RULES} <= set(ranks.values())
    assert table["options"]["sortBy"] == [{"displayName": "severity", "desc": False}]
    for target in table["targets"]:
        given = dict(re.findall(r'"severity", "(\d)", "severity", "(\w+)"', target["expr"]))
        assert given == {rank: name for rank, name in ranks.items() if rank}, "each row has its rank"


def test_an_alert_opens_the_next_page_with_what_it_is_about(panels: dict[str, Any]) -> None:
    """What it does not name is All there, which the linked page takes as no choice."""
    table = panels["Alerts that fire"]
    (link,) = properties(table, "next page")["links"]
    assert link["url"].startswith("/d/vigia-${__value.text}?")
    for label in ("tenant", "node", "path"):
        assert f"var-{label}=${{__data.fields.{label}}}" in link["url"]
        for target in table["targets"]:
            assert f'"{label}", "All", "{label}", ""' in target["expr"]
