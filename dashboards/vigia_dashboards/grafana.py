"""From definitions to Grafana's JSON, by the Grafana Foundation SDK."""

from __future__ import annotations

import json
import re
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

from vigia_dashboards.annotations import ANNOTATIONS, STEP
from vigia_dashboards.expressions import check
from vigia_dashboards.model import Dashboard, Panel, Query, Unit, Variable

__all__ = ["LOSS_CLASSES", "MISSING", "to_json"]

DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
BANDS = (("p99", "p95"), ("p95", "p75"), ("p75", "p50"), ("p50", "p25"), ("p25", "p5"))
"""Smoke: each quantile is filled down to the next."""

SMOKE = "#8e9bab"
"""Colour of all of it, on light and dark ground: colours are those of the line."""

MISSING = "–"
"""What a cell says whose label nothing states; Grafana's own word is that there were no data."""

HALF = 12
"""Columns of the grid that a panel beside another has: its legend is a line below, a wider one's a table."""

LEGEND = 360
"""Width of that table, in pixels."""

CHARACTER = 8
"""Width of one character of a table, in pixels."""

NARROW = 90
"""Least width of a column of a matrix, in pixels."""

LONGEST = {
    "a": 24,
    "alertname": 23,
    "b": 24,
    "baseline": 24,
    "beside": 24,
    "cause": 25,
    "counter": 36,
    "element": 33,
    "job": 16,
    "metric": 15,
    "note": 24,
    "path": 25,
    "port": 14,
    "probe": 16,
    "verdict": 22,
}
"""Characters that values of labels usually have at most; others 10. Columns have room for them: on a narrow
screen a table is scrolled rather than cut off."""

LOSS_CLASSES = (
    ("median, nothing lost", "== 0", "blue"),
    ("median, under 0.1 % lost", "> 0 < 0.001", "yellow"),
    ("median, under 1 % lost", ">= 0.001 < 0.01", "orange"),
    ("median, 1 % or more lost", ">= 0.01", "purple"),
)
"""Smoke: the median's line by the loss of the moment: its name, which loss, its colour."""


def to_json(page: Dashboard, siblings: Sequence[Dashboard]) -> str:
    """Return a dashboard as JSON. Raises UnknownName or ValueError for a bad expression."""
    builder = (
        dashboard.Dashboard(page.title)
        .uid(page.uid)
        .description(page.description)
        .tags(["vigia"])
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in page.variables:
        builder.with_variable(_variable(variable))
    for a in ANNOTATIONS:
        check(a.expression)
        builder.annotation(
            dashboard.AnnotationQuery()
            .name(a.name)
            .datasource(DATASOURCE)
            .enable(a.shown)
            .icon_color(a.colour)
            .expr(a.expression)
        )
    _links(builder, page, siblings)
    for row in page.rows:
        builder.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            builder.with_panel(_panel(panel))
    return _finished(json.loads(JSONEncoder(sort_keys=True, indent=2).encode(builder.build())), page)


def _finished(document: dict[str, Any], page: Dashboard) -> str:
    """Add what the SDK has no method for: Grafana asks annotations at a step of 60 s without one."""
    shown = {a.name: a for a in ANNOTATIONS}
    for annotation in document["annotations"]["list"]:
        if annotation["name"] in shown:
            a = shown[annotation["name"]]
            annotation.update({"step": STEP, "titleFormat": a.title, "tagKeys": a.tags})
    given = [panel for row in page.rows for panel in (None, *row.panels)]
    for number, (panel, made) in enumerate(zip(given, _every(document["panels"]), strict=True), start=1):
        made["id"] = number
        if panel is not None:
            _cells(made["fieldConfig"]["defaults"], panel)
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _cells(defaults: dict[str, Any], panel: Panel) -> None:
    """Colour a number by its bound, in the words of Grafana 9.4 and of later ones, and link it."""
    if panel.kind == "stat" and not panel.bounds and not panel.words:
        # Without bounds Grafana has one of its own, red from 80.
        defaults["color"] = {"mode": "fixed", "fixedColor": "blue"}
    if panel.bounds:
        defaults["thresholds"] = _thresholds(panel.bounds, "transparent" if panel.cells else "text")
        defaults["color"] = {"mode": "thresholds"}
        if panel.kind != "stat":
            defaults["custom"] = {**defaults.get("custom", {}), **_cell(panel)}
    if panel.drill and panel.kind != "table":
        defaults["links"] = _links_to(panel.drill)


def _thresholds(bounds: Sequence[tuple[float, str]], usual: str = "text") -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": usual, "value": None}]
    return {"mode": "absolute", "steps": steps + [{"color": c, "value": v} for v, c in bounds]}


def _cell(panel: Panel) -> dict[str, Any]:
    how = "color-background-solid" if panel.cells else "color-text"
    newer = {"type": "color-background", "mode": "basic"} if panel.cells else {"type": "color-text"}
    return {"displayMode": how, "cellOptions": newer}


def _every(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from panel.get("panels") or ()


def _variable(variable: Variable) -> dashboard.QueryVariable:
    every = models.VariableOption(selected=True, text="All", value="$__all")
    builder = (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .query(variable.query)
        .datasource(DATASOURCE)
        .multi(True)
        .include_all(not variable.single)
        .all_value(".+")
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
    return builder if variable.single else builder.current(every)


def _links(builder: dashboard.Dashboard, page: Dashboard, siblings: Sequence[Dashboard]) -> None:
    def link(title: str, chosen: bool) -> dashboard.DashboardLink:
        return dashboard.DashboardLink(title).keep_time(True).include_vars(chosen)

    every = link("Vigia", False).type(models.DashboardLinkType.DASHBOARDS).tags(["vigia"])
    builder.link(every.as_dropdown(True))
    known = {s.uid: s for s in siblings}
    for uid, words in page.links:
        if uid not in known:
            raise LookupError(f"{page.uid} links to {uid}, which is no dashboard")
        # All paths of this page must not be what a page on one path opens with.
        one = any(v.single for v in known[uid].variables)
        builder.link(link(words, not one).type(models.DashboardLinkType.LINK).url(f"/d/{uid}"))


_BUILDERS: Mapping[str, Any] = {
    "timeseries": timeseries.Panel,
    "smoke": timeseries.Panel,
    "stat": stat.Panel,
    "table": table.Panel,
    "matrix": table.Panel,
    "state": statetimeline.Panel,
}


def _panel(panel: Panel) -> Any:
    unit, what = _shown_as(panel.unit)
    builder: Any = (
        _BUILDERS[panel.kind]()
        .title(panel.title)
        .description(panel.description + (f" No data is normal if {panel.quiet}." if panel.quiet else ""))
        .datasource(DATASOURCE)
        .unit(unit)
        .span(panel.width)
        .height(panel.height)
    )
    if panel.kind not in (
        "timeseries",
        "smoke",
    ):  # which say it by themselves, and have empty marks on their axes
        builder.no_value("no data")  # also while the program is down: nothing more can be said
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    for index, query in enumerate(panel.asked):
        check(query.expression)
        builder.with_target(_target(panel, query, chr(ord("A") + index)))
    mappings: list[Any] = [_mapping(panel.words)] if panel.words else []
    if panel.missing:
        null = models.ValueMappingResult(text=panel.missing, index=0)
        options = models.DashboardSpecialValueMapOptions(models.SpecialValueMatch.NULL, null)
        mappings.append(models.SpecialValueMap(options))
    if mappings:
        builder.mappings(mappings)
    if panel.kind in ("timeseries", "smoke") and what:
        builder.axis_label(what)
    _DRESS[panel.kind](builder, panel)
    return builder


_EVENTS: Mapping[Unit, str] = {
    "pps": "packets a second",
    "ops": "a second",
    "cps": "a second",
    "cpm": "a minute",
}
"""Grafana's own units of these write 0.07 packets a second as 70 mp/s."""


def _shown_as(unit: Unit) -> tuple[str, str]:
    """Return Grafana's unit, and what the axis says for one that has none there."""
    if unit == "B":
        return "none", "bytes"
    return ("short", _EVENTS[unit]) if unit in _EVENTS else (unit, "")


def _target(panel: Panel, query: Query, ref: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend or "__auto").ref_id(ref)
    return target.instant().format(PromQueryFormat.TABLE) if panel.instant else target.range()


def _mapping(words: Sequence[tuple[str, str, str]]) -> models.ValueMap:
    return models.ValueMap(
        options={
            value: models.ValueMappingResult(text=word, color=colour, index=index)
            for index, (value, word, colour) in enumerate(words)
        }
    )


_LEAST: Mapping[Unit, float] = {"percentunit": 0.01, "bps": 1e3, "Bps": 1e3, "B": 1e3}
"""Least range of an axis by unit, others 1: that of zero alone would reach to 10 000 %, or say mb/s."""


def _dress_timeseries(builder: Any, panel: Panel) -> None:
    builder.line_width(1).fill_opacity(0).span_nulls(False).show_points(common_models.VisibilityMode.NEVER)
    if panel.unit == "s" and not panel.signed:
        scale = common.ScaleDistributionConfig().type(common_models.ScaleDistribution.LOG).log(10)
        builder.scale_distribution(scale)
    elif not panel.signed:
        builder.axis_soft_min(0)
        builder.axis_soft_max(_LEAST.get(panel.unit, 1))
    legend = common.VizLegendOptions().show_legend(True)
    if panel.width > HALF:
        mode, place = common_models.LegendDisplayMode.TABLE, common_models.LegendPlacement.RIGHT
        legend.calcs(["lastNotNull", "max"]).width(LEGEND).sort_by("Last *").sort_desc(True)
    else:
        mode, place = common_models.LegendDisplayMode.LIST, common_models.LegendPlacement.BOTTOM
    builder.legend(legend.display_mode(mode).placement(place))
    multi = common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
    builder.tooltip(multi.sort(common_models.SortOrder.DESCENDING))


def _dress_smoke(builder: Any, panel: Panel) -> None:
    _dress_timeseries(builder, panel)
    builder.fill_opacity(25).line_width(0)
    smoke = models.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": SMOKE})
    for upper, lower in BANDS:
        builder.override_by_name(upper, [models.DynamicConfigValue("custom.fillBelowTo", lower), smoke])
    builder.override_by_name(BANDS[-1][1], [models.DynamicConfigValue("custom.fillOpacity", 0), smoke])
    for name, _, colour in LOSS_CLASSES:
        fixed = {"mode": "fixed", "fixedColor": colour}
        line = [("color", fixed), ("custom.lineWidth", 2), ("custom.fillOpacity", 0)]
        builder.override_by_name(name, [models.DynamicConfigValue(k, v) for k, v in line])


def _dress_stat(builder: Any, panel: Panel) -> None:
    builder.reduce_options(common.ReduceDataOptions().calcs(["max" if panel.worst else "lastNotNull"]))
    several = len(panel.queries) > 1 or "{{" in panel.queries[0].legend
    text = common_models.BigValueTextMode
    builder.text_mode(text.VALUE_AND_NAME if several else text.AUTO)
    coloured = panel.words or panel.bounds
    mode = common_models.BigValueColorMode.VALUE if coloured else common_models.BigValueColorMode.NONE
    graph = common_models.BigValueGraphMode.NONE if panel.words else common_models.BigValueGraphMode.AREA
    builder.color_mode(mode).graph_mode(graph)


def _dress_table(builder: Any, panel: Panel) -> None:
    values = [f"Value #{chr(ord('A') + i)}" for i in range(len(panel.queries))]
    if len(panel.queries) == 1:
        values = ["Value"]
    names = {v: q.legend or "value" for v, q in zip(values, panel.queries, strict=True)} | dict(panel.names)
    if len(panel.queries) > 1:
        builder.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    if len(panel.queries) > 1:
        # Where one query alone finds anything, Grafana leaves out which: the first, which the others add to.
        names["Value"] = names[values[0]]
    before = [c for c in panel.columns if c not in panel.after]
    after = [c for c in panel.columns if c in panel.after]
    order = {name: i for i, name in enumerate((*before, "Value", *values, *after))}
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    builder.with_transformation(models.DataTransformerConfig(id_val="organize", options=organize))
    builder.filterable(_filtered(panel))
    if panel.order:
        builder.sort_by([common.TableSortByFieldState().display_name(panel.order).desc(not panel.ascending)])
    for name, properties in _columns(panel).items():
        builder.override_by_name(name, [models.DynamicConfigValue(k, v) for k, v in properties])


_Properties = list[tuple[str, Any]]


def _columns(panel: Panel) -> Mapping[str, _Properties]:
    """Return what is special of a table's columns, by their headings."""
    found: dict[str, _Properties] = {q.legend or "value": _of_value(panel, q) for q in panel.queries}
    for label in panel.columns:
        found.setdefault(panel.names.get(label, label), []).extend(_of_label(panel, label))
    return {name: properties for name, properties in found.items() if properties}


def _of_value(panel: Panel, query: Query) -> _Properties:
    if query.hidden:
        return [("custom.hidden", True)]
    found: _Properties = []
    if query.unit is not None:
        found.append(("unit", _shown_as(query.unit)[0]))
    usual = 16 if (query.unit or panel.unit) == "dateTimeFromNow" else 9
    words = (len(word) for _, word, _ in query.words)
    longest = max((usual, len(panel.missing), *words))
    found.append(("custom.minWidth", _room(panel, query.legend or "value", longest)))
    if query.decimals is not None:
        found.append(("decimals", query.decimals))
    if query.words:
        found.append(("mappings", [json.loads(JSONEncoder().encode(_mapping(query.words)))]))
    if query.bounds:
        colour = "transparent" if panel.cells else "text"
        found += [("thresholds", _thresholds(query.bounds, colour)), ("color", {"mode": "thresholds"})]
        found += [(f"custom.{key}", value) for key, value in _cell(panel).items()]
    return found


def _of_label(panel: Panel, label: str) -> _Properties:
    heading = panel.names.get(label, label)
    texts = sorted(({"": MISSING} | dict(panel.texts.get(label, {}))).items())
    options = {value: {"text": text, "index": i} for i, (value, text) in enumerate(texts)}
    found: _Properties = [("mappings", [{"type": "value", "options": options}])]
    if label in panel.texts:
        found.append(("custom.inspect", True))  # a text may be longer than its cell
    if label not in panel.wide:
        found.append(("custom.minWidth", _room(panel, heading, LONGEST.get(label, 10))))
    first = panel.drill if label == panel.columns[0] else ""
    if address := panel.clicks.get(label, first):
        found.append(("links", _links_to(address)))
    if label in panel.wide:
        found.append(("custom.width", panel.wide[label]))
    return found


def _filtered(panel: Panel) -> bool:
    """Whether headings have filters: half a page has no room for them."""
    return panel.filters and panel.width > HALF


def _room(panel: Panel, heading: str, characters: int) -> int:
    """Return the width of a column in pixels: of its values, or of its heading with the marks beside it."""
    marks = 46 if _filtered(panel) else 36 if heading == panel.order else 20
    return max(CHARACTER * characters + 16, CHARACTER * len(heading) + marks)


def _links_to(address: str) -> list[dict[str, Any]]:
    return [{"title": "Open", "url": address, "targetBlank": False}]


def _dress_matrix(builder: Any, panel: Panel) -> None:
    row, column = panel.columns
    # Columns are in the order in which their names occur, and so are rows.
    builder.with_transformation(_sorted_by(column))
    builder.with_transformation(
        models.DataTransformerConfig(
            id_val="groupingToMatrix",
            options={"columnField": column, "rowField": row, "valueField": "Value", "emptyValue": "null"},
        )
    )
    builder.with_transformation(_sorted_by(f"{row}\\{column}"))
    # A cell with a link is on the left whatever one says, and its heading is to be above it.
    align = common_models.FieldTextAlignment.LEFT if panel.drill else common_models.FieldTextAlignment.CENTER
    builder.min_width(NARROW).align(align)
    first = [models.DynamicConfigValue("custom.width", _room(panel, "", LONGEST.get(row, 10)))]
    if panel.drill:
        # The heading of a row is a source, with any destination.
        heading = re.sub(r"&var-\w+=\$\{__field\.name\}", "", panel.drill)
        first.append(models.DynamicConfigValue("links", _links_to(heading)))
    builder.override_by_name(f"{row}\\{column}", first)


def _sorted_by(name: str) -> models.DataTransformerConfig:
    return models.DataTransformerConfig(id_val="sortBy", options={"fields": {}, "sort": [{"field": name}]})


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
