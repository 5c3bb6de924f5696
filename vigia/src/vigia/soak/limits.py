"""How fast each quantity may grow: the table that a soak is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["LIMITS", "Limit", "of"]

_MIB = float(1 << 20)
_COUNTS = 2.0
"""Objects an hour: fewer than the six that would be lost by one for each flood."""


@dataclass(frozen=True)
class Limit:
    """A bound on the slope of a quantity."""

    quantity: str
    subjects: str
    """Pattern of the processes, groups or places that it holds for, as of a shell."""
    per_hour: float
    unit: str
    """bytes, ratio, or the word for what is counted."""
    hours: float
    """A shorter run does not judge it: what settles later than that looks like growth."""
    why: str


_SOON = 0.2
_MEMORY = 1.0
_STORE = 4.0

LIMITS = (
    Limit("descriptors", "*", _COUNTS, "descriptors", _SOON, "a lost one for each flood is 6 an hour"),
    Limit("threads", "*", _COUNTS, "threads", _SOON, "as descriptors"),
    Limit("goroutines", "*", _COUNTS, "goroutines", _SOON, "as descriptors"),
    Limit("bpf_programs", "*", _COUNTS, "programs", _SOON, "as descriptors"),
    Limit("bpf_maps", "*", _COUNTS, "maps", _SOON, "as descriptors"),
    Limit("bpf_links", "*", _COUNTS, "links", _SOON, "as descriptors"),
    Limit("pins", "*", _COUNTS, "pins", _SOON, "an unplugged port leaves no BPF object behind"),
    Limit("links", "*", _COUNTS, "links", _SOON, "an unplugged port leaves no device behind"),
    Limit("qdiscs", "*", _COUNTS, "qdiscs", _SOON, "a limit that has ended leaves no qdisc behind"),
    Limit("namespaces", "*", _COUNTS, "namespaces", _SOON, "the churn removes what it made"),
    Limit("page_series", "vigia-*", 20.0, "series", _SOON, "a port or target that has gone is on no page"),
    Limit(
        "page_series", "*", 60.0, "series", _MEMORY, "pages of others have a series for each thing first met"
    ),
    Limit(
        "missed_iterations", "*", 1.0, "iterations", _SOON, "an evaluation that is missed is an alert late"
    ),
    Limit(
        "memory_bytes", "vigia-compare", 2 * _MIB, "bytes", _MEMORY, "verdicts of a fixed number of windows"
    ),
    Limit(
        "memory_bytes",
        "vigia-*",
        1 * _MIB,
        "bytes",
        _MEMORY,
        "state for each port and target, which go again",
    ),
    Limit("memory_bytes", "isolation-agent", 2 * _MIB, "bytes", _MEMORY, "ended actions are in the database"),
    Limit("memory_bytes", "ovs*", 2 * _MIB, "bytes", _MEMORY, "caches of flows are bounded"),
    Limit("memory_bytes", "prometheus", 24 * _MIB, "bytes", _STORE, "the head holds up to 3 h, then is cut"),
    Limit("memory_bytes", "*", 2 * _MIB, "bytes", _MEMORY, "nothing is kept for long"),
    Limit(
        "head_series", "prometheus", 200.0, "series", _STORE, "series of ports that have gone leave the head"
    ),
    Limit("wal_bytes", "prometheus", 32 * _MIB, "bytes", _STORE, "the log is cut with the head"),
    Limit("store_bytes", "prometheus", 64 * _MIB, "bytes", _STORE, "samples, until the retention"),
    Limit(
        "database_bytes",
        "isolation-agent",
        1 * _MIB,
        "bytes",
        _MEMORY,
        "6 actions an hour and their timelines",
    ),
    Limit("audit_bytes", "isolation-agent", 0.25 * _MIB, "bytes", _MEMORY, "6 actions an hour"),
    Limit("log_bytes", "*", 8 * _MIB, "bytes", _MEMORY, "each log is emptied at 16 MiB"),
    Limit(
        "rule_share", "*", 0.02, "ratio", _MEMORY, "seconds of an evaluation by its interval: no cost by age"
    ),
)
"""The first limit that matches a quantity and a subject holds."""


def of(quantity: str, subject: str) -> Limit | None:
    """Return the limit of a quantity of a subject, None if it has none."""
    for limit in LIMITS:
        if limit.quantity == quantity and fnmatchcase(subject, limit.subjects):
            return limit
    return None
