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
    description="Tables, meters, ports and the datapath of every bridge: misses, upcalls, what is full.",
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
                    "Every bridge with its flow entries, the tables that have any, and look-ups in them per second.",
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
                    "Share of look-ups that matched nothing.",
                    (
                        Query(
                            f"1 - sum by (node, bridge, table) (rate(vigia_openflow_table_matched_total{{{_BRIDGE}}}{_R}))"
                            f" / (sum by (node, bridge, table) (rate(vigia_openflow_table_lookups_total{{{_BRIDGE}}}{_R})) > 0)",
                            "{{node}} {{bridge}} table {{table}}",
                        ),
                    ),
                    "percentunit",
                    quiet="no packet reached a table: the datapath's cache answered them all",
                ),
                Panel(
                    "timeseries",
                    "Dropped by meters",
                    "Packets over their meter's rate.",
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
                    "What flows with a tenant's cookie carried.",
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
                    "Uplinks and tunnels; tenants' ports are on the tenants' page.",
                    (
                        Query(
                            bits(
                                f"sum by (node, bridge, device, direction) (rate(vigia_ovs_port_bytes_total{{{_BRIDGE}}}{_R}))"
                            ),
                            "{{node}} {{device}} {{direction}}",
                        ),
                    ),
                    "bps",
                    quiet="no bridge port other than tenants' carries traffic",
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
                    "hit is the fast path; missed goes to user space; lost never got there.",
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
                    "At the limit Open vSwitch deletes flows to make room, and every packet of theirs is slow.",
                    (
                        Query(f"sum by (node) (vigia_ovs_datapath_flows{{{_NODE}}})", "{{node}} flows"),
                        Query(f"max by (node) (vigia_ovs_flow_limit{{{_NODE}}})", "{{node}} limit"),
                    ),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "Upcalls by thread",
                    "Packets that user space had to look at, and those it lost.",
                    (
                        Query(
                            f"sum by (node, result) (rate(vigia_ovs_thread_upcalls_total{{{_NODE}}}{_R}))",
                            "{{node}} {{result}}",
                        ),
                    ),
                    "pps",
                    quiet="the datapath is the kernel's, or has no statistics of threads",
                ),
                Panel(
                    "timeseries",
                    "What the switch does most",
                    "Ten most frequent events of Open vSwitch's own counters (coverage/show): flow set-ups, "
                    "revalidation, memory, reconnections.",
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
                    "Above a second the revalidators fall behind.",
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
    description="Below tenants and paths: drops by reason in the kernel, processors, queues, connections.",
    variables=(Variable("node", "Node", "label_values(vigia_port_bytes_total, node)"),),
    links=(("vigia-openflow", "OpenFlow and Open vSwitch"),),
    rows=(
        Row(
            "Drops",
            (
                Panel(
                    "timeseries",
                    "Kernel drops by reason",
                    "What the kernel said when it freed a tenant's packet.",
                    (
                        Query(
                            f"sum by (node, reason) (rate(vigia_port_kernel_drops_total{{{_NODE}}}{_R}))",
                            "{{node}} {{reason}}",
                        ),
                    ),
                    "pps",
                    quiet="the kernel dropped nothing of tenants",
                ),
                Panel(
                    "timeseries",
                    "Drops at the ports by reason",
                    "The normalised list of reasons, whatever the data plane.",
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
                    "dropped: the backlog was full. squeezed: the softirq ran out of its budget.",
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
                    "softirq is packet work; steal is another guest's.",
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
                    "Segments sent again by the host's own stack.",
                    (Query(f"rate(node_netstat_Tcp_RetransSegs{_R})", "{{instance}}"),),
                    "pps",
                ),
                Panel(
                    "timeseries",
                    "Connection tracking",
                    "Entries of the table and its size; a full table drops new connections.",
                    (
                        Query("node_nf_conntrack_entries", "{{instance}} entries"),
                        Query("node_nf_conntrack_entries_limit", "{{instance}} size"),
                    ),
                    "short",
                    quiet="connection tracking is not loaded",
                ),
                Panel(
                    "timeseries",
                    "Queueing disciplines",
                    "Packets that the host's own queues dropped, by device and kind.",
                    (
                        Query(
                            f"sum by (node, device, kind) (rate(vigia_qdisc_drops_total{{{_NODE}}}{_R}))",
                            "{{node}} {{device}} {{kind}}",
                        ),
                    ),
                    "pps",
                    quiet="no device has a queueing discipline that drops",
                ),
                Panel(
                    "timeseries",
                    "UDP receive buffer errors",
                    "Datagrams that arrived and found the socket's buffer full.",
                    (Query(f"rate(node_netstat_Udp_RcvbufErrors{_R})", "{{instance}}"),),
                    "pps",
                ),
            ),
        ),
    ),
)
