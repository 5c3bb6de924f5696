"""Which configuration is better, live."""

from __future__ import annotations

from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, bits, or_none

__all__ = ["CONFIGURATIONS", "METRICS", "VARIABLES", "best_paths"]

_ON = 'metric=~"$metric",placement=~"$placement",probe=~"$probe"'
_CELL = "metric, placement, machines, probe"
_PAIR = f"{_CELL}, a, b"
VARIABLES = (
    Variable("metric", "Metric", "label_values(vigia_compare_verdict, metric)"),
    Variable("placement", "Placement", "label_values(vigia_compare_verdict, placement)"),
    Variable("probe", "Probe", "label_values(vigia_compare_verdict, probe)"),
)


_PATHS = "/d/vigia-path?${datasource:queryparam}&var-path=${__data.fields.path}&${__url_time_range}"

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
        for part, words in (("", "median"), ("ci_lower_", "from"), ("ci_upper_", "to"))
    )


_BOUNDED = " > -Inf < +Inf"
"""Lets pass what is known: a limit is infinite until there is evidence for one."""

_OPEN = "no limit yet"


def _interval(metric: str, only: str = "") -> tuple[Query, ...]:
    """What a has above b: the estimate, and the interval that holds at all times."""
    return tuple(
        Query(f"vigia_compare_{part}_{metric}{{{_ON}}}{_BOUNDED}{only}", words)
        for part, words in (("shift", "a minus b"), ("ci_lower", "from"), ("ci_upper", "to"))
    )


_CONTEST = f'and on ({_PAIR}) vigia_compare_verdict{{kind="contest"}}'
_WINNER = f"topk by ({_CELL}, path) (1, vigia_compare_winner{{{_ON}}})"


_SAID = f"on ({_PAIR}) group_left (kind, verdict, note) topk by ({_PAIR}) (1, vigia_compare_verdict{{{_ON}}})"
"""Kind, verdict and note of a pair; of one replica, since all say the same."""


def _of_path(pairs: str) -> str:
    """What is known of pairs that could be chosen between, under the name of either path."""
    either = (f'label_replace({pairs} {_CONTEST}, "path", "$1", "{end}", "(.*)")' for end in "ab")
    return " or ".join(either)


_SHARED = f"on ({_CELL}) group_left () "


def best_paths(only: str = "") -> tuple[Query, Query]:
    """Return the verdict on every metric, with the name of the path, and how far the evidence for it is."""
    won, tied = (
        f'topk by ({_CELL}, path) (1, vigia_compare_winner{{{only}tie="{tie}"}})' for tie in ("false", "true")
    )
    best = (
        f"({won} or 2 * {tied}"
        f' or label_replace(0 * (vigia_compare_decided{{{only}}} == 0), "path", "not known yet", "", ""))'
    )
    progress = f"0 * {best} + {_SHARED}max by ({_CELL}) (vigia_compare_progress_ratio{{{only}}})"
    words = (("0", "not known yet", "text"), ("1", "best", "blue"), ("2", "equally good", "text"))
    return (
        Query(best, "verdict", words=words),
        Query(progress, "progress", unit="percentunit", decimals=0),
    )


_RATIO = "exp(abs(ln({} > 0)))"


def _of_winner(value: str, how: str) -> str:
    """What a winner has beside each other path, brought to one row."""
    return f"{how} by ({_CELL}, path) ({_of_path(value)}) * on ({_CELL}, path) group_left (note) {_WINNER}"


_UPPER = f"abs(vigia_compare_ci_upper_seconds{{{_ON}}})"
_SURELY = f"(abs(vigia_compare_ci_lower_seconds{{{_ON}}}) <= {_UPPER} or {_UPPER})"
"""The limit of a shift's interval that is nearer to none."""

METRICS = {
    "rtt": "round trip",
    "rtt_p99": "p99 round trip",
    "tcp_throughput": "TCP throughput",
    "udp_throughput": "UDP throughput",
    "tcp_rtt": "TCP round trip",
    "udp_jitter": "UDP jitter",
}
"""What metrics are called; others as their label."""

NOTES = {"": "none"}
"""What a note says where there is none."""

_NOTE = (
    "Note: what the two paths differ in besides, so that a verdict may be about that: one is measured in the kernel and one in "
    "user space, or between other hosts."
)

_VERDICTS = (
    Panel(
        "table",
        "Which path is best",
        "One row per metric, class of probes, placement and number of machines. Ahead: how much worse the next path is, "
        "2 is twice, and by how much time; at least: the near limit of the interval that holds at all times. Progress: how much "
        f"of the evidence is there that a verdict takes. Since: when the first of its verdicts was found. {_NOTE}",
        (
            *best_paths(f"{_ON},"),
            Query(
                _of_winner(_RATIO.format(f"vigia_compare_effect_ratio{{{_ON}}}"), "min"),
                "ahead, times",
                decimals=2,
            ),
            Query(_of_winner(f"abs(vigia_compare_shift_seconds{{{_ON}}})", "min"), "ahead by", unit="s"),
            Query(_of_winner(_SURELY, "min"), "at least", unit="s"),
            Query(
                _of_winner(f"1000 * vigia_compare_verdict_since_timestamp_seconds{{{_ON}}}", "min"),
                "since",
                unit="dateTimeFromNow",
            ),
        ),
        "none",
        width=24,
        height=12,
        columns=("metric", "path", "probe", "placement", "machines", "note"),
        filters=False,
        names={"path": "best path"},
        order="progress",
        missing="not known",
        texts={"metric": METRICS, "note": NOTES},
        drill="/d/vigia-comparison?${datasource:queryparam}&var-metric=${__value.raw}&${__url_time_range}",
    ),
    Panel(
        "stat",
        "Evaluations",
        "Of the comparison: failed, if Prometheus did not answer the last one; then what is below is old.",
        (Query("min(vigia_compare_prometheus_up)", "last"),),
        "none",
        width=8,
        height=4,
        words=(("1", "works", "text"), ("0", "FAILED", "orange")),
    ),
    Panel(
        "stat",
        "Age of the verdicts",
        "Time since the last evaluation; orange from 300: several were missed.",
        (Query("time() - max(vigia_compare_last_evaluation_timestamp_seconds)", "age"),),
        "s",
        width=8,
        height=4,
        bounds=((300, "orange"),),
    ),
    Panel(
        "stat",
        "Decided",
        "Of all metrics, classes of probes, placements and numbers of machines.",
        (
            Query(f"sum(vigia_compare_decided{{{_ON}}})", "decided"),
            Query(f"count(vigia_compare_decided{{{_ON}}})", "of"),
        ),
        "short",
        width=8,
        height=4,
    ),
)

_DELAYS = tuple(
    (f'vigia_compare_median_seconds{{metric="{metric}",placement=~"$placement",probe=~"$probe"}}', words)
    for metric, words in (("rtt", "median"), ("rtt_p99", "p99"), ("jitter", "jitter"))
)
_BULK = 'vigia_compare_median_bytes_per_second{placement=~"$placement"}'
_HEAT = ((1.25, "light-yellow"), (2, "semi-dark-orange"), (10, "semi-dark-purple"))
_HEAT_WORDS = "light-yellow from 1.25, semi-dark-orange from 2, semi-dark-purple from 10"


def _role(expression: str) -> str:
    """Say which paths compete, and which is the underlay that they are measured against; others are neither."""
    ranked = "on (path, placement) vigia_compare_rank"
    beneath = 'on (path, placement) label_replace(vigia_compare_verdict{kind="reference"}, "path", "$1", "b", "(.*)")'
    roles = (
        (f"{expression} and {ranked}", "competes"),
        (f"{expression} and {beneath}", "reference"),
        (f"{expression} unless {ranked} unless {beneath}", "not ranked"),
    )
    return " or ".join(f'label_replace({found}, "role", "{role}", "", "")' for found, role in roles)


_CLASS = "placement, machines, probe"


def _over_best(expression: str) -> str:
    """How many times as much as the best that competes in the same class of probes."""
    best = f"min by ({_CLASS}) ({expression} and on (path, placement) vigia_compare_rank)"
    return f"{expression} / on ({_CLASS}) group_left () {best}"


def _below_best(expression: str) -> str:
    """How many times less than the best that competes in the same class of probes."""
    best = f"max by ({_CLASS}) ({expression} and on (path, placement) vigia_compare_rank)"
    return f"1 / ({expression} / on ({_CLASS}) group_left () {best})"


_ENDS = f"path, {_CLASS}"
_PROBED = 'metric=~"rtt|rtt_p99|jitter|loss",placement=~"$placement",probe=~"$probe"'

_TABLES = (
    Panel(
        "table",
        "Delays, as a multiple of the best",
        f"Medians of the comparison over the best that competes; {_HEAT_WORDS}. The underlay is the reference, not a contestant: "
        "it is below 1.",
        tuple(Query(_role(_over_best(e)), words, bounds=_HEAT, decimals=2) for e, words in _DELAYS),
        "none",
        width=24,
        height=12,
        columns=("role", "path", "probe", "placement", "machines"),
        cells=True,
        order="role",
        ascending=True,
        clicks={"path": _PATHS},
    ),
    Panel(
        "matrix",
        "Throughput, as a multiple of the best",
        f"Row: the path; column: the bulk test, UDP by the rate that was offered. The best over the path's: 2 is half as much; "
        f"{_HEAT_WORDS}.",
        (Query(f"max by (path, probe) ({_below_best(_BULK)})"),),
        "none",
        width=24,
        columns=("path", "probe"),
        bounds=_HEAT,
        cells=True,
        decimals=2,
        missing="not run",
        quiet="no bulk tests are configured",
    ),
    Panel(
        "matrix",
        "Throughput of each path",
        "Row: the path; column: the bulk test, UDP by the rate that was offered. Medians of the comparison.",
        (Query(bits(f"max by (path, probe) ({_BULK})")),),
        "bps",
        width=24,
        columns=("path", "probe"),
        missing="not run",
        quiet="no bulk tests are configured",
    ),
    Panel(
        "table",
        "What each path has: delays and loss",
        "Medians over the windows of the comparison, whether the path's own level is the usual one, and in how many metrics it "
        "beats all others that compete.",
        (
            *(Query(e, words) for e, words in _DELAYS),
            Query(
                'vigia_compare_median_ratio{metric="loss",placement=~"$placement",probe=~"$probe"}',
                "loss",
                unit="percentunit",
            ),
            Query(
                "max by (path, placement, machines, probe) ("
                '2 * (vigia_compare_level_change_ratio{verdict="worse"} > bool -1e9)'
                ' or (vigia_compare_level_change_ratio{verdict="better"} > bool -1e9)'
                ' or 0 * vigia_compare_windows{metric=~"rtt|rtt_p99|jitter|loss",placement=~"$placement",probe=~"$probe"})'
                ' and on (path, placement, machines, probe) vigia_compare_median_seconds{metric="rtt",placement=~"$placement",probe=~"$probe"}',
                "level",
                unit="none",
                words=(
                    ("0", "usual", "text"),
                    ("1", "better than usual", "blue"),
                    ("2", "WORSE than usual", "orange"),
                ),
            ),
            Query(
                or_none(
                    f'count by ({_ENDS}) (vigia_compare_winner{{{_PROBED},tie="false"}})',
                    f"count by ({_ENDS}) (vigia_compare_windows{{{_PROBED}}})",
                ),
                "wins",
                unit="short",
                decimals=0,
            ),
        ),
        "s",
        width=24,
        height=12,
        columns=("path", "probe", "placement", "machines"),
        order="p99",
        drill=_PATHS,
    ),
)

CONFIGURATIONS = Dashboard(
    uid="vigia-comparison",
    title="Configuration comparison",
    description="Which configuration is better, between the same hosts, and how sure that is. Verdicts hold at every look: "
    "the chance that any of them is ever wrong is one over the e-value that is needed.",
    variables=VARIABLES,
    links=(("vigia-path", "Path detail"), ("vigia-studies", "Studies")),
    rows=(
        Row("Verdicts", _VERDICTS),
        Row("Paths beside each other", _TABLES),
        Row(
            "Significance",
            (
                Panel(
                    "table",
                    "Every pair",
                    "The better path of each pair, equivalent, not known yet, or no common hosts: hosts and technology cannot be "
                    "told apart there. Kind contest: either could be used; reference: b is the underlay, which a costs above; "
                    f"element: a has one thing that b lacks. {_NOTE}",
                    (
                        Query(
                            f"clamp_max(vigia_compare_e_value{{{_ON}}}, 1e6) * {_SAID}",
                            "evidence, of 20",
                            decimals=1,
                        ),
                        Query(
                            f"1000 * vigia_compare_verdict_since_timestamp_seconds{{{_ON}}} * {_SAID}",
                            "since",
                            unit="dateTimeFromNow",
                        ),
                    ),
                    "none",
                    width=24,
                    height=12,
                    columns=("metric", "verdict", "a", "b", "kind", "probe", "placement", "machines", "note"),
                    texts={"metric": METRICS, "note": NOTES},
                    missing="not yet",
                    order="kind",
                    ascending=True,
                ),
                Panel(
                    "table",
                    "Evidence",
                    "e-values after correction for all pairs and metrics: 20 makes a verdict at a confidence of 95 %; 1 000 000 stands for "
                    "more. Minutes in which both were measured, pairs of hosts that they share, and since when evidence is "
                    "counted: it begins anew where a path is configured anew.",
                    (
                        Query(f"clamp_max(vigia_compare_e_value{{{_ON}}}, 1e6)", "e (differ)"),
                        Query(
                            f"clamp_max(vigia_compare_equivalence_e_value{{{_ON}}}, 1e6)", "e (equivalent)"
                        ),
                        Query(f"vigia_compare_samples{{{_ON}}}", "windows", decimals=0),
                        Query(f"vigia_compare_hosts{{{_ON}}}", "pairs of hosts", decimals=0),
                        Query(
                            f"1000 * vigia_compare_evidence_since_timestamp_seconds{{{_ON}}}",
                            "counted since",
                            unit="dateTimeFromNow",
                        ),
                    ),
                    "none",
                    width=24,
                    columns=("metric", "a", "b", "probe", "placement", "machines"),
                    texts={"metric": METRICS},
                    decimals=1,
                    order="e (differ)",
                ),
                Panel(
                    "timeseries",
                    "Evidence over time",
                    "e-values of the ten pairs with most of it that is not enough yet; the line is what a verdict takes. Not the "
                    "underlay's.",
                    (
                        Query(
                            f"topk(10, vigia_compare_e_value{{{_ON}}} < on () group_left () max(vigia_compare_e_value_needed) {_CONTEST})",
                            "{{metric}} {{a}} {{b}} {{probe}} {{placement}} {{machines}}",
                        ),
                        Query("max(vigia_compare_e_value_needed)", "needed"),
                    ),
                    "short",
                    width=24,
                ),
                Panel(
                    "table",
                    "Effect",
                    "Path a over path b with an interval that holds at all times; 1 is no difference.",
                    (
                        Query(f"vigia_compare_effect_ratio{{{_ON}}}{_BOUNDED}", "a over b"),
                        Query(f"vigia_compare_effect_ci_lower_ratio{{{_ON}}}{_BOUNDED}", "lower"),
                        Query(f"vigia_compare_effect_ci_upper_ratio{{{_ON}}}{_BOUNDED}", "upper"),
                    ),
                    "none",
                    width=24,
                    columns=("metric", "a", "b", "probe", "placement", "machines"),
                    missing=_OPEN,
                    texts={"metric": METRICS},
                    decimals=2,
                ),
                Panel(
                    "table",
                    "Shift of delays",
                    "Path a minus path b, with an interval that holds at all times.",
                    _interval("seconds", f" {_CONTEST}"),
                    "s",
                    width=24,
                    columns=("metric", "a", "b", "probe", "placement", "machines"),
                    missing=_OPEN,
                    texts={"metric": METRICS},
                ),
                Panel(
                    "table",
                    "Above the underlay",
                    "What a path has above the underlay, between the same hosts: a minus b, with an interval that holds at all "
                    "times.",
                    _interval("seconds", f' and on ({_PAIR}) vigia_compare_verdict{{kind="reference"}}'),
                    "s",
                    width=24,
                    columns=("metric", "a", "b", "probe", "placement", "machines"),
                    missing=_OPEN,
                    texts={"metric": METRICS},
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
                    width=24,
                    columns=("metric", "path", "probe", "placement", "machines"),
                    texts={"metric": METRICS},
                ),
                Panel(
                    "table",
                    "Loss",
                    "Median over the windows with its exact interval.",
                    _whiskers("ratio"),
                    "percentunit",
                    width=24,
                    columns=("metric", "path", "probe", "placement", "machines"),
                    texts={"metric": METRICS},
                ),
                Panel(
                    "timeseries",
                    "Median round trip",
                    "Medians of the comparison over time, on a logarithmic axis.",
                    (
                        Query(
                            f'vigia_compare_median_seconds{{{_ON},metric="rtt"}}',
                            "{{path}} {{probe}} {{placement}} {{machines}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Throughput",
                    "Median throughput of the bulk tests, TCP and UDP.",
                    (
                        Query(
                            bits(f"vigia_compare_median_bytes_per_second{{{_ON}}}"),
                            "{{metric}} {{path}} {{probe}} {{placement}} {{machines}}",
                        ),
                    ),
                    "bps",
                    width=24,
                    quiet="no bulk tests are configured",
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
                    "Seconds of a core, of all hosts, for each gigabit that tenants send: compare periods in which one path carried the "
                    "traffic. Below 1 Mbit/s nothing is shown: it would be the cost of being idle.",
                    (
                        Query(
                            'sum(rate(node_cpu_seconds_total{mode=~"softirq|system|user"}[$__rate_interval]))'
                            ' / (8e-9 * sum(rate(vigia_port_bytes_total{direction="from_tenant"}[$__rate_interval])) > 0.001)',
                            "core seconds per gigabit",
                        ),
                    ),
                    "none",
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
                    width=24,
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
