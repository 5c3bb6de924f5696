"""Which configuration is better, live; the published studies, live."""

from __future__ import annotations

from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, bits

__all__ = ["CONFIGURATIONS", "STUDIES"]

_ON = 'metric=~"$metric",placement=~"$placement",probe=~"$probe"'
_PAIR = "metric, placement, probe, a, b"

VARIABLES = (
    Variable("metric", "Metric", "label_values(vigia_compare_verdict, metric)"),
    Variable("placement", "Placement", "label_values(vigia_compare_verdict, placement)"),
    Variable("probe", "Probe", "label_values(vigia_compare_verdict, probe)"),
)


_BOUNDS = (
    ("0.00002", "20 µs"),
    ("0.00005", "50 µs"),
    ("0.0001", "100 µs"),
    ("0.0002", "200 µs"),
    ("0.0005", "500 µs"),
    ("0.001", "1 ms"),
    ("0.002", "2 ms"),
    ("0.005", "5 ms"),
    ("0.01", "10 ms"),
    ("0.1", "100 ms"),
)


def _whiskers(unit: str, only: str = _ON) -> tuple[Query, ...]:
    return tuple(
        Query(f"vigia_compare_median_{part}{unit}{{{only}}}", words)
        for part, words in (("ci_lower_", "lower"), ("", "median"), ("ci_upper_", "upper"))
    )


CONFIGURATIONS = Dashboard(
    uid="vigia-comparison",
    title="Configuration comparison",
    description="Which configuration is better, between the same hosts, and how sure that is. Verdicts hold at every look: "
    "the chance that any of them is ever wrong is one over the e-value that is needed.",
    variables=VARIABLES,
    links=(("vigia-path", "Path detail"), ("vigia-studies", "Studies")),
    rows=(
        Row(
            "Verdicts",
            (
                Panel(
                    "table",
                    "Winners",
                    "One row per metric, placement, number of machines and probe class; with tie=true the paths are equivalent "
                    "and better than the rest. Decided is no while that is not known yet.",
                    (
                        Query(f"vigia_compare_winner{{{_ON}}}", "best"),
                        Query(f"vigia_compare_decided{{{_ON}}}", "decided"),
                    ),
                    "none",
                    columns=("metric", "placement", "machines", "probe", "path", "tie"),
                    words=(("1", "yes", "text"), ("0", "no", "text")),
                ),
                Panel(
                    "table",
                    "Ranking",
                    "One more than the number of paths that are known to be better; what is not known to differ shares a rank.",
                    (Query(f"vigia_compare_rank{{{_ON}}}", "rank"),),
                    "none",
                    columns=("metric", "placement", "machines", "probe", "path"),
                ),
                Panel(
                    "table",
                    "Progress towards a winner",
                    "Evidence of the pair that has the least of it, as a share of what a verdict takes.",
                    (Query(f"vigia_compare_progress_ratio{{{_ON}}}", "progress"),),
                    "percentunit",
                    columns=("metric", "placement", "machines", "probe"),
                ),
                Panel(
                    "table",
                    "Every pair",
                    "The better path of each pair, equivalent, not known yet, or no common hosts: hosts and technology cannot be "
                    "told apart there. Kind contest: either could be used; reference: b is the underlay, which a costs above; "
                    "element: a has one thing that b lacks.",
                    (Query(f"vigia_compare_verdict{{{_ON}}}", "current"),),
                    "none",
                    columns=("metric", "placement", "machines", "probe", "a", "b", "kind", "verdict"),
                    words=(("1", "yes", "text"),),
                ),
                Panel(
                    "stat",
                    "Wins per path",
                    "Number of metrics and probe classes in which each path beats all others.",
                    (Query(f'count by (path) (vigia_compare_winner{{{_ON},tie="false"}})', "{{path}}"),),
                    "short",
                    width=24,
                    height=4,
                    quiet="no path beats all others",
                ),
            ),
        ),
        Row(
            "Significance",
            (
                Panel(
                    "table",
                    "Evidence",
                    "e-values after correction for all pairs and metrics: 20 makes a verdict at a confidence of 95 %; p is one over "
                    "e; minutes in which both were measured, and pairs of hosts that they share.",
                    (
                        Query(f"vigia_compare_e_value{{{_ON}}}", "e (differ)"),
                        Query(f"vigia_compare_equivalence_e_value{{{_ON}}}", "e (equivalent)"),
                        Query(f"vigia_compare_p_value{{{_ON}}}", "p"),
                        Query(f"vigia_compare_samples{{{_ON}}}", "windows"),
                        Query(f"vigia_compare_hosts{{{_ON}}}", "pairs of hosts"),
                    ),
                    "none",
                    width=24,
                    columns=("metric", "placement", "machines", "probe", "a", "b"),
                    decimals=3,
                ),
                Panel(
                    "timeseries",
                    "Evidence over time",
                    "e-values of the pairs that are not the underlay's; the line is what a verdict takes.",
                    (
                        Query(
                            f"vigia_compare_e_value{{{_ON}}} and on (metric, placement, machines, probe, a, b) "
                            'vigia_compare_verdict{kind="contest"}',
                            "{{metric}} {{a}} {{b}} {{probe}}",
                        ),
                        Query("vigia_compare_e_value_needed", "needed"),
                    ),
                    "short",
                ),
                Panel(
                    "table",
                    "Effect",
                    "Path a over path b with an interval that holds at all times; 1 is no difference.",
                    (
                        Query(f"vigia_compare_effect_ratio{{{_ON}}}", "a over b"),
                        Query(f"vigia_compare_effect_ci_lower_ratio{{{_ON}}}", "lower"),
                        Query(f"vigia_compare_effect_ci_upper_ratio{{{_ON}}}", "upper"),
                    ),
                    "none",
                    columns=("metric", "placement", "machines", "probe", "a", "b"),
                    decimals=3,
                ),
                Panel(
                    "table",
                    "Shift of delays",
                    "Path a minus path b, with an interval that holds at all times.",
                    tuple(
                        Query(f"vigia_compare_{part}_seconds{{{_ON}}}", words)
                        for part, words in (("shift", "shift"), ("ci_lower", "lower"), ("ci_upper", "upper"))
                    ),
                    "s",
                    columns=("metric", "placement", "machines", "probe", "a", "b"),
                ),
                Panel(
                    "table",
                    "Above the underlay",
                    "What a path has above the underlay, between the same hosts: a minus b, with an interval that holds at all "
                    "times.",
                    tuple(
                        Query(
                            f"vigia_compare_{part}_seconds{{{_ON}}} and on (metric, placement, machines, probe, a, b) "
                            'vigia_compare_verdict{kind="reference"}',
                            words,
                        )
                        for part, words in (("shift", "shift"), ("ci_lower", "lower"), ("ci_upper", "upper"))
                    ),
                    "s",
                    columns=("metric", "placement", "machines", "probe", "a", "b"),
                ),
                Panel(
                    "table",
                    "Verdicts hold since",
                    "When the verdict on a pair was found, and since when evidence on it is counted: it begins anew where a path "
                    "is configured anew.",
                    (
                        Query(f"1000 * vigia_compare_verdict_since_timestamp_seconds{{{_ON}}}", "verdict"),
                        Query(f"1000 * vigia_compare_evidence_since_timestamp_seconds{{{_ON}}}", "evidence"),
                    ),
                    "dateTimeFromNow",
                    columns=("metric", "placement", "machines", "probe", "a", "b"),
                ),
                Panel(
                    "table",
                    "Changes of level",
                    "Paths whose own level is not the usual one any more: over the usual one, of loss minus it.",
                    (Query(f"vigia_compare_level_change_ratio{{{_ON}}}", "change"),),
                    "none",
                    columns=("metric", "placement", "probe", "path", "src", "dst", "verdict"),
                    decimals=3,
                    quiet="no path's level has changed",
                ),
            ),
        ),
        Row(
            "Results of each path",
            (
                Panel(
                    "table",
                    "Delays and jitter",
                    "Median over the windows with its exact interval.",
                    _whiskers("seconds"),
                    "s",
                    columns=("metric", "placement", "machines", "probe", "path"),
                ),
                Panel(
                    "table",
                    "Loss",
                    "Median over the windows with its exact interval.",
                    _whiskers("ratio"),
                    "percentunit",
                    columns=("metric", "placement", "machines", "probe", "path"),
                ),
                Panel(
                    "timeseries",
                    "Median round trip",
                    "Medians of the comparison over time; the verdict changes where lines cross.",
                    (Query(f'vigia_compare_median_seconds{{{_ON},metric="rtt"}}', "{{path}} {{probe}}"),),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Throughput",
                    "Median throughput of the bulk tests, TCP and UDP.",
                    (
                        Query(
                            bits(f"vigia_compare_median_bytes_per_second{{{_ON}}}"),
                            "{{metric}} {{path}} {{probe}}",
                        ),
                    ),
                    "bps",
                    quiet="no bulk tests are configured",
                ),
                Panel(
                    "table",
                    "Ratio to the best median",
                    "Median round trip divided by the smallest of its class; 1 is the best.",
                    (
                        Query(
                            'vigia_compare_median_seconds{metric="rtt",placement=~"$placement",probe=~"$probe"}'
                            " / on (metric, placement, machines, probe) group_left () "
                            'min by (metric, placement, machines, probe) (vigia_compare_median_seconds{metric="rtt"})',
                            "ratio",
                        ),
                    ),
                    "none",
                    columns=("placement", "probe", "path"),
                    decimals=2,
                ),
                Panel(
                    "timeseries",
                    "TCP connection time",
                    "Median time of the TCP handshake on each path.",
                    (
                        Query(
                            "histogram_quantile(0.5, sum by (path) (rate(vigia_probe_rtt_seconds"
                            '{tenant="_infra",probe=~"tcp.*"}[$__rate_interval])))',
                            "{{path}}",
                        ),
                    ),
                    "s",
                    quiet="no probe class connects by TCP",
                ),
                Panel(
                    "timeseries",
                    "CPU time per gigabit",
                    "CPU time of all hosts for each gigabit that tenants send: compare periods in which one path carried the traffic.",
                    (
                        Query(
                            'sum(rate(node_cpu_seconds_total{mode=~"softirq|system|user"}[$__rate_interval]))'
                            ' / (8e-9 * sum(rate(vigia_port_bytes_total{direction="from_tenant"}[$__rate_interval])))',
                            "core seconds per gigabit",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "table",
                    "Paths compared",
                    "Attributes of every path, as configured in the probes.",
                    (
                        Query(
                            "max by (path, dataplane, encap, mode, security, layer, placement) (vigia_path_info)",
                            "configured",
                        ),
                    ),
                    "none",
                    columns=("path", "dataplane", "encap", "mode", "security", "layer", "placement"),
                    words=(("1", "yes", "text"),),
                ),
            ),
        ),
        Row(
            "Distribution",
            (
                Panel(
                    "table",
                    "Round trips within a bound (CDF)",
                    "Share of the round trips of the last minutes within each bound: in a row from left to right; the path that "
                    "reaches 100 % first is the fastest.",
                    tuple(
                        Query(
                            f"histogram_fraction(0, {bound}, sum by (path, probe) (rate(vigia_probe_rtt_seconds"
                            '{tenant="_infra",probe=~"$probe"}[$__rate_interval])))',
                            name,
                        )
                        for bound, name in _BOUNDS
                    ),
                    "percentunit",
                    width=24,
                    columns=("path", "probe"),
                    decimals=1,
                ),
            ),
        ),
    ),
)

_CAMPAIGN = "no campaign runs with --textfile on a node that Prometheus scrapes"

STUDIES = Dashboard(
    uid="vigia-studies",
    title="Campaign and studies",
    description="Figures of the published studies, live: cost and processing rate of elements, OpenFlow compared with "
    "normal mode. Results of campaigns are in the reports of vigia campaign.",
    variables=VARIABLES[1:],
    links=(("vigia-comparison", "Configurations"),),
    rows=(
        Row(
            "Campaign",
            (
                Panel(
                    "timeseries",
                    "Repetitions",
                    "Planned, done and failed; the campaign is over when done and failed add up to planned.",
                    (
                        Query(
                            "sum by (campaign, study, state) (vigia_campaign_repetitions)",
                            "{{campaign}} {{state}}",
                        ),
                    ),
                    "short",
                    quiet=_CAMPAIGN,
                ),
                Panel(
                    "table",
                    "Remaining time",
                    "Estimated from the repetitions so far; duration of the last repetition, and time since it ended: if that "
                    "is much longer than a repetition takes, the campaign has stopped.",
                    (
                        Query("max by (campaign, study) (vigia_campaign_remaining_seconds)", "remaining"),
                        Query(
                            "max by (campaign, study) (vigia_campaign_last_repetition_duration_seconds)",
                            "last took",
                        ),
                        Query(
                            "time() - max by (campaign, study) (vigia_campaign_last_repetition_timestamp_seconds)",
                            "since the last",
                        ),
                    ),
                    "s",
                    columns=("campaign", "study"),
                    quiet=_CAMPAIGN,
                ),
            ),
        ),
        Row(
            "Elements (study E3)",
            (
                Panel(
                    "table",
                    "Cost of one element",
                    "Half the shift of the round trip between the path with the element and the one without it; the interval holds at all times.",
                    (
                        Query(
                            'vigia_compare_element_cost_seconds{placement=~"$placement",probe=~"$probe"}',
                            "cost",
                        ),
                        Query(
                            'vigia_compare_element_cost_ci_lower_seconds{placement=~"$placement",probe=~"$probe"}',
                            "lower",
                        ),
                        Query(
                            'vigia_compare_element_cost_ci_upper_seconds{placement=~"$placement",probe=~"$probe"}',
                            "upper",
                        ),
                    ),
                    "s",
                    columns=("element", "path", "without", "placement", "probe"),
                    quiet="no two paths differ in one element within a placement",
                ),
                Panel(
                    "table",
                    "Processing rate",
                    "One over the cost; absent unless the interval of the cost lies above zero.",
                    (
                        Query(
                            'vigia_compare_element_rate_packets_per_second{placement=~"$placement",probe=~"$probe"}',
                            "rate",
                        ),
                    ),
                    "pps",
                    columns=("element", "path", "without", "placement", "probe"),
                    quiet="no interval of a cost lies above zero",
                ),
            ),
        ),
        Row(
            "OpenFlow (study E2)",
            (
                Panel(
                    "table",
                    "Speed-up",
                    "Round trip in normal mode over that in OpenFlow mode; below 1 OpenFlow is slower.",
                    (
                        Query(
                            'vigia_compare_speedup_ratio{placement=~"$placement",probe=~"$probe"}', "speed-up"
                        ),
                        Query(
                            'vigia_compare_speedup_ci_lower_ratio{placement=~"$placement",probe=~"$probe"}',
                            "lower",
                        ),
                        Query(
                            'vigia_compare_speedup_ci_upper_ratio{placement=~"$placement",probe=~"$probe"}',
                            "upper",
                        ),
                    ),
                    "none",
                    width=24,
                    columns=("path", "baseline", "placement", "probe"),
                    decimals=3,
                    quiet="no path runs in OpenFlow mode beside one in normal mode",
                ),
            ),
        ),
        Row(
            "The comparison itself",
            (
                Panel(
                    "timeseries",
                    "Duration of an evaluation",
                    "Queries and statistics of vigia-compare together.",
                    (Query("vigia_compare_evaluation_duration_seconds", "evaluation"),),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Windows per comparison",
                    "Minutes in which both paths were measured, or pairs of bulk runs.",
                    (
                        Query(
                            'min by (metric, probe) (vigia_compare_samples{placement=~"$placement",probe=~"$probe"})',
                            "{{metric}} {{probe}}",
                        ),
                    ),
                    "short",
                ),
            ),
        ),
    ),
)
