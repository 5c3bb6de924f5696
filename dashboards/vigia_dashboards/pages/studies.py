"""The published studies, live."""

from __future__ import annotations

from vigia_dashboards.model import Dashboard, Panel, Query, Row, or_none
from vigia_dashboards.pages.comparison import VARIABLES

__all__ = ["STUDIES"]

_NODES = 'max(up{job="node"})'


def _beside(expression: str) -> str:
    """Rename the label without, which is a word of PromQL."""
    return f'label_replace({expression}, "beside", "$1", "without", "(.*)")'


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
                    "stat",
                    "Campaigns that run",
                    "Seen through node_exporter's textfile collector, where they write to with --textfile.",
                    (Query(or_none("count(vigia_campaign_remaining_seconds > 0)", _NODES), "campaigns"),),
                    "short",
                    width=8,
                    height=4,
                ),
                Panel(
                    "stat",
                    "Repetitions to do",
                    "Planned, less those that are done and failed.",
                    (
                        Query(
                            or_none(
                                'sum(vigia_campaign_repetitions{state="planned"})'
                                ' - sum(vigia_campaign_repetitions{state=~"done|failed"})',
                                _NODES,
                            ),
                            "to do",
                        ),
                    ),
                    "short",
                    width=8,
                    height=4,
                ),
                Panel(
                    "stat",
                    "Time that is left",
                    "Of the longest campaign, estimated from its repetitions so far.",
                    (Query(or_none("max(vigia_campaign_remaining_seconds)", _NODES), "left"),),
                    "s",
                    width=8,
                    height=4,
                ),
            ),
        ),
        Row(
            "Elements (study E3)",
            (
                Panel(
                    "table",
                    "Cost of one element",
                    "Half the shift of the round trip between the path with the element and the one without it; the interval holds at all times. "
                    "Rate: packets a second, one over the cost; only where the interval lies above zero.",
                    (
                        Query(
                            _beside(
                                'vigia_compare_element_cost_seconds{placement=~"$placement",probe=~"$probe"}'
                            ),
                            "cost",
                        ),
                        Query(
                            _beside(
                                'vigia_compare_element_cost_ci_lower_seconds{placement=~"$placement",probe=~"$probe"}'
                            ),
                            "lower",
                        ),
                        Query(
                            _beside(
                                'vigia_compare_element_cost_ci_upper_seconds{placement=~"$placement",probe=~"$probe"}'
                            ),
                            "upper",
                        ),
                        Query(
                            _beside(
                                'vigia_compare_element_rate_packets_per_second{placement=~"$placement",probe=~"$probe"}'
                            ),
                            "rate",
                            unit="short",
                        ),
                    ),
                    "s",
                    width=24,
                    height=12,
                    missing="not known yet",
                    order="cost",
                    columns=("element", "path", "beside", "placement", "probe"),
                    quiet="no two paths differ in one element within a placement",
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
                    order="speed-up",
                    missing="not known yet",
                    decimals=2,
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
