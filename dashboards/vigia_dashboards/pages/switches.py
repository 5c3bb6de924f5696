"""Switches and hosts: where packets are dropped."""

from __future__ import annotations

from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, bits

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
            "Tables",
            (
                Panel(
                    "table",
                    "Bridges",
                    "Flow entries, tables that have any, and look-ups per second of every bridge.",
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
                    "table",
                    "Flows",
                    "Flow entries per table.",
                    (Query(f"vigia_openflow_table_flows{{{_BRIDGE}}} > 0", "flows"),),
                    "short",
                    columns=("node", "bridge", "table"),
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
                    "Packets over the meter's rate.",
                    (
                        Query(
                            f"sum by (node, bridge, meter) (rate(vigia_openflow_meter_drops_total{{{_BRIDGE}}}{_R}))",
                            "{{node}} {{bridge}} meter {{meter}}",
                        ),
                    ),
                    "pps",
                    quiet="no meter is installed",
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
                    "Uplinks, tunnels and patch ports; tenants' ports are in Tenant interference.",
                    (
                        Query(
                            bits(
                                f"sum by (node, bridge, device, direction) (rate(vigia_ovs_port_bytes_total{{{_BRIDGE}}}{_R}))"
                            ),
                            "{{node}} {{device}} {{direction}}",
                        ),
                    ),
                    "bps",
                    quiet="no bridge has ports other than tenants'",
                ),
                Panel(
                    "timeseries",
                    "Drops of the bridges' own ports",
                    "As Open vSwitch counts them.",
                    (
                        Query(
                            f"sum by (node, bridge, device, direction) (rate(vigia_ovs_port_drops_total{{{_BRIDGE}}}{_R}))",
                            "{{node}} {{device}} {{direction}}",
                        ),
                    ),
                    "pps",
                    quiet="nothing was dropped",
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
                    "Datapath flows and their limit",
                    "At the limit Open vSwitch evicts flows, and their packets go to user space.",
                    (
                        Query(f"sum by (node) (vigia_ovs_datapath_flows{{{_NODE}}})", "{{node}} flows"),
                        Query(f"max by (node) (vigia_ovs_flow_limit{{{_NODE}}})", "{{node}} limit"),
                    ),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "Upcalls by thread",
                    "Packets that were passed to user space, by result.",
                    (
                        Query(
                            f"sum by (node, result) (rate(vigia_ovs_thread_upcalls_total{{{_NODE}}}{_R}))",
                            "{{node}} {{result}}",
                        ),
                    ),
                    "pps",
                    quiet="no bridge has the userspace datapath",
                ),
                Panel(
                    "timeseries",
                    "Most frequent switch events",
                    "The ten fastest-growing coverage counters of ovs-vswitchd (coverage/show): those of loss and overload, in tier detail all.",
                    (
                        Query(
                            f"topk(10, sum by (node, event) (rate(vigia_ovs_coverage_events_total{{{_NODE}}}{_R})))",
                            "{{node}} {{event}}",
                        ),
                    ),
                    "ops",
                ),
                Panel(
                    "timeseries",
                    "Flow dump duration",
                    "Duration of the last revalidation of all flows; above one second the revalidators fall behind.",
                    (Query(f"max by (node) (vigia_ovs_flow_dump_duration_seconds{{{_NODE}}})", "{{node}}"),),
                    "s",
                ),
            ),
        ),
    ),
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
                    "timeseries",
                    "Kernel drops by reason",
                    "Reasons that the kernel gives for dropping packets of tenants' ports (skb drop reasons).",
                    (
                        Query(
                            f"sum by (node, reason) (rate(vigia_port_kernel_drops_total{{{_NODE}}}{_R}))",
                            "{{node}} {{reason}}",
                        ),
                    ),
                    "pps",
                    quiet="the kernel dropped no packet of a tenant, or the tier detail is off",
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
                    "softirq is packet processing; steal is time that the hypervisor gave to other guests.",
                    (
                        Query(
                            'sum by (instance, mode) (rate(node_cpu_seconds_total{mode=~"softirq|system|user|steal"}'
                            f"{_R}))",
                            "{{instance}} {{mode}}",
                        ),
                    ),
                    "none",
                ),
                Panel(
                    "timeseries",
                    "TCP retransmits",
                    "Segments retransmitted by the host's own TCP stack.",
                    (Query(f"rate(node_netstat_Tcp_RetransSegs{_R})", "{{instance}}"),),
                    "pps",
                ),
                Panel(
                    "timeseries",
                    "Connection tracking",
                    "Entries and size of the table; new connections are dropped when it is full.",
                    (
                        Query("node_nf_conntrack_entries", "{{instance}} entries"),
                        Query("node_nf_conntrack_entries_limit", "{{instance}} size"),
                    ),
                    "short",
                    quiet="connection tracking is not in use",
                ),
                Panel(
                    "timeseries",
                    "Queueing disciplines",
                    "Packets dropped by the queueing disciplines of the host's devices, by device and kind.",
                    (
                        Query(
                            f"sum by (node, device, kind) (rate(vigia_qdisc_drops_total{{{_NODE}}}{_R}))",
                            "{{node}} {{device}} {{kind}}",
                        ),
                    ),
                    "pps",
                    quiet="no queueing discipline has carried packets",
                ),
                Panel(
                    "timeseries",
                    "UDP receive buffer errors",
                    "Datagrams dropped because the socket's receive buffer was full.",
                    (Query(f"rate(node_netstat_Udp_RcvbufErrors{_R})", "{{instance}}"),),
                    "pps",
                ),
            ),
        ),
    ),
)
