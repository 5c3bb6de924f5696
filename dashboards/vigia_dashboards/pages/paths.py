"""What paths give: the fleet, one path, objectives."""

from __future__ import annotations

from vigia_dashboards.grafana import LOSS_CLASSES
from vigia_dashboards.model import Dashboard, Panel, Query, Row, Variable, or_none, per_minute

__all__ = ["DETAIL", "FLEET", "OBJECTIVES", "explained", "moments"]

_ON = 'src=~"$src",dst=~"$dst",path=~"$path",tenant=~"$tenant",probe=~"$probe"'
_TARGET = "{{path}} {{tenant}} {{src}} to {{dst}} {{probe}}"
_KEY = "src, dst, path, tenant, probe"
_NETWORK = 'cause!~"send_error|local_overflow|reflector_overflow"'
_RTT = f"vigia_probe_rtt_seconds{{{_ON}}}"

VARIABLES = (
    Variable("src", "From", "label_values(vigia_probe_sent_total, src)"),
    Variable("dst", "To", "label_values(vigia_probe_sent_total, dst)"),
    Variable("path", "Path", "label_values(vigia_probe_sent_total, path)"),
    Variable("tenant", "Tenant", "label_values(vigia_probe_sent_total, tenant)"),
    Variable("probe", "Probe", "label_values(vigia_probe_sent_total, probe)"),
)

ONE = (
    Variable("path", "Path", "label_values(vigia_probe_sent_total, path)", single=True),
    *VARIABLES[:2],
    Variable("tenant", "Tenant", "label_values(vigia_probe_sent_total, tenant)"),
    Variable("probe", "Probe", 'label_values(vigia_probe_sent_total{path=~"$path"}, probe)', single=True),
)
"""Of a page on one path, which has its own classes of probes."""


def _quantile(q: float, by: str = _KEY, metric: str = _RTT) -> str:
    return f"histogram_quantile({q}, sum by ({by}) (rate({metric}[$__rate_interval])))"


def _loss(by: str) -> str:
    lost = f"sum by ({by}) (rate(vigia_probe_lost_total{{{_ON},{_NETWORK}}}[$__rate_interval]))"
    sent = f"sum by ({by}) (rate(vigia_probe_sent_total{{{_ON}}}[$__rate_interval]))"
    return f"{lost} / ({sent} > 0)"


def explained(expression: str) -> str:
    """Add the command that shows what a probe recorded, as a label."""
    parts = f'label_join({expression}, "about", ";", "path", "src", "dst", "tenant")'
    command = "vigia explain $1 --src $2 --dst $3 --tenant $4"
    return f'label_replace({parts}, "explain", "{command}", "about", "(.*);(.*);(.*);(.*)")'


def moments(only: str = "") -> Panel:
    """Return what probes recorded when paths turned bad."""
    results = (("bad", "records"), ("too_soon", "too soon"), ("busy", "busy"))
    return Panel(
        "table",
        "What the probes recorded",
        "Records of what happened at the moment when a path turned bad, within the range that is shown; vigia explain shows them. "
        "Too soon: the path had one already within moments.interval; busy: it was good again before others were complete.",
        tuple(
            Query(
                f'sum by (node) (increase(vigia_probe_moments_total{{{only}result="{result}"}}[$__range]))',
                words,
                decimals=0,
            )
            for result, words in results
        ),
        "short",
        columns=("node",),
        order="records",
    )


def _median_at(condition: str) -> str:
    """The median of all chosen paths together while their loss is of a class."""
    everything = _quantile(0.5, "").replace("sum by ()", "sum")
    return f"{everything} and on () ({_loss('').replace('sum by ()', 'sum')} {condition})"


_RECORDED = 'src=~"$src",dst=~"$dst",path=~"$path",tenant=~"$tenant",probe=~"$probe"'

_BETWEEN = 'path=~"$path",tenant=~"$tenant",probe=~"$probe"'
_PAIR = "/d/vigia-path?${datasource:queryparam}&var-src=${__data.fields[0]}&var-dst=${__field.name}&${__url_time_range}"
_OF_ROW = (
    "/d/vigia-path?${datasource:queryparam}&var-path=${__data.fields.path}&var-src=${__data.fields.src}"
    "&var-dst=${__data.fields.dst}&var-tenant=${__data.fields.tenant}&var-probe=${__data.fields.probe}"
    "&${__url_time_range}"
)
_COINCIDENT = 'topk(20, vigia_compare_loss_coincidence_ratio{src=~"$src",dst=~"$dst",path=~"$path"})'
_NO_MESH = "no nodes are discovered: all targets are configured one by one"

UNJUDGED = "no path has an objective yet: none is set, and its first hour is not over"

FLEET = Dashboard(
    uid="vigia-fleet",
    title="Fleet matrix",
    description="Every pair of nodes: loss, delay, and targets that do not answer. A row is a source, a column a "
    "destination; a row and a column of bad cells that cross point to a node, a square of them to a rack.",
    variables=VARIABLES,
    links=(
        ("vigia-now", "Now"),
        ("vigia-path", "Path detail"),
        ("vigia-comparison", "Configurations"),
        ("vigia-slo", "Objectives"),
    ),
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "stat",
                    "Silent targets",
                    "Directions of paths whose target answered none of its last ten probes, of all configured; orange from 1.",
                    (Query(f"sum(1 - vigia_probe_target_up{{{_ON}}})", "silent"),),
                    "short",
                    width=4,
                    height=4,
                    bounds=((1, "orange"),),
                ),
                Panel(
                    "stat",
                    "Worst loss",
                    "The largest share of probes that the network lost on any path, over a minute; orange from 0.1 %, purple from "
                    "1 %.",
                    (Query(f"max(path:vigia_probe_loss:ratio_rate1m{{{_RECORDED}}})", "loss"),),
                    "percentunit",
                    width=4,
                    height=4,
                    bounds=((0.001, "orange"), (0.01, "purple")),
                ),
                Panel(
                    "stat",
                    "Worst p99",
                    "The largest p99 round trip of any path, over a minute; kernel timestamps, reflector time excluded; orange "
                    "from 10 ms, purple from 50 ms.",
                    (Query(f"max(path:vigia_probe_rtt_seconds:p99_rate1m{{{_ON}}})", "p99"),),
                    "s",
                    width=4,
                    height=4,
                    bounds=((0.01, "orange"), (0.05, "purple")),
                ),
                Panel(
                    "stat",
                    "Over objective",
                    "Directions of paths with more than 0.1 % lost or more than 1 % of round trips over their delay objective, over "
                    "5 minutes; by loss alone where there is no delay objective yet; orange from 1.",
                    (
                        Query(
                            f"count(path:vigia_probe_loss:ratio_rate5m{{{_RECORDED}}} > 0.001"
                            f" or path:vigia_probe_slow:ratio_rate5m{{{_RECORDED}}} > 0.01)"
                            f" or 0 * count(path:vigia_probe_loss:ratio_rate5m{{{_RECORDED}}})",
                            "paths",
                        ),
                    ),
                    "short",
                    width=4,
                    height=4,
                    bounds=((1, "orange"),),
                ),
                Panel(
                    "stat",
                    "Paths measured",
                    "Directions of paths that are configured.",
                    (Query(f"count(vigia_probe_target_up{{{_ON}}})", "configured"),),
                    "short",
                    width=4,
                    height=4,
                ),
                Panel(
                    "stat",
                    "Age of the data",
                    "Time since the least recently scraped path was scraped; orange from 60: a probe is down.",
                    (Query(f"max(time() - timestamp(vigia_probe_target_up{{{_ON}}}))", "oldest"),),
                    "s",
                    width=4,
                    height=4,
                    bounds=((60, "orange"),),
                ),
            ),
        ),
        Row(
            "Matrices",
            (
                Panel(
                    "matrix",
                    "p99 round trip",
                    "From row to column, the worst of the chosen paths; orange from 10 ms, purple from 50 ms. An empty "
                    "cell is no data, not zero. A click opens the pair.",
                    (Query(f"max by (src, dst) (path:vigia_probe_rtt_seconds:p99_rate1m{{{_RECORDED}}})"),),
                    "s",
                    columns=("src", "dst"),
                    bounds=((0.01, "orange"), (0.05, "purple")),
                    drill=_PAIR,
                ),
                Panel(
                    "matrix",
                    "Loss",
                    "From row to column, all chosen paths together; orange from 0.1 %, purple from 1 %. An empty cell "
                    "is no data, not zero. A click opens the pair.",
                    (Query(_loss("src, dst")),),
                    "percentunit",
                    columns=("src", "dst"),
                    bounds=((0.001, "orange"), (0.01, "purple")),
                    drill=_PAIR,
                ),
            ),
        ),
        Row(
            "Over time",
            (
                Panel(
                    "state",
                    "Answering",
                    "Up while all targets of the pair answer on all chosen paths; the 30 worst pairs. A click on the pair in the "
                    "matrices opens its paths.",
                    (
                        Query(
                            f"bottomk(30, min by (src, dst) (vigia_probe_target_up{{{_ON}}}))",
                            "{{src}} to {{dst}}",
                        ),
                    ),
                    "none",
                    width=24,
                    height=8,
                    words=(("1", "up", "blue"), ("0", "no answer", "orange")),
                ),
                Panel(
                    "table",
                    "Ten worst paths by p99",
                    "Each direction has a row: compare a row with its reverse to see an asymmetry.",
                    (
                        Query(f"topk(10, path:vigia_probe_rtt_seconds:p99_rate1m{{{_ON}}})", "p99"),
                        Query(
                            f"path:vigia_probe_rtt_seconds:p50_rate1m{{{_ON}}}"
                            f" and topk(10, path:vigia_probe_rtt_seconds:p99_rate1m{{{_ON}}})",
                            "median",
                        ),
                    ),
                    "s",
                    width=24,
                    height=13,
                    columns=("path", "src", "dst", "tenant", "probe"),
                    order="p99",
                    drill=_OF_ROW,
                ),
            ),
        ),
        Row(
            "Mesh of discovered nodes",
            (
                Panel(
                    "timeseries",
                    "p99 round trip between zones",
                    "Of all pairs of discovered nodes together, those without series of their own among them.",
                    (
                        Query(
                            f"zone:vigia_probe_mesh_rtt_seconds:p99_rate1m{{{_BETWEEN}}}",
                            "{{path}} {{tenant}} {{src_zone}} to {{dst_zone}} {{probe}}",
                        ),
                    ),
                    "s",
                    quiet=_NO_MESH,
                ),
                Panel(
                    "timeseries",
                    "Loss between zones",
                    "Share of the probes of all pairs of discovered nodes that the network lost.",
                    (
                        Query(
                            f"zone:vigia_probe_mesh_loss:ratio_rate1m{{{_BETWEEN}}}",
                            "{{path}} {{tenant}} {{src_zone}} to {{dst_zone}} {{probe}}",
                        ),
                    ),
                    "percentunit",
                    quiet=_NO_MESH,
                ),
                Panel(
                    "timeseries",
                    "Pairs of discovered nodes",
                    "Bad and asked-for pairs have series of their own, as far as they fit; left_out did not.",
                    (Query("sum by (state) (vigia_probe_mesh_pairs)", "{{state}}"),),
                    "short",
                    quiet=_NO_MESH,
                ),
                Panel(
                    "timeseries",
                    "Probes of the mesh",
                    "Sent to all pairs of discovered nodes, by source.",
                    (Query("sum by (src) (rate(vigia_probe_mesh_sent_total[$__rate_interval]))", "{{src}}"),),
                    "pps",
                    quiet=_NO_MESH,
                ),
            ),
        ),
    ),
)

DETAIL = Dashboard(
    uid="vigia-path",
    title="Path detail",
    description="One path: distribution of delays over time, loss by cause, jitter, reordering, and the quality of the "
    "measurement.",
    variables=ONE,
    links=(("vigia-host", "Host data path"), ("vigia-tenants", "Tenant interference")),
    rows=(
        Row(
            "Delay",
            (
                Panel(
                    "smoke",
                    "Round trip, smoke",
                    "The line is the median: its colour and its name in the legend say how much was lost at that "
                    "moment. The bands reach to p5, p25, p75, p95 and p99: thick smoke is jitter.",
                    (
                        *(
                            Query(_quantile(q, "").replace("sum by ()", "sum"), f"p{q * 100:g}")
                            for q in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
                        ),
                        *(Query(_median_at(condition), name) for name, condition, _ in LOSS_CLASSES),
                    ),
                    "s",
                    width=24,
                    height=10,
                ),
                Panel(
                    "timeseries",
                    "Median by direction",
                    "Kernel timestamps, reflector time excluded; one minute each.",
                    (
                        Query(
                            f"path:vigia_probe_rtt_seconds:p50_rate1m{{{_ON}}}",
                            "{{tenant}} {{src}} to {{dst}} on {{path}} {{probe}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Delay variation",
                    "Signed difference of consecutive delays (RFC 3393), middle half: its width is the jitter.",
                    tuple(
                        Query(
                            f"histogram_quantile({q}, sum by (path, direction) (rate("
                            f"vigia_probe_delay_variation_seconds{{{_ON}}}[$__rate_interval])))",
                            f"{{{{path}}}} {{{{direction}}}} p{q * 100:g}",
                        )
                        for q in (0.25, 0.75)
                    ),
                    "s",
                    signed=True,
                ),
                Panel(
                    "timeseries",
                    "Overlay tax",
                    "Median of the round trip minus that of a twin probe sent on the underlay at the same moment; negative values "
                    "are noise.",
                    (
                        Query(
                            "histogram_quantile(0.5, sum by (path, src, dst) (rate("
                            f"vigia_probe_overlay_tax_seconds{{{_ON}}}[$__rate_interval])))",
                            "{{path}} {{src}} to {{dst}}",
                        ),
                    ),
                    "s",
                    signed=True,
                    quiet="no target has a twin probe",
                ),
                Panel(
                    "timeseries",
                    "Path MTU",
                    "Largest IP packet that the path carries without fragmentation, found by probing; a step down is a new "
                    "tunnel or a wrong MTU. Of whichever class of probes searches for it.",
                    (
                        Query(
                            'min by (path, src, dst) (vigia_probe_path_mtu_bytes{src=~"$src",dst=~"$dst",path=~"$path"})',
                            "{{path}} {{src}} to {{dst}}",
                        ),
                    ),
                    "B",
                    quiet="no probe class has path_mtu set",
                ),
            ),
        ),
        Row(
            "Loss and order",
            (
                Panel(
                    "timeseries",
                    "Loss",
                    "Share of probes lost in the network; losses at the sockets of sender and reflector are not counted.",
                    (
                        Query(
                            f"path:vigia_probe_loss:ratio_rate1m{{{_ON}}}",
                            "{{tenant}} {{src}} to {{dst}} on {{path}} {{probe}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "timeseries",
                    "Lost probes by cause",
                    "send_error, local_overflow and reflector_overflow are losses at sockets; the others happened in the network.",
                    (
                        Query(
                            per_minute(
                                f"sum by (cause) (rate(vigia_probe_lost_total{{{_ON}}}[$__rate_interval]))"
                            ),
                            "{{cause}}",
                        ),
                    ),
                    "cpm",
                ),
                Panel(
                    "timeseries",
                    "Late, duplicate, reordered, corrupt",
                    "Answers after the deadline (their probes count as lost), repeated, out of order, or invalid.",
                    tuple(
                        Query(
                            per_minute(
                                or_none(
                                    f"sum(rate(vigia_probe_{kind}_total{{{_ON}}}[$__rate_interval]))",
                                    f"sum(rate(vigia_probe_sent_total{{{_ON}}}[$__rate_interval]))",
                                )
                            ),
                            kind,
                        )
                        for kind in ("late", "duplicate", "reordered", "corrupt")
                    ),
                    "cpm",
                ),
                moments('node=~"$src",'),
                Panel(
                    "table",
                    "Where it was lost, and what happened at that moment",
                    "Pinned: a drop counter grew when probes were lost. The command shows what the prober recorded when the path "
                    "turned bad: hops, path MTU, class of service and the host, beside the last good record.",
                    (
                        Query(
                            explained('vigia_compare_loss_verdict{src=~"$src",dst=~"$dst",path=~"$path"}'),
                            "said",
                            hidden=True,
                        ),
                    ),
                    "none",
                    width=24,
                    columns=("verdict", "path", "src", "dst", "tenant", "explain"),
                    names={"explain": "what happened"},
                    wide={"explain": 520},
                    quiet="no path lost probes",
                ),
                Panel(
                    "table",
                    "Drop counters that coincide with loss",
                    "Drop counters on the path that grew when probes were lost; p is corrected for the number of counters.",
                    (
                        Query(
                            _COINCIDENT,
                            "coincidence",
                        ),
                        Query(
                            f"vigia_compare_loss_coincidence_p_value and {_COINCIDENT}",
                            "p",
                        ),
                        Query(
                            f"vigia_compare_loss_coincident_packets and {_COINCIDENT}",
                            "packets",
                            unit="short",
                            decimals=0,
                        ),
                    ),
                    "none",
                    width=24,
                    columns=("counter", "detail", "node", "path", "src", "dst", "tenant"),
                    texts={"detail": {"": "none"}},
                    wide={"counter": 320},
                    order="coincidence",
                    quiet="no path lost probes",
                    decimals=3,
                ),
            ),
        ),
        Row(
            "Quality of the measurement",
            (
                Panel(
                    "timeseries",
                    "p99 of the network and of an application",
                    "The same probes by the same kernel stamps, without and with the time in the reflector: the difference is scheduling delay on the other host, not the network.",
                    (
                        Query(_quantile(0.99, "path"), "{{path}} network"),
                        Query(
                            _quantile(0.99, "path", f"vigia_probe_rtt_application_seconds{{{_ON}}}"),
                            "{{path}} application",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "timeseries",
                    "Probes unaccounted for",
                    "Sent minus received, lost and in flight; any other value than zero is a fault of the probe.",
                    (Query(f"max(abs(vigia_probe_accounting_mismatch{{{_ON}}}))", "mismatch"),),
                    "short",
                ),
                Panel(
                    "timeseries",
                    "One-way delay",
                    "Median of each direction: which half of the round trip is slow. Only while the error of both clocks is "
                    "known and small enough.",
                    (
                        Query(
                            "histogram_quantile(0.5, sum by (path, direction) (rate("
                            f"vigia_probe_oneway_delay_seconds{{{_ON}}}[$__rate_interval])))",
                            "{{path}} {{direction}}",
                        ),
                    ),
                    "s",
                    signed=True,
                    quiet="the error of the hosts' clocks is not known",
                ),
            ),
        ),
    ),
)

_GOOD = "path:vigia_probe_sent:rate5m"
_SLO = 'src=~"$src",dst=~"$dst",path=~"$path",tenant=~"$tenant"'

OBJECTIVES = Dashboard(
    uid="vigia-slo",
    title="Objectives",
    description="Objectives of paths: 99.9 % of probes delivered, 99 % of round trips and 99 % of delay variations "
    "within the objective of the target: set in the configuration of vigia-probe, or learned from its first hour. A burn "
    "rate of 1 spends exactly the budget; 14.4 spends a month's in two days.",
    variables=VARIABLES[:4],
    links=(("vigia-path", "Path detail"), ("vigia-fleet", "Fleet matrix")),
    rows=(
        Row(
            "Objective and budget",
            (
                Panel(
                    "stat",
                    "Lost, worst path",
                    "Over the last 6 hours; the objective allows 0.1 %; orange from 0.1 %.",
                    (Query(f"max(path:vigia_probe_loss:ratio_rate6h{{{_SLO}}})", "lost"),),
                    "percentunit",
                    width=6,
                    height=4,
                    bounds=((0.001, "orange"),),
                ),
                Panel(
                    "stat",
                    "Loss budget spent",
                    "On the worst path, of what the objective allows in 6 hours; orange from 50 %, purple from 100 %: the objective "
                    "is missed.",
                    (Query(f"max(path:vigia_probe_loss:ratio_rate6h{{{_SLO}}}) / 0.001", "spent"),),
                    "percentunit",
                    width=6,
                    height=4,
                    decimals=0,
                    bounds=((0.5, "orange"), (1, "purple")),
                ),
                Panel(
                    "stat",
                    "Slow, worst path",
                    "Round trips over the delay objective, over the last hour; the objective allows 1 %; orange from 1 %.",
                    (Query(f"max(path:vigia_probe_slow:ratio_rate1h{{{_SLO}}})", "slow"),),
                    "percentunit",
                    quiet=UNJUDGED,
                    width=6,
                    height=4,
                    bounds=((0.01, "orange"),),
                ),
                Panel(
                    "stat",
                    "Unsteady, worst path",
                    "Delay variations over the jitter objective, over the last hour; the objective allows 1 %; orange from 1 %.",
                    (Query(f"max(path:vigia_probe_unsteady:ratio_rate1h{{{_SLO}}})", "unsteady"),),
                    "percentunit",
                    quiet=UNJUDGED,
                    width=6,
                    height=4,
                    bounds=((0.01, "orange"),),
                ),
            ),
        ),
        Row(
            "Worst first",
            (
                *(
                    Panel(
                        "table",
                        title,
                        f"{what}, over 5 minutes and 1 hour, as a multiple of what the objective allows; orange from "
                        "1 (the budget is spent faster than it lasts), purple from 14.4 (an alert).",
                        (
                            Query(f"{record}5m{{{_SLO}}} / {budget}", "burn 5m"),
                            Query(f"{record}1h{{{_SLO}}} / {budget}", "burn 1h"),
                        ),
                        "none",
                        width=24,
                        columns=("path", "src", "dst", "tenant", "probe"),
                        decimals=2,
                        bounds=((1.0, "orange"), (14.4, "purple")),
                        order="burn 5m",
                        missing="not known",
                        drill=_OF_ROW,
                        quiet=quiet,
                    )
                    for title, what, record, budget, quiet in (
                        ("Loss budget burn", "Loss", "path:vigia_probe_loss:ratio_rate", 0.001, ""),
                        (
                            "Delay budget burn",
                            "Round trips over the delay objective",
                            "path:vigia_probe_slow:ratio_rate",
                            0.01,
                            UNJUDGED,
                        ),
                        (
                            "Jitter budget burn",
                            "Delay variations over the jitter objective",
                            "path:vigia_probe_unsteady:ratio_rate",
                            0.01,
                            UNJUDGED,
                        ),
                    )
                ),
            ),
        ),
        Row(
            "Objectives in force",
            (
                Panel(
                    "table",
                    "Objectives of targets",
                    "What 99 % of round trips and of delay variations must stay within; empty while it is being learned.",
                    (
                        Query(f'vigia_probe_objective_seconds{{{_SLO},objective="delay"}}', "delay"),
                        Query(f'vigia_probe_objective_seconds{{{_SLO},objective="jitter"}}', "jitter"),
                    ),
                    "s",
                    quiet=UNJUDGED,
                    width=24,
                    columns=("path", "src", "dst", "tenant", "probe"),
                    order="delay",
                    missing="being learned",
                ),
            ),
        ),
        Row(
            "Over time",
            (
                Panel(
                    "timeseries",
                    "Loss, ten worst",
                    "Share of probes lost, over 5 minutes; the objective allows 0.1 %.",
                    (Query(f"topk(10, path:vigia_probe_loss:ratio_rate5m{{{_SLO}}})", _TARGET),),
                    "percentunit",
                    width=24,
                ),
                Panel(
                    "timeseries",
                    "p99 relative to its median of 10 minutes, ten worst",
                    "p99 round trip over a minute divided by its median over 10 minutes; 1 is normal.",
                    (
                        Query(
                            f"topk(10, path:vigia_probe_rtt_seconds:p99_rate1m{{{_SLO}}}"
                            f" / path:vigia_probe_rtt_seconds:p99_median10m{{{_SLO}}})",
                            _TARGET,
                        ),
                    ),
                    "none",
                    width=24,
                ),
                Panel(
                    "timeseries",
                    "Minimum detectable loss, ten worst",
                    "Smallest loss ratio that the probes of the comparison's period show; with none lost, the upper bound of the loss.",
                    (
                        Query(
                            'topk(10, vigia_compare_minimum_detectable_loss_ratio{path=~"$path"})',
                            "{{path}} {{placement}} {{probe}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "timeseries",
                    "Probes per second, ten fewest",
                    "Sample size of the ratios above: below one per second the alerts on them do not fire.",
                    (Query(f"bottomk(10, {_GOOD}{{{_SLO}}})", _TARGET),),
                    "pps",
                ),
            ),
        ),
    ),
)
