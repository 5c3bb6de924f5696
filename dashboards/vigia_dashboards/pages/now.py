"""Home: what is wrong now, with names."""

from __future__ import annotations

from vigia_dashboards.expressions import FOREIGN_VALUES, IN_FORCE, alerts
from vigia_dashboards.model import Dashboard, Panel, Query, Row, or_none
from vigia_dashboards.pages.comparison import METRICS, best_paths
from vigia_dashboards.pages.harm import SENT, harm

__all__ = ["NOW"]

_FIRING = 'ALERTS{alertstate="firing"}'
_ROW = "alertname, severity, tenant, node"
_CALM = "none fires"
_SEVERITIES = FOREIGN_VALUES["ALERTS", "severity"]
"""Worst first. Tables are sorted by what labels are, not by what they are shown as."""


def _listed(value: str, calm: str) -> str:
    """Return a value of every alert that fires; where none does, one row that says so while targets are scraped.

    An alert of many paths is one row, under the name of that of which most fire.
    """
    worst = f"0 * topk by ({_ROW}) (1, count by ({_ROW}, path) ({_FIRING}))"
    row = f"{calm} unless on () {_FIRING}"
    for label, text in (("alertname", _CALM), ("severity", "none")):
        row = f'label_replace({row}, "{label}", "{text}", "", "")'
    found = f"{worst} + on ({_ROW}) group_left () {value} or {row}"
    for label in ("tenant", "node", "path"):  # what the linked pages show for what an alert does not name
        found = f'label_replace({found}, "{label}", "All", "{label}", "")'
    for rank, severity in enumerate((*_SEVERITIES, "none"), start=1):
        found = f'label_replace({found}, "severity", "{rank}", "severity", "{severity}")'
    for label in ("todo", "look"):
        found = f'label_replace({found}, "{label}", "$1", "alertname", "(.*)")'
    return found


_PLACES = _listed(f"count by ({_ROW}) ({_FIRING})", "0 * max(up)")
_SINCE = _listed(
    f"1000 * min by ({_ROW}) (ALERTS_FOR_STATE and ignoring (alertstate) {_FIRING})",
    "1000 * max(timestamp(up))",
)
_ACTIONS = {name: said["action"] for name, said in alerts().items()}
_PREFIX = "vigia-"
_LOOK = {
    name: said["dashboard_url"].split("/")[2].split("?")[0].removeprefix(_PREFIX)
    for name, said in alerts().items()
}
"""Pages by alert, without what the uids of all begin with."""

_FLOODS = "max by (node, port, tenant) (vigia_port_flood_score) >= 70"
_BAD = "max by (node) (vigia_probe_recent_bad_targets)"

_NUMBERS = (
    Panel(
        "stat",
        "Alerts",
        "Alerts that fire; orange from 1.",
        (Query(f"count({_FIRING}) or 0 * max(up)", "firing"),),
        "short",
        width=4,
        height=4,
        bounds=((1, "orange"),),
    ),
    Panel(
        "stat",
        "Floods",
        "Ports whose flood score is 70 or more; purple from 1.",
        (Query(or_none(f"count({_FLOODS})", 'max(up{job="vigia-exporter"})'), "ports"),),
        "short",
        width=4,
        height=4,
        bounds=((1, "purple"),),
        drill="/d/vigia-isolation?${datasource:queryparam}&${__url_time_range}",
    ),
    Panel(
        "stat",
        "Limits in force",
        "Limits that were read back from the kernel; orange from 1.",
        (Query(f"sum({IN_FORCE})", "limits"),),
        "short",
        width=4,
        height=4,
        bounds=((1, "orange"),),
        drill="/d/vigia-isolation?${datasource:queryparam}&${__url_time_range}",
    ),
    Panel(
        "stat",
        "Silent targets",
        "Directions of paths whose target answered none of its last ten probes; orange from 1.",
        (Query("sum(1 - vigia_probe_target_up)", "silent"),),
        "short",
        width=4,
        height=4,
        bounds=((1, "orange"),),
        drill="/d/vigia-fleet?${datasource:queryparam}&${__url_time_range}",
    ),
    Panel(
        "stat",
        "Worst loss",
        "The largest share of probes that the network lost on any path, over a minute; orange from 0.1 %, purple from 1 %.",
        (Query("max(path:vigia_probe_loss:ratio_rate1m)", "loss"),),
        "percentunit",
        width=4,
        height=4,
        bounds=((0.001, "orange"), (0.01, "purple")),
        drill="/d/vigia-fleet?${datasource:queryparam}&${__url_time_range}",
    ),
    Panel(
        "stat",
        "Programs down",
        "Targets whose last scrape failed; orange from 1.",
        (Query("count(up == 0) or 0 * max(up)", "down"),),
        "short",
        width=4,
        height=4,
        bounds=((1, "orange"),),
        drill="/d/vigia-self?${datasource:queryparam}&${__url_time_range}",
    ),
)

_LISTS = (
    Panel(
        "table",
        "Alerts that fire",
        "Critical ones first. Places: how many series of the alert fire; path: where most of them do. vigia explain, with the "
        "name of the alert, says what happened. Without an alert there is one row that says so, and when it was looked.",
        (
            Query(_SINCE, "since", unit="dateTimeFromNow"),
            Query(_PLACES, "places", decimals=0),
        ),
        "none",
        width=24,
        height=8,
        columns=("severity", "alertname", "tenant", "node", "path", "look", "todo"),
        after=("look", "todo"),
        filters=False,
        names={"alertname": "alert", "todo": "what to do", "look": "next page"},
        texts={
            "severity": {str(rank): s for rank, s in enumerate((*_SEVERITIES, "none"), start=1)},
            "todo": _ACTIONS | {_CALM: "Nothing."},
            "look": _LOOK | {_CALM: "fleet"},
        },
        clicks={
            "look": f"/d/{_PREFIX}"
            "${__value.text}?${datasource:queryparam}&var-node=${__data.fields.node}"
            "&var-tenant=${__data.fields.tenant}&var-path=${__data.fields.path}&${__url_time_range}"
        },
        wide={
            "severity": 70,
            "alertname": 180,
            "tenant": 65,
            "node": 65,
            "path": 118,
            "look": 90,
            "todo": 737,
        },
        order="severity",
        ascending=True,
    ),
    harm(
        "Who hurts whom",
        "Harm of the last hour that is known to be another tenant's: attributed is known from what was seen; likely lacks one "
        "link. Share: of the excess; evidence: kinds of it, of six. A click on the tenant shows that incident.",
        quiet="nobody was hurt within the last hour",
    ),
)

_TIMES = (
    SENT,
    Panel(
        "timeseries",
        "Loss of tenants' probes",
        "On the worst path of each tenant, over a minute.",
        (Query("max by (tenant) (path:vigia_probe_loss:ratio_rate1m)", "{{tenant}}"),),
        "percentunit",
    ),
    Panel(
        "timeseries",
        "p99 round trip",
        "On the worst path of each tenant, over a minute; logarithmic.",
        (Query("max by (tenant) (path:vigia_probe_rtt_seconds:p99_rate1m)", "{{tenant}}"),),
        "s",
    ),
    Panel(
        "timeseries",
        "The last ten seconds",
        "As the probes count it themselves, for reactions within seconds: the worst target's share of probes lost, and of round "
        "trips over their delay objective.",
        tuple(
            Query(
                or_none(f"max by (node) (vigia_probe_recent_{kind}_ratio)", _BAD),
                f"{{{{node}}}} {words}",
            )
            for kind, words in (("loss", "lost"), ("slow", "slow"))
        ),
        "percentunit",
    ),
    Panel(
        "timeseries",
        "Bad targets",
        "Targets that lost probes, or were slow, in the last ten seconds, by the node that probes them.",
        (Query("max by (node) (vigia_probe_recent_bad_targets)", "{{node}}"),),
        "short",
    ),
    Panel(
        "table",
        "Best path by metric",
        "Known to be better than all others, or equally good; where it is not known yet, progress says how much of the evidence "
        "is there. A click opens the comparison.",
        best_paths(),
        "none",
        width=24,
        height=9,
        columns=("metric", "path", "probe", "placement", "machines"),
        texts={"metric": METRICS},
        order="progress",
        drill="/d/vigia-comparison?${datasource:queryparam}&var-metric=${__value.raw}&${__url_time_range}",
    ),
)

NOW = Dashboard(
    uid="vigia-now",
    title="Now",
    description="What is wrong, since when, who, how sure that is, and what to do. Only what is wrong is orange or purple. On "
    "every panel with a time axis floods are shaded purple, and limits blue.",
    variables=(),
    links=(
        ("vigia-incident", "Incident"),
        ("vigia-fleet", "Fleet matrix"),
        ("vigia-comparison", "Comparison"),
        ("vigia-tenants", "Tenants"),
        ("vigia-isolation", "Isolation"),
        ("vigia-self", "Self health"),
    ),
    rows=(
        Row("What is wrong", (*_NUMBERS, *_LISTS)),
        Row("Since when", _TIMES),
    ),
)
