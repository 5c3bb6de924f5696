"""Whether Vigia itself works, and what it costs."""

from __future__ import annotations

from vigia_dashboards.model import Dashboard, Panel, Query, Row, Unit, Variable, or_none, per_minute

__all__ = ["SELF"]

_R = "[$__rate_interval]"
_ON = 'job=~"$job",instance=~"$instance"'


def _every(expression: str) -> str:
    """Of every program: each has a metric of its own name."""
    return " or ".join(
        expression.format(part) for part in ("probe", "exporter", "enforcer", "agent", "compare")
    )


def _stat(title: str, description: str, expression: str, words: str, *, unit: Unit = "short") -> Panel:
    """Return a number of which none is normal."""
    bounds = ((1.0, "orange"),)
    return Panel(
        "stat",
        title,
        f"{description}; orange from 1.",
        (Query(expression, words),),
        unit,
        width=4,
        height=4,
        decimals=0,
        bounds=bounds,
    )


_NUMBERS = (
    _stat(
        "Programs down",
        "Targets whose last scrape failed",
        f"count(up{{{_ON}}} == 0) or 0 * max(up)",
        "down",
    ),
    _stat(
        "Bad settings",
        "Programs that rejected their configuration, and run with the one before",
        f"count({_every(f'vigia_{{}}_config_last_reload_successful{{{{{_ON}}}}} == 0')}) or 0 * max(up)",
        "rejected",
    ),
    _stat(
        "Failed collectors",
        "Collectors of vigia-exporter that fail, and export no series",
        f"sum(1 - vigia_exporter_collector_success{{{_ON}}})",
        "failed",
    ),
    _stat(
        "Unfit hosts",
        "Hosts without enough processor time: their delays are their own, not the network's",
        f"count(max by (node) (vigia_probe_host_unfit{{{_ON}}}) > 0) or 0 * max(vigia_probe_host_unfit{{{_ON}}})",
        "hosts",
    ),
    _stat(
        "Failed ports",
        "Ports at which the enforcer can set no limit",
        f'sum(vigia_enforcer_ports{{{_ON},state="failed"}})',
        "ports",
    ),
    _stat(
        "Skipped probes",
        "Probes a minute that were not sent because the sender was late by a whole interval",
        per_minute(
            or_none(
                f"sum(rate(vigia_probe_skipped_total{{{_ON}}}{_R}))",
                f"sum(rate(vigia_probe_sent_total{{{_ON}}}{_R}))",
            )
        ),
        "skipped",
        unit="cpm",
    ),
)

SELF = Dashboard(
    uid="vigia-self",
    title="Self health",
    description="Every program of Vigia: up, timeliness, version, and cost.",
    variables=(
        Variable("job", "Job", "label_values(up, job)"),
        Variable("instance", "Instance", "label_values(up, instance)"),
    ),
    links=(("vigia-fleet", "Fleet matrix"),),
    rows=(
        Row(
            "Up",
            (
                *_NUMBERS,
                Panel(
                    "state",
                    "Scraped",
                    "Whether the last scrape of the program succeeded.",
                    (Query(f"up{{{_ON}}}", "{{job}} {{instance}}"),),
                    "none",
                    width=24,
                    height=9,
                    words=(("1", "up", "blue"), ("0", "down", "orange")),
                ),
                Panel(
                    "table",
                    "Versions",
                    "Several versions within a job mean a rolling upgrade, or a node that was left out.",
                    (
                        Query(
                            _every("count by (job, version, revision) (vigia_{}_build_info)"),
                            "programs",
                            decimals=0,
                        ),
                    ),
                    "short",
                    columns=("job", "version", "revision"),
                ),
                Panel(
                    "table",
                    "Last reload",
                    "Whether the last load of the configuration succeeded.",
                    (
                        Query(
                            _every("min by (job, node) (vigia_{}_config_last_reload_successful)"),
                            "configuration",
                            words=(("1", "ok", "blue"), ("0", "FAILED", "orange")),
                        ),
                    ),
                    "none",
                    columns=("job", "node"),
                    texts={"node": {"": "of no node"}},
                ),
            ),
        ),
        Row(
            "Timeliness",
            (
                Panel(
                    "timeseries",
                    "Probe schedule lag, p99",
                    "Actual minus intended send time, over a minute; a large lag means that the probe does not get processor time.",
                    (
                        Query(
                            "node:vigia_probe_schedule_lag_seconds:p99_rate1m",
                            "{{node}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Probes skipped",
                    "Probes not sent because the sender was late by a whole interval.",
                    (
                        Query(
                            per_minute(
                                or_none(
                                    f"sum by (node) (rate(vigia_probe_skipped_total{{{_ON}}}{_R}))",
                                    f"sum by (node) (rate(vigia_probe_sent_total{{{_ON}}}{_R}))",
                                )
                            ),
                            "{{node}}",
                        ),
                    ),
                    "cpm",
                ),
                Panel(
                    "timeseries",
                    "Sources of timestamps",
                    "hardware and kernel timestamps are exact on a busy host, too; those of user space are not.",
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
                    "How long the slowest program of each job takes to answer Prometheus.",
                    (Query(f"max by (job) (scrape_duration_seconds{{{_ON}}})", "{{job}}"),),
                    "s",
                ),
                Panel(
                    "state",
                    "Collectors",
                    "On all chosen nodes together. A collector that fails exports no series.",
                    (
                        Query(
                            f"min by (collector) (vigia_exporter_collector_success{{{_ON}}})", "{{collector}}"
                        ),
                    ),
                    "none",
                    words=(("1", "ok", "blue"), ("0", "failed", "orange")),
                ),
                Panel(
                    "timeseries",
                    "Age of source data",
                    "Time since the data of a collector or source was read, on the worst of the chosen nodes; it grows while that fails.",
                    (
                        Query(
                            f"max by (source) (vigia_exporter_source_age_seconds{{{_ON}}})",
                            "{{source}}",
                        ),
                    ),
                    "s",
                ),
            ),
        ),
        Row(
            "Quality of the measurement",
            (
                Panel(
                    "timeseries",
                    "Clocks",
                    "Bound of the error of each host's clock, by source; one-way delays need microseconds.",
                    (
                        Query(
                            f"max by (node, source) (vigia_probe_host_clock_error_bound_seconds{{{_ON}}})",
                            "{{node}} {{source}}",
                        ),
                    ),
                    "s",
                    quiet="no host's clock follows an external source",
                ),
                Panel(
                    "state",
                    "Hosts fit to measure",
                    "By reason: without enough processor time, measured delays are the host's, not the network's.",
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
                    "Lost kernel drop events",
                    "Drops that found no room in the kernel's map: counts of drops by reason are too low by them.",
                    (
                        Query(
                            per_minute(
                                f"sum by (node) (rate(vigia_exporter_kernel_drops_lost_total{{{_ON}}}{_R}))"
                            ),
                            "{{node}}",
                        ),
                    ),
                    "cpm",
                    quiet="the collector kerneldrops is off, or the kernel cannot give reasons",
                ),
                Panel(
                    "timeseries",
                    "Probe traffic",
                    "Probes per second from each node, to targets with series of their own and to all pairs of a mesh.",
                    (
                        Query(f"sum by (node) (rate(vigia_probe_sent_total{{{_ON}}}{_R}))", "{{node}}"),
                        Query(
                            or_none(
                                f"sum by (node) (rate(vigia_probe_mesh_sent_total{{{_ON}}}{_R}))",
                                f"sum by (node) (rate(vigia_probe_sent_total{{{_ON}}}{_R}))",
                            ),
                            "{{node}}, pairs of a mesh",
                        ),
                    ),
                    "pps",
                ),
            ),
        ),
        Row(
            "Cost",
            (
                Panel(
                    "timeseries",
                    "CPU time of each program",
                    "Share of a core: 100 % is one.",
                    (Query(f"rate(process_cpu_seconds_total{{{_ON}}}{_R})", "{{job}} {{instance}}"),),
                    "percentunit",
                    width=24,
                ),
                Panel(
                    "timeseries",
                    "Memory of each program",
                    "Resident memory, as the program exports it.",
                    (Query(f"process_resident_memory_bytes{{{_ON}}}", "{{job}} {{instance}}"),),
                    "bytes",
                    width=24,
                ),
                Panel(
                    "timeseries",
                    "Series per job",
                    "Samples per scrape of each job.",
                    (Query(f"sum by (job) (scrape_samples_scraped{{{_ON}}})", "{{job}}"),),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "Samples kept out by series limits",
                    "Samples that a series limit kept out of scrapes.",
                    (
                        Query(
                            per_minute(
                                or_none(
                                    f"sum by (node) (rate(vigia_exporter_series_limited_total{{{_ON}}}{_R}))",
                                    f"max by (node) (vigia_exporter_collector_success{{{_ON}}})",
                                )
                            ),
                            "{{node}}",
                        ),
                    ),
                    "cpm",
                ),
                Panel(
                    "timeseries",
                    "Ports of the enforcer",
                    "Ports by state; no limit can be set at a port that is failed.",
                    (Query("sum by (state, node) (vigia_enforcer_ports)", "{{state}} {{node}}"),),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "Comparison",
                    "Evaluations, by result.",
                    (
                        Query(
                            per_minute(f"sum by (result) (rate(vigia_compare_evaluations_total{_R}))"),
                            "{{result}}",
                        ),
                    ),
                    "cpm",
                ),
            ),
        ),
    ),
)
