"""Dashboards against the common rules, the catalogue and their committed JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard as SdkDashboard
from panelkit import document, panels_of

from vigia_dashboards import __main__ as generator
from vigia_dashboards.expressions import UnknownName, alerts, check, labels_of, selectors, substituted
from vigia_dashboards.grafana import to_json
from vigia_dashboards.model import Dashboard, Panel, Query, Row, bits, or_none, per_minute
from vigia_dashboards.pages import PAGES
from vigia_dashboards.pages.own import OWN

ROOT = Path(__file__).resolve().parents[2]
PANELS = [(page, panel) for page in PAGES for row in page.rows for panel in row.panels]
BY_PANEL = pytest.mark.parametrize(
    ("page", "panel"), PANELS, ids=lambda x: getattr(x, "uid", getattr(x, "title", ""))
)


def test_committed_json_is_what_the_definitions_make() -> None:
    assert generator.main(["--check"]) == 0


def test_uids_are_frozen_and_home_is_first() -> None:
    assert [p.uid for p in PAGES] == [
        "vigia-now",
        "vigia-incident",
        "vigia-fleet",
        "vigia-path",
        "vigia-comparison",
        "vigia-tenants",
        "vigia-openflow",
        "vigia-isolation",
        "vigia-self",
        "vigia-host",
        "vigia-slo",
        "vigia-studies",
        "vigia-tenant",
    ]
    assert len({p.title for p in PAGES}) == len(PAGES)
    provider = yaml.safe_load((ROOT / "deploy/grafana/provisioning/dashboards/vigia.yaml").read_text())[
        "providers"
    ][0]
    assert provider["folder"] not in {p.title for p in PAGES}
    assert provider["allowUiUpdates"] is False


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
def test_a_page_keeps_the_common_rules(page: Dashboard) -> None:
    found = document(page)
    assert SdkDashboard.from_json(found).uid == page.uid
    assert found["graphTooltip"] == 1 and found["refresh"] == "30s" and found["time"]["from"] == "now-1h"
    assert found["editable"] is False and found["tags"] == ["vigia"]
    names = [v["name"] for v in found["templating"]["list"]]
    assert names[0] == "datasource" and len(set(names)) == len(names)
    single = {v.name for v in page.variables if v.single}
    for variable in found["templating"]["list"][1:]:
        assert variable["allValue"] == ".+" and variable["multi"] and variable["refresh"] == 2
        assert variable["includeAll"] != (variable["name"] in single)
        if variable["includeAll"]:
            assert variable["current"]["value"] == "$__all"
    annotations = [a for a in found["annotations"]["list"] if a["datasource"]["uid"] == "${datasource}"]
    assert {a["name"] for a in annotations} == {
        "Floods",
        "Limits",
        "Alerts begin",
        "Isolation actions",
        "Configuration reloads",
        "Restarts",
        "Campaigns",
    }
    assert all(a["step"] and a["expr"] for a in annotations)
    assert all(a["enable"] for a in annotations if a["name"] in ("Floods", "Limits", "Alerts begin"))
    assert page.links and any(link["type"] == "dashboards" for link in found["links"])
    assert "__inputs" not in found and "DS_PROMETHEUS" not in json.dumps(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
def test_every_panel_has_description_unit_and_the_chosen_data_source(page: Dashboard) -> None:
    panels = list(panels_of(page))
    assert len(panels) == sum(len(row.panels) for row in page.rows)
    assert len({p["id"] for p in panels}) == len(panels)
    for panel in panels:
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        bounds = next(p.bounds for row in page.rows for p in row.panels if p.title == panel["title"])
        given = panel["fieldConfig"]["defaults"].get("thresholds", {"steps": []})["steps"][1:]
        assert [(t["value"], t["color"]) for t in given] == list(bounds), "no default thresholds"
        for target in panel["targets"]:
            assert target["expr"]


@BY_PANEL
def test_expressions_keep_the_rules(page: Dashboard, panel: Panel) -> None:
    for query in panel.queries:
        unit = query.unit or panel.unit
        promql_parser.parse(substituted(query.expression))
        check(query.expression)
        assert "irate" not in query.expression
        fixed = re.findall(r"\[(?!\$__)[^]]*\]", query.expression)
        assert not fixed, "a fixed range does not follow the time range and the scrape interval"
        assert (unit == "bps") == query.expression.startswith("8 * ("), (
            "bits are made by bits(), and shown as bps"
        )
        assert (unit == "cpm") == query.expression.startswith("60 * ("), (
            "what happens a minute is made by per_minute()"
        )
        assert (unit == "dateTimeFromNow") == (
            query.expression.startswith("1000 * ")
            or "(1000 * " in query.expression
            or " 1000 * " in query.expression
        ), "Grafana's times are in milliseconds"
        named = set(re.findall(r"\$\{?([a-z]+)\}?", query.expression.replace("$__", "")))
        assert named - {"rate_interval"} <= {v.name for v in page.variables}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
def test_variables_ask_for_what_exists(page: Dashboard) -> None:
    for variable in page.variables:
        match = re.fullmatch(r"label_values\((\w+)(\{.*\})?, (\w+)\)", variable.query)
        assert match, variable.query
        check(f"count({match[1]}{match[2] or ''})")
        assert match[3] in (labels_of(match[1]) or set()), variable.query


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
def test_a_panel_without_data_claims_nothing(page: Dashboard) -> None:
    """A program that is down exports nothing, too: that all is well is a reading, and the description has it."""
    quiet = {p.title: p.quiet for row in page.rows for p in row.panels if p.quiet}
    for panel in panels_of(page):
        says = panel["fieldConfig"]["defaults"].get("noValue")
        assert says == (None if panel["type"] == "timeseries" else "no data"), panel["title"]
        normal = f"No data is normal if {quiet[panel['title']]}." if panel["title"] in quiet else ""
        assert panel["description"].endswith(normal)
        assert bool(normal) == ("No data is normal" in panel["description"])


@BY_PANEL
def test_colour_is_never_alone(page: Dashboard, panel: Panel) -> None:
    for value, word, colour in (*panel.words, *(w for q in panel.queries for w in q.words)):
        assert value and word and colour not in ("red", "green"), "reds and greens look alike to many"
    for value, colour in (*panel.bounds, *(b for q in panel.queries for b in q.bounds)):
        assert panel.kind in ("table", "matrix", "stat"), "a cell has its number in it, a line has not"
        assert colour not in ("red", "green")
        assert f"{colour} from" in panel.description and re.search(
            rf"{colour} from ({value:g}|{value * 100:g} %|{value * 1000:g} ms)(?!\d)", panel.description
        ), "what a colour means is said"


@BY_PANEL
def test_what_a_click_opens_is_there(page: Dashboard, panel: Panel) -> None:
    """Of a page that depends on the row, every one that there can be has a variable of the row's, or ignores it."""
    targets = {p.uid: p for p in PAGES}
    for address in (panel.drill, *panel.clicks.values()):
        if not address:
            continue
        match = re.match(r"/d/([a-z-]+|vigia-\$\{__value\.text\})\?", address)
        assert match, address
        carried = set(re.findall(r"var-(\w+)=", address))
        if match[1] in targets:
            assert carried <= {v.name for v in targets[match[1]].variables}
        else:
            (label,) = [label for label, a in panel.clicks.items() if a == address]
            uids = {f"vigia-{text}" for text in panel.texts[label].values()}
            assert uids <= targets.keys()
            known = {v.name for uid in uids for v in targets[uid].variables}
            assert carried <= known
        if panel.kind == "table":
            named = set(re.findall(r"__data\.fields\.(\w+)", address))
            given = {panel.names.get(c, c) for c in panel.columns} | {
                q.legend for q in panel.queries if q.hidden
            }
            assert named <= given, "a field is known by its heading"


def test_a_heading_of_a_matrix_opens_its_source_alone() -> None:
    """Its name is that of both labels: as a destination there is no such node."""
    for page, panel in PANELS:
        if panel.kind != "matrix" or not panel.drill:
            continue
        made = next(p for p in panels_of(page) if p["title"] == panel.title)
        (heading,) = [o for o in made["fieldConfig"]["overrides"] if o["matcher"]["options"] == "src\\dst"]
        (links,) = [p["value"] for p in heading["properties"] if p["id"] == "links"]
        assert "var-src=${__data.fields[0]}" in links[0]["url"] and "var-dst" not in links[0]["url"]
        assert "var-dst=${__field.name}" in made["fieldConfig"]["defaults"]["links"][0]["url"]


def test_every_alert_says_what_to_do_and_where_to_look() -> None:
    """On the first page, in the words of its rule."""
    (panel,) = [p for page, p in PANELS if page is PAGES[0] and "todo" in p.texts]
    assert alerts().keys() == panel.texts["todo"].keys() - {"none fires"}
    assert all(panel.texts["todo"][name] == said["action"] for name, said in alerts().items())
    assert all(
        f"/d/vigia-{panel.texts['look'][name]}" in said["dashboard_url"] for name, said in alerts().items()
    )
    made = next(p for p in panels_of(PAGES[0]) if p["title"] == panel.title)
    by_heading = {o["matcher"]["options"]: o["properties"] for o in made["fieldConfig"]["overrides"]}
    (mapping,) = [p["value"][0] for p in by_heading["what to do"] if p["id"] == "mappings"]
    assert mapping["options"]["VigiaUdpFlood"]["text"] == alerts()["VigiaUdpFlood"]["action"]


@BY_PANEL
def test_what_decides_is_on_the_screen(page: Dashboard, panel: Panel) -> None:
    """A column takes about 130 of 1 600 pixels; names are wider than numbers."""
    if panel.kind == "table":
        columns = len(panel.columns) + len(panel.queries)
        assert columns <= 12
        assert panel.width == 24 or columns <= 6, "half a page is too narrow for so many columns"


@BY_PANEL
def test_rows_of_a_table_are_those_of_its_columns(page: Dashboard, panel: Panel) -> None:
    """Rows are merged by all labels of their series, and names of metrics differ."""
    for given, asked in zip(panel.queries, panel.asked, strict=True):
        if panel.kind == "table":
            assert asked.expression == f"max by ({', '.join(panel.columns)}) ({given.expression})"
        else:
            assert asked == given
    made = next(p for p in panels_of(page) if p["title"] == panel.title)
    assert [t["expr"] for t in made["targets"]] == [q.expression for q in panel.asked]
    kinds = [t["id"] for t in made.get("transformations") or ()]
    if panel.kind == "table":
        assert kinds == (["merge", "organize"] if len(panel.queries) > 1 else ["organize"])


QUANTITIES = (
    (r"_timestamp_seconds$", {"dateTimeFromNow", "s"}),
    (r"(_seconds|:p50_rate1m|:p99_rate1m)$", {"s"}),
    (r"_mtu_bytes$", {"B"}),
    (r"(_bytes_per_second|_bytes_total|_bytes)$", {"bytes", "bps"}),
    (r"(_ratio|:ratio_rate\d+[mh]|:ratio)$", {"percentunit", "none"}),
    (r"(_packets_total|_drops_total|_sent_total|_skipped_total)$", {"pps", "cpm", "short"}),
    (r"(RetransSegs|RcvbufErrors|:rate5m)$", {"cpm", "pps"}),
    (r"_total$", {"cpm", "cps", "ops", "pps", "none", "short"}),
)
"""What a metric's name ends with, and the units that it can be shown in."""


@BY_PANEL
def test_units_are_those_of_the_metrics(page: Dashboard, panel: Panel) -> None:
    """Where a query reads one metric, and neither counts nor compares it."""
    for query in panel.queries:
        names = {str(s.name) for s in selectors(query.expression)}
        if len(names) != 1 or re.search(
            r"\bcount|\bchanges|timestamp\(| / |==|> bool|time\(\) -|\^", query.expression
        ):
            continue
        (name,) = names
        allowed = next((units for ending, units in QUANTITIES if re.search(ending, name)), None)
        unit = query.unit or panel.unit
        if allowed is None:
            assert unit in ("short", "none", "s"), (name, unit)
        elif not ("_cpu_seconds_total" in name or "histogram_fraction" in query.expression):
            assert unit in allowed, (name, unit)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
def test_axes_show_what_is_small_beside_what_is_large(page: Dashboard) -> None:
    given = {p.title: p for row in page.rows for p in row.panels}
    for made in panels_of(page):
        panel = given[made["title"]]
        if made["type"] != "timeseries":
            continue
        custom = made["fieldConfig"]["defaults"]["custom"]
        delays = panel.unit == "s" and not panel.signed
        assert (custom.get("scaleDistribution", {}).get("type") == "log") == delays, panel.title
        if panel.unit == "percentunit":
            assert custom["axisSoftMax"] <= 0.01, "an axis of zero alone would reach to 10 000 %"
        assert made["fieldConfig"]["defaults"]["unit"] not in ("pps", "cps", "ops"), "0.07 would be 70 milli"
        assert custom["fillOpacity"] == (25 if panel.kind == "smoke" else 0), "areas on areas hide each other"


def test_links_lead_to_every_page_from_another() -> None:
    reached = {uid for page in PAGES for uid, _ in page.links if uid != page.uid}
    assert reached == {page.uid for page in PAGES} - {OWN.uid}, "a tenant's own page is the tenant's alone"


def test_the_smoke_names_the_loss_of_its_median() -> None:
    """Four lines, one of which is there at a time: the classes cover every loss once."""
    (smoke,) = [panel for _, panel in PANELS if panel.kind == "smoke"]
    lines = [q for q in smoke.queries if q.legend.startswith("median")]
    holds = {q.legend: [re.findall(r"([<>=]+) ([\d.]+)", q.expression.rsplit(" > 0)", 1)[1])] for q in lines}
    for loss in (0.0, 0.0005, 0.001, 0.005, 0.01, 0.5):
        there = [
            name
            for name, (conditions,) in holds.items()
            if all(
                {"==": loss == float(x), ">": loss > float(x), "<": loss < float(x), ">=": loss >= float(x)}[
                    op
                ]
                for op, x in conditions
            )
        ]
        assert len(there) == 1, (loss, there)
    page = next(page for page, p in PANELS if p is smoke)
    made = next(p for p in panels_of(page) if p["title"] == smoke.title)
    assert {q.legend for q in lines} <= {o["matcher"]["options"] for o in made["fieldConfig"]["overrides"]}


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(vigia_nothing_total[1m])", "vigia_nothing_total is neither in the catalogue nor recorded"),
        ('vigia_probe_sent_total{colour="red"}', r"vigia_probe_sent_total has no label \['colour'\]"),
        (
            "sum by (colour) (vigia_probe_sent_total)",
            r"no series of the expression has the labels \['colour'\]",
        ),
        ('{job="x"}', "names no metric"),
        ("vigia_probe_sent_total_bucket", "neither in the catalogue"),
    ],
)
def test_the_generator_refuses_what_nothing_declares(expression: str, problem: str) -> None:
    page = replace(PAGES[0], rows=(Row("r", (Panel("stat", "t", "d", (Query(expression),), "short"),)),))
    with pytest.raises(UnknownName, match=problem):
        to_json(page, PAGES)


def test_the_generator_refuses_broken_promql_and_dead_links() -> None:
    page = replace(PAGES[0], rows=(Row("r", (Panel("stat", "t", "d", (Query("rate(up[1m)"),), "short"),)),))
    with pytest.raises(ValueError, match=r"invalid|unexpected|parse|expected"):
        to_json(page, PAGES)
    with pytest.raises(LookupError, match="links to vigia-none, which is no dashboard"):
        to_json(replace(PAGES[0], links=(("vigia-none", "x"),)), PAGES)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (
            'vigia_isolation_actions{state="ACTIVE"}',
            r"vigia_isolation_actions\{state\} is never 'ACTIVE', but received, ",
        ),
        ('vigia_isolation_actions{state=~"active|stepped"}', "state} is never 'stepped'"),
        ('vigia_isolation_actions{state!="Active"}', "state} is never 'Active'"),
        ('vigia_isolation_actions{state!~"active|done"}', "state} is never 'done'"),
        ('vigia_isolation_actions{level=~"L(1|9)|M."}', "level} is never 'M.'"),
        ('vigia_isolation_actions{level!~".+"}', "level} has no value that '.+' lets pass"),
        ('rate(vigia_isolation_reaction_seconds_bucket{stage="think"}[5m])', "stage} is never 'think'"),
        (
            'node_tenant:vigia_port_bytes:rate1m{direction="both"}',
            "is never 'both', but from_tenant:",
        ),
        (
            'node_tenant:vigia_others_sent_bytes:rate1m{direction="to_tenant"}',
            "is never 'to_tenant', but from_tenant:",
        ),
        ('up{job="vigia"}', "job} is never 'vigia', but vigia-probe, "),
        ('ALERTS{alertstate="FIRING"}', "alertstate} is never 'FIRING', but pending, firing"),
        ('rate(node_cpu_seconds_total{mode="sirq"}[5m])', "mode} is never 'sirq'"),
    ],
)
def test_the_generator_refuses_values_that_nothing_exports(expression: str, problem: str) -> None:
    page = replace(PAGES[0], rows=(Row("r", (Panel("stat", "t", "d", (Query(expression),), "short"),)),))
    with pytest.raises(UnknownName, match=problem):
        to_json(page, PAGES)


@pytest.mark.parametrize(
    "expression",
    [
        'vigia_isolation_actions{state=~"active|stepped_.+",level!="L0",policy="any"}',
        'vigia_isolation_actions{state=~"$state",level=~"L(1|9)"}',
        'rate(vigia_port_kernel_drops_total{reason="WHATEVER_THE_KERNEL_SAYS"}[5m])',
        'vigia_compare_verdict{verdict="ovs-vxlan"}',
        'path:vigia_probe_loss:ratio_rate5m{tenant!~"_.*"}',
        'up{job=~"vigia-.+|isolation-agent"}',
    ],
)
def test_values_of_open_labels_and_those_that_are_listed_pass(expression: str) -> None:
    check(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(vigia_probe_sent_total)", "vigia_probe_sent_total is a counter: take its rate"),
        ("rate(vigia_probe_target_up[1m])", "vigia_probe_target_up is no counter and has no rate"),
        ("increase(up[5m])", "up is no counter and has no increase"),
        ("max_over_time(vigia_probe_sent_total[5m])", "take its rate"),
        ("vigia_probe_sent_total == 5", "take its rate"),
        ("0 == vigia_probe_sent_total", "take its rate"),
    ],
)
def test_counters_have_rates_and_gauges_none(expression: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "absent(vigia_probe_sent_total)",
        "sum by (src) (vigia_probe_sent_total == 0)",
        "count by (src) (vigia_probe_sent_total)",
        "sum by (src) (rate(vigia_probe_sent_total[1m])) / 2",
        "histogram_quantile(0.5, sum(rate(vigia_probe_rtt_seconds[1m])))",
        "rate(node_netstat_Tcp_RetransSegs[1m])",
    ],
)
def test_what_is_done_to_counters_otherwise(expression: str) -> None:
    check(expression)


def test_classic_buckets_and_recorded_series_have_labels() -> None:
    assert "le" in (labels_of("vigia_isolation_reaction_seconds_bucket") or set())
    assert "path" in (labels_of("path:vigia_probe_loss:ratio_rate5m") or set())
    assert "node" in (labels_of("vigia_compare_build_info") or set())
    assert bits("x") == "8 * (x)" and per_minute("x") == "60 * (x)"
    assert or_none("x", "y") == "(x) or 0 * y"


def test_stale_files_are_named_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "FOLDER", tmp_path)
    (tmp_path / "old.json").write_text("{}")
    assert generator.main(["--check"]) == 1
    assert "dashboards/json/old.json: out of date; run make dashboards" in capsys.readouterr().out
    assert generator.main([]) == 0
    assert not (tmp_path / "old.json").exists() and generator.main(["--check"]) == 0
