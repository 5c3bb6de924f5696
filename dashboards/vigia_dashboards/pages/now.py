"""Home: what is wrong now, with names."""

from __future__ import annotations

from vigia_dashboards.expressions import IN_FORCE, alerts
from vigia_dashboards.model import Dashboard, Panel, Query, Row, bits, or_none
from vigia_dashboards.pages.comparison import METRICS, best_paths

__all__ = ["NOW"]

_R = "[$__rate_interval]"
_FIRING = 'ALERTS{alertstate="firing"}'
_ROW = "alertname, severity, tenant, node"
_CALM = "none fires"


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
    for label, text in (("todo", "$1"), ("look", "$1"), ("explain", "vigia explain $1")):
        found = f'label_replace({found}, "{label}", "{text}", "alertname", "(.*)")'
    return found


_PLACES = _listed(f"count by ({_ROW}) ({_FIRING})", "0 * max(up)")
_SINCE = _listed(
    f"1000 * min by ({_ROW}) (ALERTS_FOR_STATE and ignoring (alertstate) {_FIRING})",
    "1000 * max(timestamp(up))",
)
_ACTIONS = {name: said["action"] for name, said in alerts().items()}
_LOOK = {name: said["dashboard_url"].split("/")[2].split("?")[0] for name, said in alerts().items()}

_KNOWN = 'vigia_compare_interference_verdict{verdict=~"attributed|likely"}'
_HARM = "node, tenant, offender"
_HURT = f"* on ({_HARM}) group_left (verdict) topk by ({_HARM}) (1, {_KNOWN})"
_BEGAN = "vigia_compare_interference_begin_timestamp_seconds"
_END = "vigia_compare_interference_end_timestamp_seconds"
_TENANT = "/d/vigia-tenants?${datasource:queryparam}&var-tenant=${__data.fields.tenant}&${__url_time_range}"

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
        "Targets that do not answer",
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
        "Programs that are down",
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
        "Critical ones first. Places: how many series of the alert fire; path: where most of them do. The command shows what "
        "the probes recorded when a path turned bad. Without an alert there is one row that says so, and when it was looked.",
        (
            Query(_SINCE, "since", unit="dateTimeFromNow"),
            Query(_PLACES, "places", decimals=0),
        ),
        "none",
        width=24,
        height=8,
        columns=("severity", "alertname", "tenant", "node", "path", "todo", "look", "explain"),
        names={"alertname": "alert", "todo": "what to do", "look": "next page", "explain": "what happened"},
        texts={
            "todo": _ACTIONS | {_CALM: "Nothing."},
            "look": _LOOK | {_CALM: "vigia-fleet"},
            "explain": {f"vigia explain {_CALM}": "vigia status"},
        },
        clicks={
            "look": "/d/${__value.text}?${datasource:queryparam}&var-node=${__data.fields.node}"
            "&var-tenant=${__data.fields.tenant}&var-path=${__data.fields.path}&${__url_time_range}"
        },
        wide={
            "severity": 95,
            "alertname": 180,
            "tenant": 80,
            "node": 80,
            "path": 150,
            "todo": 400,
            "look": 115,
            "explain": 260,
        },
        order="severity",
        ascending=True,
    ),
    Panel(
        "table",
        "Who hurts whom",
        "Harm of the last hour that is known to be another tenant's: attributed is known from what was seen; likely lacks one "
        "link. Share: of the excess; evidence: kinds of it, of six. A click on the tenant shows all of it.",
        (
            Query(f"vigia_compare_interference_share_ratio {_HURT}", "share", unit="percentunit", decimals=0),
            Query(
                f"count by (node, tenant, offender) (vigia_compare_interference_evidence) {_HURT}",
                "evidence",
                decimals=0,
            ),
            Query(f"1000 * {_BEGAN} {_HURT}", "began", unit="dateTimeFromNow"),
            Query(f"1000 * {_END} {_HURT}", "ended", unit="dateTimeFromNow"),
        ),
        "none",
        width=24,
        height=5,
        columns=("tenant", "offender", "verdict", "node"),
        names={"tenant": "tenant that was hurt", "offender": "by", "verdict": "how sure", "node": "seen on"},
        clicks={"tenant": _TENANT.replace("fields.tenant", "fields[0]")},
        quiet="nobody was hurt within the last hour",
    ),
)

_TIMES = (
    Panel(
        "timeseries",
        "What tenants send",
        "Before limits drop any of it.",
        (
            Query(
                bits(f'sum by (tenant) (rate(vigia_port_bytes_total{{direction="from_tenant"}}{_R}))'),
                "{{tenant}}",
            ),
        ),
        "bps",
    ),
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
