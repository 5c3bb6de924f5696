"""One tenant's own network, for the tenant itself: of what programs export, since what rules record is the operator's."""

from __future__ import annotations

from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, bits

__all__ = ["OWN"]

_ON = 'tenant=~"$tenant"'
_R = "[$__rate_interval]"

_NOW = (
    Panel(
        "stat",
        "Offered load",
        "What all the tenant's ports send, as frames on the wire, before limits drop any of it.",
        (Query(bits(f'sum(rate(vigia_port_bytes_total{{{_ON},direction="from_tenant"}}{_R}))'), "sends"),),
        "bps",
        width=6,
        height=4,
    ),
    Panel(
        "stat",
        "Received traffic",
        "What all the tenant's ports receive, as frames on the wire.",
        (Query(bits(f'sum(rate(vigia_port_bytes_total{{{_ON},direction="to_tenant"}}{_R}))'), "receives"),),
        "bps",
        width=6,
        height=4,
    ),
    Panel(
        "stat",
        "Loss",
        "Share of the probes between the tenant's machines that got no answer, on all paths; orange from 0.1 %, purple from 1 %.",
        (
            Query(
                f"sum(rate(vigia_probe_lost_total{{{_ON}}}{_R})) / sum(rate(vigia_probe_sent_total{{{_ON}}}{_R}))",
                "lost",
            ),
        ),
        "percentunit",
        width=6,
        height=4,
        bounds=((0.001, "orange"), (0.01, "purple")),
    ),
    Panel(
        "stat",
        "p99 round trip",
        "Of the probes between the tenant's machines, on all paths together.",
        (
            Query(
                f"histogram_quantile(0.99, sum(rate(vigia_probe_rtt_seconds{{{_ON}}}{_R})))",
                "p99",
            ),
        ),
        "s",
        width=6,
        height=4,
    ),
)

_THROUGHPUT = (
    Panel(
        "timeseries",
        "Throughput",
        "What each port sends, before limits drop any of it, and receives.",
        (
            Query(
                bits(f"sum by (port, direction) (rate(vigia_port_bytes_total{{{_ON}}}{_R}))"),
                "{{port}} {{direction}}",
            ),
        ),
        "bps",
    ),
    Panel(
        "timeseries",
        "Traffic by protocol",
        "What the tenant sends, as counted in the kernel at its ports; a protocol is there once it has occurred.",
        (
            Query(
                bits(
                    f'sum by (protocol) (rate(vigia_tenant_protocol_bytes_total{{{_ON},direction="from_tenant"}}{_R}))'
                ),
                "{{protocol}}",
            ),
        ),
        "bps",
    ),
    Panel(
        "timeseries",
        "Guarantees",
        "Guaranteed rate of each port and direction.",
        (
            Query(
                bits(f"max by (port, direction) (vigia_isolation_guarantee_bytes_per_second{{{_ON}}})"),
                "{{port}} {{direction}}",
            ),
        ),
        "bps",
        quiet="no port has a contract",
    ),
    Panel(
        "timeseries",
        "Limits in force",
        "Rates that a port is held to while it floods; a line ends with its limit.",
        (
            Query(
                bits(f"max by (port, direction, protocol) (vigia_isolation_limit_bytes_per_second{{{_ON}}})"),
                "{{port}} {{direction}} {{protocol}}",
            ),
        ),
        "bps",
        quiet="no limit is in force",
    ),
)

_LOST = (
    Panel(
        "timeseries",
        "Drops by reason",
        "Packets of the tenant's ports that were dropped, where the reason is known.",
        (
            Query(
                f"sum by (port, direction, reason) (rate(vigia_port_drops_total{{{_ON}}}{_R}))",
                "{{port}} {{direction}} {{reason}}",
            ),
        ),
        "pps",
        quiet="nothing was dropped",
    ),
    Panel(
        "timeseries",
        "Lost probes by cause",
        "On each path; a cause that names a host is not the network's.",
        (
            Query(
                f"sum by (src, dst, path, cause) (rate(vigia_probe_lost_total{{{_ON}}}{_R}))",
                "{{src}} to {{dst}} {{path}} {{cause}}",
            ),
        ),
        "pps",
    ),
    Panel(
        "timeseries",
        "Median round trip",
        "By the kernel's time stamps, without the time that the other machine takes to answer.",
        (
            Query(
                f"histogram_quantile(0.5, sum by (src, dst, path) (rate(vigia_probe_rtt_seconds{{{_ON}}}{_R})))",
                "{{src}} to {{dst}} {{path}}",
            ),
        ),
        "s",
    ),
    Panel(
        "timeseries",
        "p99 round trip of the tenant's probes",
        "99 of 100 round trips were at most this long.",
        (
            Query(
                f"histogram_quantile(0.99, sum by (src, dst, path) (rate(vigia_probe_rtt_seconds{{{_ON}}}{_R})))",
                "{{src}} to {{dst}} {{path}}",
            ),
        ),
        "s",
    ),
)

OWN = Dashboard(
    uid="vigia-tenant",
    title="My network",
    description="For a tenant: its own throughput, drops, round trips and limits, asked through a proxy that shows it nothing else.",
    variables=(Variable("tenant", "Tenant", "label_values(vigia_port_bytes_total, tenant)", single=True),),
    links=(("vigia-tenants", "Tenant interference (operators)"),),
    rows=(Row("Now", _NOW), Row("Throughput", _THROUGHPUT), Row("Drops and delays", _LOST)),
)
