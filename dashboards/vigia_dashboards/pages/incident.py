"""One incident of one tenant: what happened, why, how that is known, what was done, whether it helped."""

from __future__ import annotations

from vigia_dashboards.expressions import IN_FORCE
from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, bits, or_none
from vigia_dashboards.pages.harm import AGREED, SENT, evidence, harm, lost_where
from vigia_dashboards.pages.paths import explained, moments

__all__ = ["INCIDENT"]

_HURT = 'tenant=~"$tenant"'
_FIRING = 'ALERTS{alertstate="firing"}'
_LOSS = f"path:vigia_probe_loss:ratio_rate1m{{{_HURT}}}"
_P99 = f"path:vigia_probe_rtt_seconds:p99_rate1m{{{_HURT}}}"
_USUAL = f"path:vigia_probe_rtt_seconds:p99_median10m{{{_HURT}}}"
_LIMITS = "vigia_isolation_limit_bytes_per_second"

VARIABLES = (
    Variable(
        "tenant",
        "Tenant",
        'label_values(vigia_port_bytes_total{tenant!~"_.*"}, tenant)',
        single=True,
    ),
)

_WORST = (
    Panel(
        "stat",
        "Worst loss",
        "Of the tenant's probes on any path, over a minute, at worst; orange from 0.1 %, purple from 1 %.",
        (Query(f"max({_LOSS})", "loss"),),
        "percentunit",
        width=4,
        height=4,
        bounds=((0.001, "orange"), (0.01, "purple")),
        worst=True,
    ),
    Panel(
        "stat",
        "Worst p99",
        "Round trip of the tenant's probes on any path, over a minute, at worst.",
        (Query(f"max({_P99})", "p99"),),
        "s",
        width=4,
        height=4,
        worst=True,
    ),
    Panel(
        "stat",
        "p99, times usual",
        "The p99 round trip over its median of ten minutes, on the path where that is most, at worst; orange from 3, purple "
        "from 10.",
        (Query(f"max({_P99} / {_USUAL})", "times"),),
        "none",
        width=4,
        height=4,
        decimals=1,
        bounds=((3, "orange"), (10, "purple")),
        worst=True,
    ),
    Panel(
        "stat",
        "Flood score",
        "Of any port of any tenant, at worst; purple from 70: a flood.",
        (Query(or_none("max(vigia_port_flood_score)", 'max(up{job="vigia-exporter"})'), "score"),),
        "short",
        width=4,
        height=4,
        decimals=0,
        bounds=((70, "purple"),),
        worst=True,
    ),
    Panel(
        "stat",
        "Limits at once",
        "In force at the same time, at most; orange from 1.",
        (Query(f"sum({IN_FORCE})", "limits"),),
        "short",
        width=4,
        height=4,
        bounds=((1, "orange"),),
        worst=True,
    ),
    Panel(
        "stat",
        "Alerts at once",
        "That fired at the same time, at most; orange from 1.",
        (Query(f"count({_FIRING}) or 0 * max(up)", "alerts"),),
        "short",
        width=4,
        height=4,
        bounds=((1, "orange"),),
        worst=True,
    ),
)

_WHAT = (
    *_WORST,
    Panel(
        "state",
        "Timeline",
        "The tenant loses 0.1 % of its probes or more, or is slow: its p99 is three times its median of ten minutes; tenants "
        "that flood, by a score of 70 or more; limits in force; alerts that fire.",
        (
            Query(f"max by (tenant) ({_LOSS}) > bool 0.001", "{{tenant}} loses probes"),
            Query(f"2 * (max by (tenant) ({_P99} / {_USUAL}) > bool 3)", "{{tenant}} is slow"),
            Query("3 * (max by (tenant) (vigia_port_flood_score) >= 70 > bool 0)", "{{tenant}} floods"),
            Query(f"4 * (max by (tenant) ({_LIMITS}) > bool 0)", "{{tenant}} is limited"),
            Query(f"5 * (count by (alertname) ({_FIRING}) > bool 0)", "{{alertname}}"),
        ),
        "none",
        width=24,
        height=9,
        words=(
            ("0", " ", "transparent"),
            ("1", "lost", "orange"),
            ("2", "slow", "orange"),
            ("3", "flood", "purple"),
            ("4", "limit", "blue"),
            ("5", "fires", "semi-dark-orange"),
        ),
    ),
)

_SHARE = f"vigia_compare_interference_share_ratio{{{_HURT}}}"
_OWN = f"vigia_compare_interference_own_share_ratio{{{_HURT}}}"
_BUSY = "max by (node) (max_over_time(vigia_probe_host_cpu_pressure_ratio[$__range])) > 0.1"


def _named(expression: str, label: str, text: str, of: str = "", pattern: str = "") -> str:
    return f'label_replace({expression}, "{label}", "{text}", "{of}", "{pattern}")'


_CAUSES = " or ".join(
    (
        _named(f"{_SHARE} {AGREED}", "cause", "traffic of $1", "offender", "(.+)"),
        _named(_named(_OWN, "cause", "its own traffic"), "verdict", "measured"),
        _named(_named(_BUSY, "cause", "tasks wait for processors"), "verdict", "measured"),
    )
)


def _increase(metric: str, matchers: str = "") -> str:
    return f"increase({metric}{{{matchers}}}[$__range]) > 0"


_DONE = " or ".join(
    (
        _named(_increase("vigia_enforcer_limits_total"), "what", "limit: $1", "change", "(.+)"),
        _named(
            _increase("vigia_agent_actions_suppressed_total"),
            "what",
            "action stopped by guard $1",
            "guard",
            "(.+)",
        ),
        _named(_increase("vigia_agent_reverts_total"), "what", "action ended by $1", "cause", "(.+)"),
        _named(
            _increase("vigia_agent_alerts_total", 'outcome="accepted"'),
            "what",
            "alert $1, accepted",
            "status",
            "(.+)",
        ),
    )
)

_WHY = (
    Panel(
        "table",
        "Causes, largest first",
        "What explains the harm: of tenants the share of it that is theirs; of a host the share of time in which tasks waited for "
        "a processor, from 10 % on. How sure: attributed, likely, or measured alone.",
        (Query(_CAUSES, "explains", unit="percentunit", decimals=0),),
        "none",
        columns=("cause", "verdict", "node"),
        names={"verdict": "how sure", "node": "seen on"},
        after=("node",),
        filters=False,
        wide={"verdict": 95},
        order="explains",
        quiet="the tenant was not hurt within the hour, and no host is busy",
    ),
    Panel(
        "table",
        "What was done",
        "By the isolation agent and the enforcers, within the range that is shown.",
        (Query(f"sum by (what, node) ({_DONE})", "times", decimals=0),),
        "none",
        columns=("what", "node"),
        names={"node": "by"},
        texts={"node": {"": "isolation agent"}},
        wide={"what": 225, "node": 125},
        order="times",
        quiet="no alert was received and no limit changed",
    ),
    harm(
        "Incidents",
        "Harm of the hour before the end of the time range. A click on the tenant shows that incident alone, from five "
        "minutes before it began to five minutes after its end. Attributed is known from what was seen; likely lacks one link.",
        quiet="nobody was hurt within that hour",
        height=5,
    ),
    evidence(_HURT),
    lost_where(_HURT, "Packets lost, and why"),
    moments(),
    Panel(
        "table",
        "Lossy paths, and the command that shows those records",
        "Pinned: a drop counter on the path grew when probes were lost; not on these hosts: all that they drop is counted, and "
        "is too little.",
        (Query(explained(f"vigia_compare_loss_verdict{{{_HURT}}}"), "found", hidden=True),),
        "none",
        width=24,
        height=6,
        columns=("verdict", "path", "src", "dst", "explain"),
        names={"verdict": "where it was lost", "explain": "what happened"},
        wide={"explain": 520},
        quiet="no path of the tenant lost probes",
    ),
)


_DID = (
    SENT,
    Panel(
        "timeseries",
        "Limits",
        "As read back from the kernel; a line ends with its limit.",
        (
            Query(
                bits(f"max by (node, port, tenant, protocol) ({_LIMITS})"), "{{tenant}} {{port}} {{protocol}}"
            ),
        ),
        "bps",
        quiet="no limit is in force",
    ),
)

_HELPED = (
    Panel(
        "timeseries",
        "Loss of the tenant's probes",
        "By path, over a minute.",
        (Query(f"max by (path) ({_LOSS})", "{{path}}"),),
        "percentunit",
    ),
    Panel(
        "timeseries",
        "p99 round trip of the tenant's probes",
        "By path, over a minute; logarithmic.",
        (Query(f"max by (path) ({_P99})", "{{path}}"),),
        "s",
    ),
    Panel(
        "table",
        "At worst, and at the end",
        "Of each path of the tenant: within the range that is shown, and at its end; orange from 0.1 % lost.",
        (
            Query(
                f"max by (path) (max_over_time({_LOSS}[$__range]))",
                "lost at worst",
                unit="percentunit",
                bounds=((0.001, "orange"),),
            ),
            Query(
                f"max by (path) ({_LOSS})", "lost at the end", unit="percentunit", bounds=((0.001, "orange"),)
            ),
            Query(f"max by (path) (max_over_time({_P99}[$__range]))", "p99 at worst"),
            Query(f"max by (path) ({_P99})", "p99 at the end"),
        ),
        "s",
        width=24,
        height=6,
        columns=("path",),
        order="lost at worst",
        missing="none sent",
    ),
)

INCIDENT = Dashboard(
    uid="vigia-incident",
    title="Incident",
    description="What happened to a tenant within the time range, why and how that is known, what was done, and whether it "
    "helped. Tables show what was known at the end of the time range.",
    variables=VARIABLES,
    links=(
        ("vigia-now", "Now"),
        ("vigia-tenants", "Tenants"),
        ("vigia-isolation", "Isolation"),
    ),
    rows=(
        Row("What happened", _WHAT),
        Row("Cause, action and evidence", _WHY),
        Row("Load and limits", _DID),
        Row("Effect", _HELPED),
    ),
)
