"""Interference between tenants, and isolation."""

from __future__ import annotations

from vigia_dashboards.expressions import ACTIONS, IN_FORCE
from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, bits, or_none, per_minute
from vigia_dashboards.pages.harm import evidence, harm, lost_where

__all__ = ["INTERFERENCE", "ISOLATION"]

_ON = 'node=~"$node",tenant=~"$tenant"'
_R = "[$__rate_interval]"

VARIABLES = (
    Variable("node", "Node", "label_values(vigia_port_bytes_total, node)"),
    Variable("tenant", "Tenant", "label_values(vigia_port_bytes_total, tenant)"),
)

_CUSTOMER = 'tenant!~"_.*",' + _ON
_FROM_CUSTOMER = 'src=~"$node",tenant=~"$tenant",tenant!~"_.*"'

_P99 = 'max by (src, tenant) (path:vigia_probe_rtt_seconds:p99_rate1m{src=~"$node",tenant=~"$tenant"})'

_ACCOUNT = (
    Panel(
        "table",
        "Bought, sent and got",
        "Bought: guarantees of the tenant's ports together, for what it sends. Sent: before limits drop any of it. Lost: the worst "
        "path of its probes, orange from 0.1 %, purple from 1 %. Dropped: packets of its own, over the range that is shown.",
        (
            Query(
                bits(
                    f'sum by (tenant) (vigia_isolation_guarantee_bytes_per_second{{{_CUSTOMER},direction="from_tenant"}})'
                ),
                "bought",
                unit="bps",
            ),
            Query(
                bits(
                    f'sum by (tenant) (rate(vigia_port_bytes_total{{{_CUSTOMER},direction="from_tenant"}}{_R}))'
                ),
                "sent",
                unit="bps",
            ),
            Query(
                bits(
                    f'sum by (tenant) (rate(vigia_port_bytes_total{{{_CUSTOMER},direction="to_tenant"}}{_R}))'
                ),
                "got",
                unit="bps",
            ),
            Query(
                f"max by (tenant) (path:vigia_probe_loss:ratio_rate1m{{{_FROM_CUSTOMER}}})",
                "lost",
                unit="percentunit",
                bounds=((0.001, "orange"), (0.01, "purple")),
            ),
            Query(
                f"max by (tenant) (path:vigia_probe_rtt_seconds:p99_rate1m{{{_FROM_CUSTOMER}}})",
                "p99",
                unit="s",
            ),
            Query(
                or_none(
                    f"round(sum by (tenant) (increase(vigia_port_drops_total{{{_CUSTOMER}}}[$__range])))",
                    f"count by (tenant) (vigia_port_bytes_total{{{_CUSTOMER}}})",
                ),
                "dropped",
                unit="short",
            ),
        ),
        "none",
        width=24,
        height=6,
        columns=("tenant",),
        drill="/d/vigia-tenants?${datasource:queryparam}&var-tenant=${__value.text}&${__url_time_range}",
    ),
    lost_where(_CUSTOMER, "Lost where, and why"),
    Panel(
        "timeseries",
        "Drops by reason",
        "Packets dropped at the tenants' ports, or attributed to them.",
        (
            Query(
                f"sum by (tenant, reason) (rate(vigia_port_drops_total{{{_ON}}}{_R}))",
                "{{tenant}} {{reason}}",
            ),
        ),
        "pps",
        quiet="nothing was dropped",
    ),
)

INTERFERENCE = Dashboard(
    uid="vigia-tenants",
    title="Tenant interference",
    description="Load and harm of tenants on one time axis, attribution of the harm, and the effect of limits.",
    variables=VARIABLES,
    links=(
        ("vigia-incident", "Incident"),
        ("vigia-isolation", "Isolation"),
        ("vigia-host", "Host data path"),
    ),
    rows=(
        Row("What each tenant bought and got", _ACCOUNT),
        Row(
            "Attribution",
            (
                harm(
                    "Who hurt it",
                    "For each tenant that suffered in the last hour: attributed to another tenant (likely, if one link is not "
                    "seen), own traffic, or insufficient evidence. Share: how much of what went beyond contracts was the "
                    "offender's, where it is known; else how much of the excess loss or delay its load explains beyond the "
                    "tenant's own. A click on the tenant shows that incident.",
                    every=True,
                    height=7,
                    quiet="no tenant has bad windows",
                ),
                evidence(_ON),
                Panel(
                    "timeseries",
                    "Isolation actions",
                    "Actions in force, by policy and level.",
                    (
                        Query(
                            f"sum by (policy, level) ({IN_FORCE})",
                            "{{policy}} {{level}}",
                        ),
                    ),
                    "short",
                ),
            ),
        ),
        Row(
            "One time axis",
            (
                Panel(
                    "timeseries",
                    "Offered load",
                    "What tenants send, before limits drop any of it.",
                    (
                        Query(
                            bits(
                                f'sum by (node, tenant) (rate(vigia_port_bytes_total{{{_ON},direction="from_tenant"}}{_R}))'
                            ),
                            "{{tenant}} on {{node}}",
                        ),
                    ),
                    "bps",
                ),
                Panel(
                    "timeseries",
                    "Received traffic",
                    "Traffic to the tenants' ports.",
                    (
                        Query(
                            bits(
                                f'sum by (node, tenant) (rate(vigia_port_bytes_total{{{_ON},direction="to_tenant"}}{_R}))'
                            ),
                            "{{tenant}} on {{node}}",
                        ),
                    ),
                    "bps",
                ),
                Panel(
                    "timeseries",
                    "Loss of tenants' probes",
                    "Share lost in the network on the worst path of each tenant, over a minute, of the probes sent within its network.",
                    (
                        Query(
                            'max by (src, tenant) (path:vigia_probe_loss:ratio_rate1m{src=~"$node",tenant=~"$tenant"})',
                            "{{tenant}} from {{src}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "timeseries",
                    "p99 round trip of tenants' probes",
                    "On the worst path of each tenant, over a minute, of the probes sent within its network.",
                    (Query(_P99, "{{tenant}} from {{src}}"),),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Loss budget burn by tenant",
                    "Loss over 5 minutes on the worst path of each tenant, as a multiple of the 0.1 % that the objective allows.",
                    (
                        Query(
                            'max by (tenant) (path:vigia_probe_loss:ratio_rate5m{src=~"$node",tenant=~"$tenant"}) / 0.001',
                            "{{tenant}}",
                        ),
                    ),
                    "none",
                ),
                Panel(
                    "timeseries",
                    "Hosts under pressure",
                    "Share of time in which a task waited for a processor (PSI), and of processor time that the hypervisor gave to "
                    "others: high delays may come from the host, not from the network.",
                    (
                        Query(
                            'max by (node) (vigia_probe_host_cpu_pressure_ratio{node=~"$node"})',
                            "{{node}} waiting",
                        ),
                        Query(
                            'max by (node) (vigia_probe_host_steal_ratio{node=~"$node"})', "{{node}} stolen"
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "timeseries",
                    "Limits in force",
                    "Limits that the isolation agent has set at the senders' ports.",
                    (
                        Query(
                            bits(
                                "max by (node, port, tenant, direction, protocol) "
                                f"(vigia_isolation_limit_bytes_per_second{{{_ON}}})"
                            ),
                            "{{tenant}} {{port}} {{protocol}}",
                        ),
                    ),
                    "bps",
                    quiet="no limit is in force",
                ),
            ),
        ),
        Row(
            "Fairness and floods",
            (
                Panel(
                    "timeseries",
                    "Fairness of sent traffic",
                    "Jain's index over the tenants of a node: 1 is equal shares, 1/n is one tenant alone.",
                    (
                        Query(
                            "sum by (node) (node_tenant:vigia_port_bytes:rate1m"
                            '{node=~"$node",direction="from_tenant"}) ^ 2 / '
                            "(count by (node) (node_tenant:vigia_port_bytes:rate1m"
                            '{node=~"$node",direction="from_tenant"}) * '
                            "sum by (node) (node_tenant:vigia_port_bytes:rate1m"
                            '{node=~"$node",direction="from_tenant"} ^ 2))',
                            "{{node}}",
                        ),
                    ),
                    "none",
                ),
                Panel(
                    "timeseries",
                    "Flood score",
                    "0 to 100 from volume, port spread and lack of replies, in the kernel, every 100 ms.",
                    (
                        Query(
                            f"max by (node, port, tenant) (vigia_port_flood_score{{{_ON}}})",
                            "{{tenant}} {{port}}",
                        ),
                    ),
                    "short",
                    quiet="no port looks like a flood: scores from 30 on are shown",
                ),
                Panel(
                    "timeseries",
                    "Traffic by protocol",
                    "As counted in the kernel at every port of the tenant; a protocol is there once it has occurred.",
                    (
                        Query(
                            bits(
                                f'sum by (tenant, protocol) (rate(vigia_tenant_protocol_bytes_total{{{_ON},direction="from_tenant"}}{_R}))'
                            ),
                            "{{tenant}} {{protocol}}",
                        ),
                    ),
                    "bps",
                ),
                Panel(
                    "timeseries",
                    "Guarantees",
                    "Guaranteed rate of each port under its contract.",
                    (
                        Query(
                            bits(f"vigia_isolation_guarantee_bytes_per_second{{{_ON}}}"),
                            "{{tenant}} {{port}} {{direction}}",
                        ),
                    ),
                    "bps",
                    quiet="no port has a contract",
                ),
            ),
        ),
    ),
)

ISOLATION = Dashboard(
    uid="vigia-isolation",
    title="Isolation timeline",
    description="Actions from alert to release: decisions, refusals, reaction times, and what is in force.",
    variables=VARIABLES,
    links=(("vigia-tenants", "Tenant interference"), ("vigia-self", "Self health")),
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "stat",
                    "Actions in force",
                    "Actions whose limit was read back from the kernel, at whatever level; orange from 1.",
                    (Query(f"sum({IN_FORCE})", "in force"),),
                    "short",
                    width=4,
                    height=4,
                    bounds=((1, "orange"),),
                ),
                Panel(
                    "stat",
                    "Kill switch",
                    "While it is on, the agent takes no new action.",
                    (Query("max(vigia_agent_kill_switch)", "kill switch"),),
                    "none",
                    width=4,
                    height=4,
                    words=(("0", "off", "text"), ("1", "ON", "orange")),
                ),
                Panel(
                    "stat",
                    "Dry run",
                    "While it is on, the agent decides but does not act.",
                    (Query("max(vigia_agent_dry_run)", "dry run"),),
                    "none",
                    width=4,
                    height=4,
                    words=(("0", "off", "text"), ("1", "ON", "orange")),
                ),
                Panel(
                    "stat",
                    "Messages",
                    "Webhook messages that are stored and not handled yet; orange from 10.",
                    (Query("max(vigia_agent_inbox_depth)", "waiting"),),
                    "short",
                    width=4,
                    height=4,
                    bounds=((10, "orange"),),
                ),
                Panel(
                    "stat",
                    "Breaker",
                    "Tripped: more actions began at once than expected; every further one needs an approval.",
                    (Query("max(vigia_agent_breaker_tripped)", "breaker"),),
                    "none",
                    width=4,
                    height=4,
                    words=(("0", "closed", "text"), ("1", "TRIPPED", "orange")),
                ),
                Panel(
                    "stat",
                    "Orphaned limits",
                    "Limits in the kernel of which the agent has no record; they expire; orange from 1.",
                    (Query("max(vigia_agent_orphaned_limits)", "limits"),),
                    "short",
                    width=4,
                    height=4,
                    bounds=((1, "orange"),),
                ),
                Panel(
                    "table",
                    "Who is limited",
                    "Limits in force, as read back from the kernel, and what the port's tenant offers there; the limit ends by itself "
                    "unless the agent extends it.",
                    (
                        Query(
                            bits(
                                f"max by (tenant, port, node) (vigia_isolation_limit_bytes_per_second{{{_ON}}})"
                            ),
                            "limit",
                            unit="bps",
                        ),
                        Query(
                            bits(
                                "sum by (tenant, port, node) "
                                f'(rate(vigia_port_bytes_total{{{_ON},direction="from_tenant"}}{_R}))'
                                " and on (port, node) vigia_isolation_limit_bytes_per_second"
                            ),
                            "sends",
                            unit="bps",
                        ),
                        Query(
                            f"max by (tenant, port, node) (vigia_isolation_limit_expires_seconds{{{_ON}}})",
                            "ends in",
                            unit="s",
                        ),
                    ),
                    "none",
                    width=24,
                    height=5,
                    columns=("tenant", "port", "node"),
                    clicks={
                        "tenant": "/d/vigia-tenants?${datasource:queryparam}&var-tenant=${__value.text}&${__url_time_range}"
                    },
                    order="limit",
                    ascending=True,
                    quiet="no limit is in force",
                ),
            ),
        ),
        Row(
            "Timeline",
            (
                Panel(
                    "timeseries",
                    "Actions by state",
                    "Actions that have not ended: from received or pending_approval to active, stepped_up or stepped_down, "
                    "and releasing. Ended actions are counted by cause below.",
                    (
                        Query(
                            f"sum by (state, level, policy) ({ACTIONS})",
                            "{{policy}} {{level}} {{state}}",
                        ),
                    ),
                    "short",
                    width=24,
                ),
                Panel(
                    "timeseries",
                    "Limits",
                    "Limits that are in force, as read back from the kernel; a line ends with its limit.",
                    (
                        Query(
                            bits(
                                "max by (node, port, tenant, protocol) "
                                f"(vigia_isolation_limit_bytes_per_second{{{_ON}}})"
                            ),
                            "{{tenant}} {{port}} {{protocol}} on {{node}}",
                        ),
                    ),
                    "bps",
                    quiet="no limit is in force",
                ),
                Panel(
                    "timeseries",
                    "Policed by limits",
                    "Traffic that limits dropped at the senders' ports.",
                    (
                        Query(
                            bits(f"sum by (tenant) (rate(vigia_isolation_policed_bytes_total{{{_ON}}}{_R}))"),
                            "{{tenant}}",
                        ),
                    ),
                    "bps",
                    quiet="no limit dropped anything",
                ),
            ),
        ),
        Row(
            "Reactions",
            (
                Panel(
                    "timeseries",
                    "Reaction time by stage, p90",
                    "From the start of the flood to the limit read back from the kernel.",
                    (
                        Query(
                            f"histogram_quantile(0.9, sum by (stage, le) (rate(vigia_isolation_reaction_seconds_bucket{_R})))",
                            "{{stage}}",
                        ),
                    ),
                    "s",
                    quiet="there was no reaction in the interval",
                ),
                Panel(
                    "timeseries",
                    "Alerts received",
                    "By status and outcome; duplicates are normal, as Alertmanager repeats alerts. "
                    "Quarantined ones have a field that cannot be right; the agent's console shows them.",
                    (
                        Query(
                            per_minute(f"sum by (status, outcome) (rate(vigia_agent_alerts_total{_R}))"),
                            "{{status}} {{outcome}}",
                        ),
                        Query(
                            per_minute(f"sum(rate(vigia_agent_alerts_quarantined_total{_R}))"), "quarantined"
                        ),
                    ),
                    "cpm",
                ),
                Panel(
                    "timeseries",
                    "Actions stopped by guards",
                    "By the guard that stopped them.",
                    (
                        Query(
                            per_minute(f"sum by (guard) (rate(vigia_agent_actions_suppressed_total{_R}))"),
                            "{{guard}}",
                        ),
                    ),
                    "cpm",
                    quiet="no guard had to stop an action",
                ),
                Panel(
                    "timeseries",
                    "Requests to enforcers",
                    "By operation and outcome; failed ones are repeated until the action's time is over.",
                    (
                        Query(
                            per_minute(
                                f"sum by (operation, outcome) (rate(vigia_agent_enforcer_requests_total{_R}))"
                            ),
                            "{{operation}} {{outcome}}",
                        ),
                    ),
                    "cpm",
                ),
                Panel(
                    "timeseries",
                    "Ended actions",
                    "By cause: evidence means that the flood ended, ttl that the limit expired without being renewed.",
                    (
                        Query(
                            per_minute(f"sum by (cause) (rate(vigia_agent_reverts_total{_R}))"), "{{cause}}"
                        ),
                    ),
                    "cpm",
                ),
            ),
        ),
    ),
)
