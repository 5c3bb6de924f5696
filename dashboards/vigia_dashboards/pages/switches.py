"""Switches and hosts: where packets are dropped."""

from __future__ import annotations

from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, bits, or_none, per_minute

__all__ = ["HOST", "OPENFLOW"]

_R = "[$__rate_interval]"
_BRIDGE = 'node=~"$node",bridge=~"$bridge"'
_NODE = 'node=~"$node"'

OPENFLOW = Dashboard(
    uid="vigia-openflow",
    title="OpenFlow and Open vSwitch",
    description="Tables, meters, ports and the datapath of every bridge: misses, upcalls, and limits that are reached.",
    variables=(
        Variable("node", "Node", "label_values(vigia_ovs_datapath_flows, node)"),
        Variable("bridge", "Bridge", "label_values(vigia_openflow_table_flows, bridge)"),
    ),
    links=(("vigia-host", "Host data path"), ("vigia-studies", "Studies")),
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "stat",
                    "Lost upcalls",
                    "Packets a minute that were dropped on their way to user space; orange from 1.",
                    (
                        Query(
                            per_minute(
                                or_none(
                                    f'sum(rate(vigia_ovs_datapath_lookups_total{{{_NODE},result="lost"}}{_R}))',
                                    f"sum(vigia_ovs_datapath_flows{{{_NODE}}})",
                                )
                            ),
                            "lost",
                        ),
                    ),
                    "cpm",
                    width=4,
                    height=4,
                    decimals=0,
                    bounds=((1, "orange"),),
                ),
                Panel(
                    "stat",
                    "Flow limit",
                    "Share of the flow limit that is in use, on the fullest node; orange from 80 %: beyond it Open vSwitch evicts "
                    "flows.",
                    (
                        Query(
                            f"max(sum by (node) (vigia_ovs_datapath_flows{{{_NODE}}})"
                            f" / max by (node) (vigia_ovs_flow_limit{{{_NODE}}} > 0))",
                            "used",
                        ),
                    ),
                    "percentunit",
                    width=4,
                    height=4,
                    bounds=((0.8, "orange"),),
                ),
                Panel(
                    "stat",
                    "Flow dump",
                    "Duration of the last revalidation of all flows, on the slowest node; orange from 1: the revalidators fall behind.",
                    (Query(f"max(vigia_ovs_flow_dump_duration_seconds{{{_NODE}}})", "took"),),
                    "s",
                    width=4,
                    height=4,
                    bounds=((1, "orange"),),
                ),
                Panel(
                    "stat",
                    "Table misses",
                    "Share of the look-ups in OpenFlow tables that matched no flow; orange from 5 %.",
                    (
                        Query(
                            f"1 - sum(rate(vigia_openflow_table_matched_total{{{_BRIDGE}}}{_R}))"
                            f" / (sum(rate(vigia_openflow_table_lookups_total{{{_BRIDGE}}}{_R})) > 0)",
                            "missed",
                        ),
                    ),
                    "percentunit",
                    width=4,
                    height=4,
                    bounds=((0.05, "orange"),),
                    quiet="no packet reached a table, as the datapath's cache matched all",
                ),
                Panel(
                    "stat",
                    "Meter drops",
                    "Packets a minute over the rates of the bridges' meters.",
                    (
                        Query(
                            per_minute(
                                or_none(
                                    f"sum(rate(vigia_openflow_meter_drops_total{{{_BRIDGE}}}{_R}))",
                                    f"count(vigia_openflow_table_flows{{{_BRIDGE}}})",
                                )
                            ),
                            "dropped",
                        ),
                    ),
                    "cpm",
                    width=4,
                    height=4,
                    decimals=0,
                ),
                Panel(
                    "stat",
                    "Port drops",
                    "Packets a minute that the bridges' own ports dropped; orange from 1.",
                    (
                        Query(
                            per_minute(
                                or_none(
                                    f"sum(rate(vigia_ovs_port_drops_total{{{_BRIDGE}}}{_R}))",
                                    f"count(vigia_openflow_table_flows{{{_BRIDGE}}})",
                                )
                            ),
                            "dropped",
                        ),
                    ),
                    "cpm",
                    width=4,
                    height=4,
                    decimals=0,
                    bounds=((1, "orange"),),
                ),
            ),
        ),
        Row(
            "Tables",
            (
                Panel(
                    "table",
                    "Bridges",
                    "Flow entries, tables that have any, and look-ups a second of every bridge.",
                    (
                        Query(f"sum by (node, bridge) (vigia_openflow_table_flows{{{_BRIDGE}}})", "flows"),
                        Query(
                            f"count by (node, bridge) (vigia_openflow_table_flows{{{_BRIDGE}}} > 0)", "tables"
                        ),
                        Query(
                            f"sum by (node, bridge) (rate(vigia_openflow_table_lookups_total{{{_BRIDGE}}}{_R}))",
                            "look-ups/s",
                        ),
                    ),
                    "short",
                    columns=("node", "bridge"),
                ),
                Panel(
                    "timeseries",
                    "Table miss ratio",
                    "Share of look-ups that matched no flow.",
                    (
                        Query(
                            f"1 - sum by (node, bridge, table) (rate(vigia_openflow_table_matched_total{{{_BRIDGE}}}{_R}))"
                            f" / (sum by (node, bridge, table) (rate(vigia_openflow_table_lookups_total{{{_BRIDGE}}}{_R})) > 0)",
                            "{{node}} {{bridge}} table {{table}}",
                        ),
                    ),
                    "percentunit",
                    quiet="no packet reached a table, as the datapath's cache matched all",
                ),
                Panel(
                    "timeseries",
                    "Dropped by meters",
                    "Packets over the rates of the bridge's meters; zero for a bridge without one.",
                    (
                        Query(
                            or_none(
                                f"sum by (node, bridge) (rate(vigia_openflow_meter_drops_total{{{_BRIDGE}}}{_R}))",
                                f"count by (node, bridge) (vigia_openflow_table_flows{{{_BRIDGE}}})",
                            ),
                            "{{node}} {{bridge}}",
                        ),
                    ),
                    "pps",
                ),
                Panel(
                    "timeseries",
                    "Traffic by tenant, from flow cookies",
                    "Traffic of flows with a tenant's cookie.",
                    (
                        Query(
                            bits(
                                f"sum by (node, tenant) (rate(vigia_openflow_cookie_bytes_total{{{_BRIDGE}}}{_R}))"
                            ),
                            "{{tenant}} on {{node}}",
                        ),
                    ),
                    "bps",
                    quiet="no flow has a tenant's cookie",
                ),
            ),
        ),
        Row(
            "Ports",
            (
                Panel(
                    "timeseries",
                    "Traffic of the bridges' own ports",
                    "Uplinks, tunnels and patch ports, the twelve busiest; tenants' ports are in Tenants.",
                    (
                        Query(
                            bits(
                                "topk(12, sum by (node, bridge, device, direction) "
                                f"(rate(vigia_ovs_port_bytes_total{{{_BRIDGE}}}{_R})))"
                            ),
                            "{{node}} {{bridge}} {{device}} {{direction}}",
                        ),
                    ),
                    "bps",
                    quiet="no bridge has ports other than tenants'",
                    width=24,
                ),
                Panel(
                    "timeseries",
                    "Drops of the bridges' own ports",
                    "As Open vSwitch counts them.",
                    (
                        Query(
                            per_minute(
                                "topk(12, sum by (node, bridge, device, direction) "
                                f"(rate(vigia_ovs_port_drops_total{{{_BRIDGE}}}{_R})))"
                            ),
                            "{{node}} {{bridge}} {{device}} {{direction}}",
                        ),
                    ),
                    "cpm",
                    quiet="nothing was dropped",
                    width=24,
                ),
            ),
        ),
        Row(
            "Datapath",
            (
                Panel(
                    "timeseries",
                    "Datapath look-ups",
                    "hit: matched in the datapath; missed: passed to user space; lost: dropped on the way there.",
                    (
                        Query(
                            f"sum by (node, result) (rate(vigia_ovs_datapath_lookups_total{{{_NODE}}}{_R}))",
                            "{{node}} {{result}}",
                        ),
                    ),
                    "pps",
                ),
                Panel(
                    "timeseries",
                    "Datapath flows",
                    "Flows that the datapath knows.",
                    (Query(f"sum by (node) (vigia_ovs_datapath_flows{{{_NODE}}})", "{{node}}"),),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "Share of the flow limit",
                    "Flows of the datapath over the limit that the revalidators keep to: at 100 % Open vSwitch evicts flows, and "
                    "their packets go to user space.",
                    (
                        Query(
                            f"sum by (node) (vigia_ovs_datapath_flows{{{_NODE}}})"
                            f" / max by (node) (vigia_ovs_flow_limit{{{_NODE}}} > 0)",
                            "{{node}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "timeseries",
                    "Upcalls",
                    "Packets that were passed to user space, by result.",
                    (
                        Query(
                            per_minute(
                                f"sum by (node, result) (rate(vigia_ovs_thread_upcalls_total{{{_NODE}}}{_R}))"
                            ),
                            "{{node}} {{result}}",
                        ),
                    ),
                    "cpm",
                    quiet="no bridge has the userspace datapath",
                ),
                Panel(
                    "timeseries",
                    "Flow dump duration",
                    "Duration of the last revalidation of all flows; above one second the revalidators fall behind.",
                    (Query(f"max by (node) (vigia_ovs_flow_dump_duration_seconds{{{_NODE}}})", "{{node}}"),),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Most frequent switch events",
                    "The ten fastest-growing coverage counters of ovs-vswitchd (coverage/show): those of loss and overload, in tier detail all.",
                    (
                        Query(
                            per_minute(
                                f"topk(10, sum by (node, event) (rate(vigia_ovs_coverage_events_total{{{_NODE}}}{_R})))"
                            ),
                            "{{node}} {{event}}",
                        ),
                    ),
                    "cpm",
                    width=24,
                ),
            ),
        ),
    ),
)


def _drops(expression: str, what: str, labels: str) -> str:
    """Return the packets of the range by where, in words of their own."""
    found = f"sum by (node, {labels}) (increase({expression}[$__range])) > 0"
    names = ", ".join(f'"{label}"' for label in labels.split(", "))
    joined = f'label_join({found}, "detail", " ", {names})'
    return f'label_replace({joined}, "counter", "{what}", "", "")'


_DROPPED = " or ".join(
    f"max by (counter, detail, node) ({_drops(metric, what, labels)})"
    for metric, what, labels in (
        (f"vigia_port_drops_total{{{_NODE}}}", "tenants' ports", "tenant, reason, port"),
        (f"vigia_port_kernel_drops_total{{{_NODE}}}", "kernel, at tenants' ports", "tenant, reason"),
        (f"vigia_qdisc_drops_total{{{_NODE}}}", "queueing discipline", "device, kind"),
        ("node_softnet_dropped_total", "backlog queue", "instance"),
        ("node_network_receive_drop_total", "interface, receive", "instance, device"),
        ("node_network_transmit_drop_total", "interface, transmit", "instance, device"),
    )
)

HOST = Dashboard(
    uid="vigia-host",
    title="Host data path",
    description="The hosts below tenants and paths: drops by reason, processors, queues, connection tracking.",
    variables=(Variable("node", "Node", "label_values(vigia_port_bytes_total, node)"),),
    links=(("vigia-openflow", "OpenFlow and Open vSwitch"),),
    rows=(
        Row(
            "Drops",
            (
                Panel(
                    "table",
                    "Where packets were dropped",
                    "Within the range that is shown, most first: at tenants' ports, in the kernel, in queueing disciplines, and at the "
                    "host's own interfaces and queue. One packet may be counted at several of them.",
                    (Query(f"topk(20, round({_DROPPED}))", "packets"),),
                    "short",
                    width=24,
                    columns=("counter", "detail", "node"),
                    names={"counter": "dropped by", "detail": "what, and why"},
                    wide={"detail": 420},
                    order="packets",
                    quiet="nothing was dropped",
                ),
                Panel(
                    "timeseries",
                    "Kernel drops by reason",
                    "Reasons that the kernel gives for dropping packets of tenants' ports (skb drop reasons); zero without a reason "
                    "where it is watched and dropped nothing.",
                    (
                        Query(
                            per_minute(
                                or_none(
                                    f"sum by (node, reason) (rate(vigia_port_kernel_drops_total{{{_NODE}}}{_R}))",
                                    f"sum by (node) (rate(vigia_exporter_kernel_drops_lost_total{{{_NODE}}}{_R}))",
                                )
                            ),
                            "{{node}} {{reason}}",
                        ),
                    ),
                    "cpm",
                    quiet="the kernel cannot give reasons, or the collector kerneldrops is off",
                ),
                Panel(
                    "timeseries",
                    "Drops at the ports by reason",
                    "Reasons normalised across data planes.",
                    (
                        Query(
                            f"sum by (node, reason) (rate(vigia_port_drops_total{{{_NODE}}}{_R}))",
                            "{{node}} {{reason}}",
                        ),
                    ),
                    "pps",
                    quiet="nothing was dropped",
                ),
                Panel(
                    "timeseries",
                    "Softnet",
                    "dropped: the backlog queue was full; squeezed: the softirq used up its budget.",
                    (
                        Query(
                            f"sum by (instance) (rate(node_softnet_dropped_total{_R}))",
                            "{{instance}} dropped",
                        ),
                        Query(
                            f"sum by (instance) (rate(node_softnet_times_squeezed_total{_R}))",
                            "{{instance}} squeezed",
                        ),
                    ),
                    "pps",
                ),
                Panel(
                    "timeseries",
                    "Interface drops",
                    "Of the host's own interfaces, as node_exporter counts them.",
                    (
                        Query(
                            f"sum by (instance, device) (rate(node_network_receive_drop_total{_R}))",
                            "{{instance}} {{device}} receive",
                        ),
                        Query(
                            f"sum by (instance, device) (rate(node_network_transmit_drop_total{_R}))",
                            "{{instance}} {{device}} transmit",
                        ),
                    ),
                    "pps",
                ),
            ),
        ),
        Row(
            "Processors and connections",
            (
                Panel(
                    "timeseries",
                    "Processor time",
                    "100 % is one processor. softirq is packet processing; steal is time that the hypervisor gave to other guests.",
                    (
                        Query(
                            'sum by (instance, mode) (rate(node_cpu_seconds_total{mode=~"softirq|system|user|steal"}'
                            f"{_R}))",
                            "{{instance}} {{mode}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "timeseries",
                    "TCP retransmits",
                    "Segments retransmitted by the host's own TCP stack.",
                    (Query(per_minute(f"rate(node_netstat_Tcp_RetransSegs{_R})"), "{{instance}}"),),
                    "cpm",
                ),
                Panel(
                    "timeseries",
                    "Connection tracking",
                    "Share of the table that is in use; new connections are dropped when it is full.",
                    (
                        Query(
                            "node_nf_conntrack_entries / (node_nf_conntrack_entries_limit > 0)",
                            "{{instance}}",
                        ),
                    ),
                    "percentunit",
                    quiet="connection tracking is not in use",
                ),
                Panel(
                    "timeseries",
                    "UDP receive buffer errors",
                    "Datagrams dropped because the socket's receive buffer was full.",
                    (Query(f"rate(node_netstat_Udp_RcvbufErrors{_R})", "{{instance}}"),),
                    "pps",
                ),
                Panel(
                    "timeseries",
                    "Queueing disciplines",
                    "Packets dropped by the queueing disciplines of the host's devices, the twelve with most.",
                    (
                        Query(
                            f"topk(12, sum by (node, device, kind) (rate(vigia_qdisc_drops_total{{{_NODE}}}{_R})))",
                            "{{node}} {{device}} {{kind}}",
                        ),
                    ),
                    "pps",
                    width=24,
                    quiet="no queueing discipline has carried packets",
                ),
            ),
        ),
    ),
)
