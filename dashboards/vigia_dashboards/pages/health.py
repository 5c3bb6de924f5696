"""Whether Vigia itself works, and what it costs."""

from __future__ import annotations

from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable

__all__ = ["SELF"]

_R = "[$__rate_interval]"
_ON = 'job=~"$job",instance=~"$instance"'

SELF = Dashboard(
    uid="vigia-self",
    title="Self health",
    description="Every program of Vigia: up, fresh, on time, on which version, at what cost.",
    variables=(
        Variable("job", "Job", "label_values(up, job)"),
        Variable("instance", "Instance", "label_values(up, instance)"),
    ),
    links=(("vigia-fleet", "Fleet matrix"),),
    rows=(
        Row(
            "Up",
            (
                Panel(
                    "state",
                    "Scraped",
                    "Whether Prometheus reached the program.",
                    (Query(f"up{{{_ON}}}", "{{job}} {{node}} {{instance}}"),),
                    "none",
                    width=24,
                    height=9,
                    words=(("1", "up", "blue"), ("0", "down", "orange")),
                ),
                Panel(
                    "table",
                    "Versions",
                    "Rows that differ within a job are a rolling upgrade, or a forgotten node.",
                    tuple(
                        Query(f"count by (job, version, revision) (vigia_{part}_build_info)", part)
                        for part in ("probe", "exporter", "enforcer", "agent", "compare")
                    ),
                    "short",
                    columns=("job", "version", "revision"),
                ),
                Panel(
                    "table",
                    "Last reload",
                    "1 if the last load of the configuration succeeded.",
                    tuple(
                        Query(f"min by (job, node) (vigia_{part}_config_last_reload_successful)", part)
                        for part in ("probe", "exporter", "enforcer", "agent", "compare")
                    ),
                    "none",
                    columns=("job", "node"),
                    words=(("1", "ok", "blue"), ("0", "FAILED", "orange")),
                ),
            ),
        ),
        Row(
            "On time",
            (
                Panel(
                    "timeseries",
                    "Probe schedule lag, p99",
                    "Actual minus intended send time; a large lag means that the host starves the probe.",
                    (
                        Query(
                            f"histogram_quantile(0.99, sum by (node) (rate(vigia_probe_schedule_lag_seconds{{{_ON}}}{_R})))",
                            "{{node}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Probes skipped",
                    "Not sent because the sender was late by a whole interval.",
                    (Query(f"sum by (node) (rate(vigia_probe_skipped_total{{{_ON}}}{_R}))", "{{node}}"),),
                    "pps",
                ),
                Panel(
                    "timeseries",
                    "Sources of time stamps",
                    "hardware and kernel can be trusted on a busy host; user cannot.",
                    (
                        Query(
                            f"sum by (point, source) (rate(vigia_probe_timestamps_total{{{_ON}}}{_R}))",
                            "{{point}} {{source}}",
                        ),
                    ),
                    "ops",
                ),
                Panel(
                    "timeseries",
                    "Scrape duration",
                    "How long each program takes to answer Prometheus.",
                    (Query(f"scrape_duration_seconds{{{_ON}}}", "{{job}} {{node}}"),),
                    "s",
                ),
                Panel(
                    "state",
                    "Collectors",
                    "A collector that fails has no series rather than zeros.",
                    (Query(f"vigia_exporter_collector_success{{{_ON}}}", "{{collector}} {{node}}"),),
                    "none",
                    words=(("1", "ok", "blue"), ("0", "failed", "orange")),
                ),
                Panel(
                    "timeseries",
                    "Age of what sources hold",
                    "Grows while a source fails.",
                    (
                        Query(
                            f"max by (source, node) (vigia_exporter_source_age_seconds{{{_ON}}})",
                            "{{source}} {{node}}",
                        ),
                    ),
                    "s",
                ),
            ),
        ),
        Row(
            "Can the measurement be trusted",
            (
                Panel(
                    "timeseries",
                    "Clocks",
                    "How far each host's clock may be off, as the probe knows it; one-way delays need microseconds.",
                    (
                        Query(
                            f"max by (node, source) (vigia_probe_host_clock_error_bound_seconds{{{_ON}}})",
                            "{{node}} {{source}}",
                        ),
                    ),
                    "s",
                    quiet="no host knows the error of its clock",
                ),
                Panel(
                    "state",
                    "Hosts fit to measure",
                    "By reason: starved hosts and hosts that were stopped measure themselves, not the network.",
                    (
                        Query(
                            f"max by (node, reason) (vigia_probe_host_unfit{{{_ON}}})", "{{node}} {{reason}}"
                        ),
                    ),
                    "none",
                    words=(("0", "fit", "blue"), ("1", "UNFIT", "orange")),
                ),
                Panel(
                    "timeseries",
                    "Events lost on the way from the kernel",
                    "Reports of dropped packets that found no room; drops by reason are then too few.",
                    (
                        Query(
                            f"sum by (node) (rate(vigia_exporter_kernel_drops_lost_total{{{_ON}}}{_R}))",
                            "{{node}}",
                        ),
                    ),
                    "cps",
                    quiet="the exporter has no kernel drop events",
                ),
                Panel(
                    "timeseries",
                    "What measuring sends",
                    "Probes per second from each node: what the network carries for being watched.",
                    (Query(f"sum by (node) (rate(vigia_probe_sent_total{{{_ON}}}{_R}))", "{{node}}"),),
                    "pps",
                ),
            ),
        ),
        Row(
            "Cost",
            (
                Panel(
                    "timeseries",
                    "Processor time of each program",
                    "Cores in use: 1 is one whole core.",
                    (Query(f"rate(process_cpu_seconds_total{{{_ON}}}{_R})", "{{job}} {{node}}"),),
                    "none",
                ),
                Panel(
                    "timeseries",
                    "Memory of each program",
                    "Resident memory, as the program itself exports it.",
                    (Query(f"process_resident_memory_bytes{{{_ON}}}", "{{job}} {{node}}"),),
                    "bytes",
                ),
                Panel(
                    "timeseries",
                    "Series per job",
                    "What each job stores in Prometheus.",
                    (Query(f"sum by (job) (scrape_samples_scraped{{{_ON}}})", "{{job}}"),),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "Kept out by series limits",
                    "Samples that a limit kept out of a scrape.",
                    (
                        Query(
                            f"sum by (collector, node) (rate(vigia_exporter_series_limited_total{{{_ON}}}{_R}))",
                            "{{collector}} {{node}}",
                        ),
                    ),
                    "cps",
                    quiet="no limit was reached",
                ),
                Panel(
                    "timeseries",
                    "Ports of the enforcer",
                    "failed: limits cannot be set there.",
                    (Query("sum by (state, node) (vigia_enforcer_ports)", "{{state}} {{node}}"),),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "Comparison",
                    "Evaluations per second, by result.",
                    (Query(f"sum by (result) (rate(vigia_compare_evaluations_total{_R}))", "{{result}}"),),
                    "cps",
                ),
            ),
        ),
    ),
)
