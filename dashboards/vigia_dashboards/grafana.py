"""From definitions to Grafana's JSON, by the Grafana Foundation SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from vigia_dashboards.expressions import IN_FORCE, check
from vigia_dashboards.model import Dashboard, Panel, Query, Variable

__all__ = ["LOSS_CLASSES", "to_json"]

DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
BANDS = (("p99", "p95"), ("p95", "p75"), ("p75", "p50"), ("p50", "p25"), ("p25", "p5"))
"""Smoke: each quantile is filled down to the next."""

LOSS_CLASSES = (
    ("median, nothing lost", "== 0", "blue"),
    ("median, under 0.1 % lost", "> 0 < 0.001", "yellow"),
    ("median, under 1 % lost", ">= 0.001 < 0.01", "orange"),
    ("median, 1 % or more lost", ">= 0.01", "purple"),
)
"""Smoke: the median's line by the loss of the moment: its name, which loss, its colour."""

ANNOTATIONS = (
    ("Alerts", 'ALERTS{alertstate="firing"}', "{{alertname}}", "tenant,path,node", "orange"),
    (
        "Isolation actions",
        f"sum by (state, policy) ({IN_FORCE}) > 0",
        "isolation: {{policy}}",
        "state",
        "blue",
    ),
    (
        "Configuration reloads",
        "changes(vigia_agent_config_last_reload_success_timestamp_seconds[1m]) > 0 "
        "or changes(vigia_probe_config_last_reload_success_timestamp_seconds[1m]) > 0 "
        "or changes(vigia_exporter_config_last_reload_success_timestamp_seconds[1m]) > 0 "
        "or changes(vigia_enforcer_config_last_reload_success_timestamp_seconds[1m]) > 0 "
        "or changes(vigia_compare_config_last_reload_success_timestamp_seconds[1m]) > 0",
        "reload",
        "job,node",
        "purple",
    ),
    (
        "Restarts",
        'changes(process_start_time_seconds{job=~"vigia-.+|isolation-agent"}[1m]) > 0',
        "restart",
        "job,node",
        "yellow",
    ),
    (
        "Campaigns",
        "max by (campaign, study) (vigia_campaign_remaining_seconds) > 0",
        "campaign {{campaign}} runs",
        "study",
        "semi-dark-blue",
    ),
)


def to_json(page: Dashboard, siblings: Sequence[Dashboard]) -> str:
    """Return a dashboard as JSON. Raises UnknownName or ValueError for a bad expression."""
    builder = (
        dashboard.Dashboard(page.title)
        .uid(page.uid)
        .description(page.description)
        .tags(["vigia"])
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-6h", "now")
        .refresh("30s")
        .timezone("browser")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in page.variables:
        builder.with_variable(_variable(variable))
    for name, expression, _title, _tags, colour in ANNOTATIONS:
        check(expression)
        builder.annotation(
            dashboard.AnnotationQuery()
            .name(name)
            .datasource(DATASOURCE)
            .enable(True)
            .icon_color(colour)
            .expr(expression)
        )
    _links(builder, page, siblings)
    for row in page.rows:
        builder.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            builder.with_panel(_panel(panel))
    return _finished(json.loads(JSONEncoder(sort_keys=True, indent=2).encode(builder.build())), page)


def _finished(document: dict[str, Any], page: Dashboard) -> str:
    """Add what the SDK has no method for: Grafana asks annotations at a step of 60 s without one."""
    shown = {name: (title, tags) for name, _, title, tags, _ in ANNOTATIONS}
    for annotation in document["annotations"]["list"]:
        if annotation["name"] in shown:
            title, tags = shown[annotation["name"]]
            annotation.update({"step": "10s", "titleFormat": title, "tagKeys": tags})
    coloured = {p.title: p for row in page.rows for p in row.panels if p.bounds or p.drill}
    for number, panel in enumerate(_every(document["panels"]), start=1):
        panel["id"] = number
        if panel["type"] != "row" and panel["title"] in coloured:
            _cells(panel["fieldConfig"]["defaults"], coloured[panel["title"]])
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _cells(defaults: dict[str, Any], panel: Panel) -> None:
    """Colour a cell's number by its bound, in the words of Grafana 9.4 and of later ones, and link it."""
    if panel.bounds:
        steps: list[dict[str, Any]] = [{"color": "text", "value": None}]
        steps += [{"color": colour, "value": value} for value, colour in panel.bounds]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["color"] = {"mode": "thresholds"}
        cell = {"displayMode": "color-text", "cellOptions": {"type": "color-text"}}
        defaults["custom"] = {**defaults.get("custom", {}), **cell}
    if panel.drill:
        defaults["links"] = [{"title": "Open", "url": panel.drill, "targetBlank": False}]


def _every(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from panel.get("panels") or ()


def _variable(variable: Variable) -> dashboard.QueryVariable:
    every = models.VariableOption(selected=True, text="All", value="$__all")
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .query(variable.query)
        .datasource(DATASOURCE)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(every)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _links(builder: dashboard.Dashboard, page: Dashboard, siblings: Sequence[Dashboard]) -> None:
    def link(title: str) -> dashboard.DashboardLink:
        return dashboard.DashboardLink(title).keep_time(True).include_vars(True)

    builder.link(link("Vigia").type(models.DashboardLinkType.DASHBOARDS).tags(["vigia"]).as_dropdown(True))
    known = {s.uid for s in siblings}
    for uid, words in page.links:
        if uid not in known:
            raise LookupError(f"{page.uid} links to {uid}, which is no dashboard")
        builder.link(link(words).type(models.DashboardLinkType.LINK).url(f"/d/{uid}"))


_BUILDERS: Mapping[str, Any] = {
    "timeseries": timeseries.Panel,
    "smoke": timeseries.Panel,
    "stat": stat.Panel,
    "table": table.Panel,
    "matrix": table.Panel,
    "state": statetimeline.Panel,
}


def _panel(panel: Panel) -> Any:
    builder: Any = (
        _BUILDERS[panel.kind]()
        .title(panel.title)
        .description(panel.description + (f" No data is normal if {panel.quiet}." if panel.quiet else ""))
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .span(panel.width)
        .height(panel.height)
        .no_value("no data")  # also while the program is down: nothing more can be said
    )
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    for index, query in enumerate(panel.queries):
        check(query.expression)
        builder.with_target(_target(panel, query, chr(ord("A") + index)))
    if panel.words:
        builder.mappings([_mapping(panel)])
    _DRESS[panel.kind](builder, panel)
    return builder


def _target(panel: Panel, query: Query, ref: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend or "__auto").ref_id(ref)
    if not panel.instant:
        return target.range()
    return target.instant() if panel.kind == "stat" else target.instant().format(PromQueryFormat.TABLE)


def _mapping(panel: Panel) -> models.ValueMap:
    return models.ValueMap(
        options={
            value: models.ValueMappingResult(text=word, color=colour, index=index)
            for index, (value, word, colour) in enumerate(panel.words)
        }
    )


def _dress_timeseries(builder: Any, _panel: Panel) -> None:
    builder.line_width(1).fill_opacity(8).span_nulls(False)
    builder.legend(
        common.VizLegendOptions()
        .display_mode(common_models.LegendDisplayMode.TABLE)
        .placement(common_models.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    builder.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))


def _dress_smoke(builder: Any, panel: Panel) -> None:
    _dress_timeseries(builder, panel)
    builder.fill_opacity(25).line_width(0)
    for upper, lower in BANDS:
        builder.override_by_name(upper, [models.DynamicConfigValue("custom.fillBelowTo", lower)])
    for name, _, colour in LOSS_CLASSES:
        fixed = {"mode": "fixed", "fixedColor": colour}
        line = [("color", fixed), ("custom.lineWidth", 2), ("custom.fillOpacity", 0)]
        builder.override_by_name(name, [models.DynamicConfigValue(k, v) for k, v in line])


def _dress_stat(builder: Any, panel: Panel) -> None:
    builder.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    builder.text_mode(common_models.BigValueTextMode.AUTO)
    mode = common_models.BigValueColorMode.VALUE if panel.words else common_models.BigValueColorMode.NONE
    builder.color_mode(mode).graph_mode(common_models.BigValueGraphMode.NONE)


def _dress_table(builder: Any, panel: Panel) -> None:
    hidden = {"Time": True, "__name__": True, "job": True, "instance": True}
    order = {name: i for i, name in enumerate(panel.columns)}
    values = [f"Value #{chr(ord('A') + i)}" for i in range(len(panel.queries))]
    if len(panel.queries) == 1:
        values = ["Value"]
    names = {v: q.legend or "value" for v, q in zip(values, panel.queries, strict=True)}
    if len(panel.queries) > 1:
        builder.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    for i, value in enumerate(values):
        order[value] = len(panel.columns) + i
    builder.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": hidden, "indexByName": order, "renameByName": names},
        )
    )
    builder.filterable(True)


def _dress_matrix(builder: Any, panel: Panel) -> None:
    row, column = panel.columns
    builder.with_transformation(
        models.DataTransformerConfig(
            id_val="groupingToMatrix",
            options={"columnField": column, "rowField": row, "valueField": "Value", "emptyValue": "null"},
        )
    )


def _dress_state(builder: Any, _panel: Panel) -> None:
    builder.merge_values(True).show_value(common_models.VisibilityMode.AUTO)


_DRESS = {
    "timeseries": _dress_timeseries,
    "smoke": _dress_smoke,
    "stat": _dress_stat,
    "table": _dress_table,
    "matrix": _dress_matrix,
    "state": _dress_state,
}
