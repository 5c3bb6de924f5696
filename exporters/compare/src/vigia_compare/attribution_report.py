"""What is said of interference and of losses: as series, as data and in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from vigia_compare.blame import Blamed
from vigia_compare.interference import INSUFFICIENT, OWN, Interference
from vigia_compare.losses import Pinned
from vigia_text import numbers
from vigia_text.terminal import clean

__all__ = [
    "interference_json",
    "interference_samples",
    "interference_text",
    "loss_json",
    "loss_samples",
    "loss_text",
]

MAX_COUNTERS = 5
"""Counters shown per lossy path, best first."""

Sample = tuple[str, tuple[str, ...], float]
"""Name, values of the labels in the catalogue's order, value."""


def interference_samples(found: Interference) -> Iterator[Sample]:
    """Yield the series of one tenant on one node."""
    key, known = (found.node, found.tenant), found.known
    for candidate in found.offenders:
        if known is None or candidate.name != known.offender:
            yield "vigia_compare_interference_share_ratio", (*key, candidate.name), candidate.share
            yield "vigia_compare_interference_p_value", (*key, candidate.name), candidate.p_value
    if known is not None:
        yield from _known_samples(key, known)
    elif found.own is not None:
        yield "vigia_compare_interference_own_share_ratio", key, found.own.share
    yield "vigia_compare_interference_verdict", (*key, *found.verdict()), 1.0


def _known_samples(key: tuple[str, str], known: Blamed) -> Iterator[Sample]:
    offender = (*key, known.offender)
    yield "vigia_compare_interference_share_ratio", offender, known.share
    if known.p_value is not None:
        yield "vigia_compare_interference_p_value", offender, known.p_value
    yield "vigia_compare_interference_own_share_ratio", key, known.own_share
    yield "vigia_compare_interference_begin_timestamp_seconds", offender, known.begin
    yield "vigia_compare_interference_end_timestamp_seconds", offender, known.end
    for kind in sorted({c.kind for c in known.clues}):
        yield "vigia_compare_interference_evidence", (*offender, known.source, kind), 1.0


def interference_json(found: Interference) -> dict[str, Any]:
    """Return what is said of one tenant on one node, in base units."""
    verdict, offender = found.verdict()
    return {
        "node": found.node,
        "tenant": found.tenant,
        "measure": found.measure if found.known is None else found.known.measure,
        "bad_windows": found.bad_windows,
        "verdict": verdict,
        "offender": offender or None,
        "own": {"share": found.own.share, "p_value": found.own.p_value} if found.own else None,
        "candidates": [{"tenant": c.name, "share": c.share, "p_value": c.p_value} for c in found.offenders],
        "known": _known_json(found.known) if found.known else None,
    }


def _known_json(known: Blamed) -> dict[str, Any]:
    return {
        "source": known.source,
        "ports": list(known.ports),
        "begin": known.begin,
        "end": known.end,
        "share": known.share,
        "own_share": known.own_share,
        "p_value": known.p_value,
        "certain": known.certain,
        "evidence": [{"kind": c.kind, "text": c.text, "value": c.value} for c in known.clues],
    }


def interference_text(found: Interference) -> str:
    """Return what is said of one tenant on one node."""
    who = _statistics_text(found) if found.known is None else _known_text(found.known)
    return clean(f"{found.tenant} on {found.node}: {who}")


def _known_text(known: Blamed) -> str:
    begin, end = (datetime.fromtimestamp(t, UTC) for t in (known.begin, known.end))
    sure = "" if known.certain else "likely "
    evidence = "; ".join(c.text for c in known.clues)
    return (
        f"{sure}hurt by {known.offender} on {known.source} "
        f"from {begin:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S} UTC ({known.measure}); "
        f"{numbers.percent(known.share)} of what went beyond contracts; {evidence}"
    )


def _statistics_text(found: Interference) -> str:
    bad = f"{found.bad_windows} bad windows ({found.measure})"
    verdict, _ = found.verdict()
    best = found.own if verdict == OWN else found.offender()
    if found.at_fault:
        return f"{bad}; its own traffic: it flooded, or was limited, meanwhile"
    if best is None:
        return f"{bad}; {INSUFFICIENT} who"
    name = "its own traffic" if verdict == OWN else best.name
    return (
        f"{bad}; {name} explains {numbers.percent(best.share)} of it (p {numbers.probability(best.p_value)})"
    )


def loss_samples(lossy: Pinned) -> Iterator[Sample]:
    """Yield the series of one lossy path."""
    path = (lossy.src, lossy.dst, lossy.path, lossy.tenant)
    for c in lossy.counters[:MAX_COUNTERS]:
        labels = (*path, c.node, c.name, c.detail)
        yield "vigia_compare_loss_coincidence_ratio", labels, c.coincidence
        yield "vigia_compare_loss_coincidence_p_value", labels, c.p_value
        yield "vigia_compare_loss_coincident_packets", labels, c.packets
    yield "vigia_compare_loss_verdict", (*path, lossy.verdict), 1.0


def loss_json(lossy: Pinned) -> dict[str, Any]:
    """Return what is said of one lossy path."""
    return {
        "src": lossy.src,
        "dst": lossy.dst,
        "path": lossy.path,
        "tenant": lossy.tenant,
        "lost": lossy.lost,
        "lossy_windows": lossy.lossy_windows,
        "verdict": lossy.verdict,
        "counters": [vars(c) for c in lossy.counters[:MAX_COUNTERS]],
    }


def loss_text(lossy: Pinned) -> str:
    """Return what is said of one lossy path."""
    best = lossy.counters[0] if lossy.counters and lossy.verdict == "pinned" else None
    where = f": {best.name} {best.detail} on {best.node or 'the site'}" if best else ""
    return clean(
        f"{lossy.path} {lossy.src} to {lossy.dst} ({lossy.tenant}): "
        f"{numbers.count(lossy.lost)} probes lost in {lossy.lossy_windows} windows; {lossy.verdict}{where}"
    )
