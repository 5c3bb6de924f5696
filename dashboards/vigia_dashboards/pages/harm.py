"""Who hurt whom, what was sent and what was lost: panels that several pages have."""

from __future__ import annotations

from vigia_dashboards.model import Panel, Query, bits

__all__ = ["AGREED", "SENT", "evidence", "harm", "lost_where"]

MARGIN = 300
"""Seconds before an incident and after it that its page shows."""

_KEY = "node, tenant, offender"
_SAID = "vigia_compare_interference_verdict"
_BEGAN = "vigia_compare_interference_begin_timestamp_seconds"
_END = "vigia_compare_interference_end_timestamp_seconds"


def _agreed(only: str) -> str:
    """The verdict of each pair, of one replica, since all say the same."""
    return f"topk by ({_KEY}) (1, {_SAID}{{{only}}})"


def _with(only: str) -> str:
    return f"* on ({_KEY}) group_left (verdict) {_agreed(only)}"


_KNOWN = 'verdict=~"attributed|likely"'

AGREED = _with(_KNOWN)
"""Adds the verdict to what is known of an offender, where one is known."""

_INCIDENT = (
    "/d/vigia-incident?${datasource:queryparam}&var-tenant=${__data.fields[0]}"
    "&from=${__data.fields.from.numeric}&to=${__data.fields.to.numeric}"
)


SENT = Panel(
    "timeseries",
    "What tenants send",
    "Before limits drop any of it.",
    (
        Query(
            bits('sum by (tenant) (rate(vigia_port_bytes_total{direction="from_tenant"}[$__rate_interval]))'),
            "{{tenant}}",
        ),
    ),
    "bps",
)


def harm(title: str, description: str, *, every: bool = False, quiet: str, height: int = 5) -> Panel:
    """Return the harm of the last hour: of known offenders, or with every answer that there is."""
    only = "" if every else _KNOWN
    known = f"count by ({_KEY}) (vigia_compare_interference_evidence) {_with(only)}"
    return Panel(
        "table",
        title,
        description,
        (
            Query(f"{known} or 0 * {_agreed(only)}", "evidence", decimals=0),
            Query(
                f"vigia_compare_interference_share_ratio {_with(only)}",
                "share",
                unit="percentunit",
                decimals=0,
            ),
            Query(f"1000 * {_BEGAN} {_with(only)}", "began", unit="dateTimeFromNow"),
            Query(f"1000 * {_END} {_with(only)}", "ended", unit="dateTimeFromNow"),
            *(
                Query(
                    f"floor(1000 * ({bound}) {_with(only)} or 1000 * ({unknown}) * {_agreed(only)})",
                    words,
                    unit="dateTimeFromNow",
                    hidden=True,
                )
                for words, bound, unknown in (
                    ("from", f"{_BEGAN} - {MARGIN}", "time() - 3600"),
                    ("to", f"{_END} + {MARGIN}", "time()"),
                )
            ),
        ),
        "none",
        width=24,
        height=height,
        columns=("tenant", "offender", "verdict", "node"),
        names={"tenant": "hurt", "offender": "by", "verdict": "how sure", "node": "seen on"},
        after=("node",),
        texts={"offender": {"": "nobody"}},
        clicks={"tenant": _INCIDENT},
        missing="not known",
        quiet=quiet,
    )


def lost_where(only: str, title: str) -> Panel:
    """Return the drops of tenants, by where and why."""
    return Panel(
        "table",
        title,
        "Packets of the tenant that were dropped within the range that is shown, by reason and port. rate_limit: its own limit; "
        "queue_full: a queue of its own or, at _shared, one that all share.",
        (
            Query(
                "round(sum by (tenant, reason, port, node) "
                f"(increase(vigia_port_drops_total{{{only}}}[$__range]))) > 0",
                "packets",
                unit="short",
            ),
        ),
        "none",
        columns=("tenant", "reason", "port", "node"),
        after=("port", "node"),
        order="packets",
        quiet="nothing of a tenant was dropped",
    )


_EVIDENCE = {
    "flood": "it flooded",
    "limit": "it had a limit",
    "contract": "it sent more than its contract",
    "saturation": "a shared element was full",
    "arrival": "the flood arrived at the tenant's node",
    "coincidence": "harm and its load coincide",
}


def evidence(only: str) -> Panel:
    """Return what is known against offenders."""
    return Panel(
        "table",
        "Evidence against the offender",
        "What is known of the last hour: the verdict attributed takes a flood or a limit, and one link of it to the harm.",
        (
            Query(
                "count by (tenant, offender, evidence, offender_node) "
                f"(vigia_compare_interference_evidence{{{only}}})",
                "nodes",
                decimals=0,
            ),
        ),
        "none",
        columns=("tenant", "offender", "evidence", "offender_node"),
        after=("offender_node",),
        names={"tenant": "hurt", "offender": "by", "evidence": "what is known", "offender_node": "sent from"},
        texts={"evidence": _EVIDENCE},
        wide={"evidence": 290},
        quiet="nobody was hurt by a flood",
    )
