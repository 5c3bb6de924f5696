"""What happened, drawn on every panel that has a time axis."""

from __future__ import annotations

from dataclasses import dataclass

from vigia_dashboards.expressions import IN_FORCE

__all__ = ["ANNOTATIONS", "Annotation"]

STEP = "1m"
"""Least distance of two looks. Looks that follow each other are drawn as one region, up to 100 of them:
so what lasts is a shaded region while a page shows up to 100 minutes, and a line per look beyond that."""

_AROUND = "[$__interval] offset -30s"
"""What a look sees: with the look at its end, regions would be late by up to a minute."""


@dataclass(frozen=True)
class Annotation:
    """Marks of one kind."""

    name: str
    expression: str
    title: str
    tags: str
    colour: str
    shown: bool = True
    """Whether it is switched on when the page opens."""


_FIRING = 'ALERTS{alertstate="firing"}'

ANNOTATIONS: tuple[Annotation, ...] = (
    Annotation(
        "Limits",
        f"max by (node, tenant) (max_over_time(vigia_isolation_limit_bytes_per_second{_AROUND})) > 0",
        "limit on {{tenant}}",
        "node",
        "blue",
    ),
    Annotation(
        "Floods",
        f"max by (node, tenant) (max_over_time(vigia_port_flood_score{_AROUND})) >= 70",
        "flood by {{tenant}}",
        "node",
        "purple",
    ),
    Annotation(
        "Alerts begin",
        f"count by (alertname, severity) ({_FIRING}) unless on (alertname) {_FIRING} offset $__interval",
        "{{alertname}}",
        "severity",
        "orange",
    ),
    Annotation(
        "Isolation actions",
        f"sum by (state, policy) ({IN_FORCE}) > 0",
        "isolation: {{policy}}",
        "state",
        "semi-dark-blue",
        shown=False,
    ),
    Annotation(
        "Configuration reloads",
        " or ".join(
            f"changes(vigia_{part}_config_last_reload_success_timestamp_seconds[$__interval]) > 0"
            for part in ("agent", "probe", "exporter", "enforcer", "compare")
        ),
        "reload",
        "job,node",
        "semi-dark-purple",
    ),
    Annotation(
        "Restarts",
        'changes(process_start_time_seconds{job=~"vigia-.+|isolation-agent"}[$__interval]) > 0',
        "restart",
        "job,node",
        "yellow",
    ),
    Annotation(
        "Campaigns",
        "max by (campaign, study) (vigia_campaign_remaining_seconds) > 0",
        "campaign {{campaign}} runs",
        "study",
        "semi-dark-blue",
    ),
)
