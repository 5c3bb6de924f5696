"""Who hurts whom, and what is done about it."""

from __future__ import annotations

from vigia_dashboards.expressions import ACTIONS, IN_FORCE
from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, bits

__all__ = ["INTERFERENCE", "ISOLATION"]

_ON = 'node=~"$node",tenant=~"$tenant"'
_R = "[$__rate_interval]"

VARIABLES = (
    Variable("node", "Node", "label_values(vigia_port_bytes_total, node)"),
    Variable("tenant", "Tenant", "label_values(vigia_port_bytes_total, tenant)"),
)

_P99 = (
    "histogram_quantile(0.99, sum by (src, tenant) (rate("
    f'vigia_probe_rtt_seconds{{src=~"$node",tenant=~"$tenant"}}{_R})))'
)

INTERFERENCE = Dashboard(
    uid="vigia-tenants",
    title="Tenant interference",
    description="Victims beside aggressors on one time axis, who explains whose bad windows, and what limits do.",
    variables=VARIABLES,
    links=(("vigia-isolation", "Isolation"), ("vigia-host", "Host data path")),
    rows=(
        Row(
            "Who hurts whom",
            (
                Panel(
                    "table",
                    "Answers",
                    "For each tenant with bad windows: attributed to an offender, own traffic, or insufficient evidence.",
                    (Query(f"vigia_compare_interference_verdict{{{_ON}}}", "says"),),
                    "none",
                    columns=("node", "tenant", "verdict", "offender"),
                    words=(("1", "is the answer", "text"),),
                    quiet="no tenant has bad windows",
                ),
                Panel(
                    "table",
                    "Share of the excess, by co-tenant",
                    "How much of the victim's excess each co-tenant's load explains beyond the victim's own; p by permutation, corrected.",
                    (
                        Query(f"vigia_compare_interference_share_ratio{{{_ON}}}", "share"),
                        Query(f"vigia_compare_interference_p_value{{{_ON}}}", "p"),
                    ),
                    "none",
                    columns=("node", "tenant", "offender"),
                    decimals=3,
                    quiet="no tenant has bad windows",
                ),
                Panel(
                    "matrix",
                    "Victim and offender",
                    "Row: the tenant that suffers. Column: who explains it. The cell is the share of the excess.",
                    (Query(f"max by (tenant, offender) (vigia_compare_interference_share_ratio{{{_ON}}})"),),
                    "percentunit",
                    columns=("tenant", "offender"),
                    quiet="no tenant has bad windows",
                ),
                Panel(
                    "timeseries",
                    "Share of the excess, own load",
                    "How much of its own harm each tenant's own load explains, beyond what its co-tenants explain.",
                    (
                        Query(
                            f"vigia_compare_interference_own_share_ratio{{{_ON}}}", "{{tenant}} on {{node}}"
                        ),
                    ),
                    "percentunit",
                    quiet="no tenant has bad windows",
                ),
                Panel(
                    "timeseries",
                    "Isolation actions",
                    "Actions in force, on the time axis of the harm.",
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
                    "What tenants offer",
                    "Before limits drop any of it.",
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
                    "What tenants receive",
                    "Towards the tenants' ports.",
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
                    "What tenants suffer: loss",
                    "Loss of each tenant's own probes.",
                    (
                        Query(
                            'sum by (src, tenant) (rate(vigia_probe_lost_total{src=~"$node",tenant=~"$tenant",'
                            f'cause!~"send_error|local_overflow|reflector_overflow"}}{_R}))'
                            f' / (sum by (src, tenant) (rate(vigia_probe_sent_total{{src=~"$node",tenant=~"$tenant"}}{_R})) > 0)',
                            "{{tenant}} from {{src}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "timeseries",
                    "What tenants suffer: p99 round trip",
                    "Of each tenant's own probes.",
                    (Query(_P99, "{{tenant}} from {{src}}"),),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "p99 with and without an action in force",
                    "Each tenant's own probes, while an isolation action is in force and while none is: what acting gains.",
                    (
                        Query(
                            f"{_P99} and on () (sum({IN_FORCE}) > 0)",
                            "{{tenant}} from {{src}}, action in force",
                        ),
                        Query(
                            f"{_P99} unless on () (sum({IN_FORCE}) > 0)",
                            "{{tenant}} from {{src}}, none",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Loss budget burn by tenant",
                    "Worst path of each tenant: loss over 5 minutes as a multiple of the 0.1 % that the objective allows.",
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
                    "Share of time that something waited for a processor, and that the hypervisor kept from the host: "
                    "what looks like the network may be this.",
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
                    "Drops by reason",
                    "At or for the tenants' ports.",
                    (
                        Query(
                            f"sum by (tenant, reason) (rate(vigia_port_drops_total{{{_ON}}}{_R}))",
                            "{{tenant}} {{reason}}",
                        ),
                    ),
                    "pps",
                    quiet="nothing was dropped",
                ),
                Panel(
                    "timeseries",
                    "Limits in force",
                    "Set by the isolation agent at the sending port; gone when it ends.",
                    (
                        Query(
                            bits(f"vigia_isolation_limit_bytes_per_second{{{_ON}}}"),
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
                    "Fairness of what is sent",
                    "Jain's index over the tenants of a node: 1 is equal shares, 1/n is one tenant alone.",
                    (
                        Query(
                            "sum by (node) (node_tenant:vigia_port_bytes:rate5s"
                            '{node=~"$node",direction="from_tenant"}) ^ 2 / '
                            "(count by (node) (node_tenant:vigia_port_bytes:rate5s"
                            '{node=~"$node",direction="from_tenant"}) * '
                            "sum by (node) (node_tenant:vigia_port_bytes:rate5s"
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
                    (Query(f"vigia_port_flood_score{{{_ON}}}", "{{tenant}} {{port}}"),),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "Traffic by protocol",
                    "As counted in the kernel at every port of the tenant.",
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
                    "What each port is owed, whatever the others do.",
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
    description="Actions from alert to release: what was decided, what was refused, how fast, and what is in force.",
    variables=VARIABLES,
    links=(("vigia-tenants", "Tenant interference"), ("vigia-self", "Self health")),
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "stat",
                    "Actions in force",
                    "Actions whose limit was read back from the kernel, at whatever level.",
                    (Query(f"sum({IN_FORCE})", "in force"),),
                    "short",
                    width=6,
                    height=5,
                ),
                Panel(
                    "stat",
                    "Kill switch",
                    "While it is on, no new action is taken.",
                    (Query("max(vigia_agent_kill_switch)", "kill switch"),),
                    "none",
                    width=6,
                    height=5,
                    words=(("0", "off", "blue"), ("1", "ON", "orange")),
                ),
                Panel(
                    "stat",
                    "Dry run",
                    "While it is on, the agent decides and does not act.",
                    (Query("max(vigia_agent_dry_run)", "dry run"),),
                    "none",
                    width=6,
                    height=5,
                    words=(("0", "off", "blue"), ("1", "ON", "orange")),
                ),
                Panel(
                    "stat",
                    "Messages waiting",
                    "Webhook messages stored and not yet handled.",
                    (Query("max(vigia_agent_inbox_depth)", "waiting"),),
                    "short",
                    width=6,
                    height=5,
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
                    "and releasing. One that has ended is in Ends of actions.",
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
                    "table",
                    "Who the harm is attributed to",
                    "Beside the actions: what the comparison says of every tenant with bad windows, and of whom.",
                    (Query(f"vigia_compare_interference_verdict{{{_ON}}}", "says"),),
                    "none",
                    columns=("node", "tenant", "verdict", "offender"),
                    words=(("1", "is the answer", "text"),),
                    quiet="no tenant has bad windows",
                ),
                Panel(
                    "table",
                    "Limits in force",
                    "With the time until each ends by itself.",
                    (
                        Query(
                            f"max by (node, port, tenant) (vigia_isolation_limit_expires_seconds{{{_ON}}})",
                            "ends in",
                        ),
                    ),
                    "s",
                    columns=("node", "tenant", "port"),
                    quiet="no limit is in force",
                ),
                Panel(
                    "timeseries",
                    "Policed by limits",
                    "Traffic that limits dropped at its source.",
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
            "How it went",
            (
                Panel(
                    "timeseries",
                    "Reaction time by stage, p90",
                    "From the flood's begin to the limit read back from the kernel.",
                    (
                        Query(
                            f"histogram_quantile(0.9, sum by (stage, le) (rate(vigia_isolation_reaction_seconds_bucket{_R})))",
                            "{{stage}}",
                        ),
                    ),
                    "s",
                    quiet="no reaction in the interval",
                ),
                Panel(
                    "timeseries",
                    "Alerts received",
                    "By what became of them; duplicates are no fault.",
                    (
                        Query(
                            f"sum by (status, outcome) (rate(vigia_agent_alerts_total{_R}))",
                            "{{status}} {{outcome}}",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "timeseries",
                    "Stopped by guards",
                    "Actions that a guard kept from being taken.",
                    (Query(f"sum by (guard) (rate(vigia_agent_actions_suppressed_total{_R}))", "{{guard}}"),),
                    "cps",
                    quiet="no guard had to stop an action",
                ),
                Panel(
                    "timeseries",
                    "Requests to enforcers",
                    "By what came of them; failures are tried again until the action's time is over.",
                    (
                        Query(
                            f"sum by (operation, outcome) (rate(vigia_agent_enforcer_requests_total{_R}))",
                            "{{operation}} {{outcome}}",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "stat",
                    "Blast-radius breaker",
                    "Tripped: more actions began at once than are expected, and every further one waits for a person.",
                    (Query("max(vigia_agent_breaker_tripped)", "breaker"),),
                    "none",
                    width=6,
                    height=8,
                    words=(("0", "closed", "blue"), ("1", "TRIPPED", "orange")),
                ),
                Panel(
                    "stat",
                    "Limits that nobody owns",
                    "Limits in the kernel without an action; they end by themselves.",
                    (Query("max(vigia_agent_orphaned_limits)", "limits"),),
                    "short",
                    width=6,
                    height=8,
                ),
                Panel(
                    "timeseries",
                    "Ends of actions",
                    "By cause: evidence is the good one, ttl means that nobody renewed it.",
                    (Query(f"sum by (cause) (rate(vigia_agent_reverts_total{_R}))", "{{cause}}"),),
                    "cps",
                ),
            ),
        ),
    ),
)
