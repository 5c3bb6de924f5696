"""A timeline as a drawing: one lane for each kind of events of a tenant, or alert."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup, escape

from vigia_compare.timeline import Timeline
from vigia_text.terminal import clean, cut

__all__ = ["MOST_LANES", "drawn"]

MOST_LANES = 24
"""Lanes: those with the newest events."""

_WIDTH, _LEFT, _RIGHT, _LANE, _FOOT = 1100, 220, 12, 24, 26
_TICKS = (300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0)
"""Seconds that two marks of the time may be apart."""

_MOST_TICKS = 7
_WORDS = {"flood": "floods", "limit": "is limited", "harm": "is hurt"}


def drawn(found: Timeline) -> Markup:
    """Return the drawing; the list of events has the same in words."""
    lanes = list(dict.fromkeys(e.lane for e in found.events))[:MOST_LANES]
    if not lanes:
        return Markup("")
    bottom = len(lanes) * _LANE + 4
    span = max(found.at - found.start, 1.0)

    def x(at: float) -> float:
        return _LEFT + (min(max(at, found.start), found.at) - found.start) / span * (_WIDTH - _LEFT - _RIGHT)

    parts = []
    apart = next((t for t in _TICKS if span / t <= _MOST_TICKS), _TICKS[-1])
    tick = -(-found.start // apart) * apart
    while tick <= found.at:
        text = datetime.fromtimestamp(tick, UTC).strftime("%H:%M")
        parts += [
            Markup('<line x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}" class="grid"/>').format(x(tick), bottom),
            Markup('<text x="{:.1f}" y="{}" class="tick {}">{}</text>').format(
                x(tick), bottom + 18, "end" if x(tick) > _WIDTH - _LANE else "middle", text
            ),
        ]
        tick += apart
    for i, (kind, what) in enumerate(lanes):
        name = cut(clean(what if kind == "alert" else f"{what} {_WORDS[kind]}"), 28)
        y = 4 + i * _LANE
        parts.append(
            Markup('<text x="{}" y="{}" class="lane end" dy="0.35em">{}</text>').format(
                _LEFT - 8, y + _LANE / 2 - 2, name
            )
        )
        for e in (e for e in found.events if e.lane == (kind, what)):
            begin, end = x(e.begin), x(max(e.end, e.begin + found.step))
            kinds = f"event {kind} {'critical' if e.severity == 'critical' else ''}"
            parts.append(
                Markup(
                    '<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="3" class="{}">'
                    "<title>{}</title></rect>"
                ).format(begin, y, max(end - begin, 3.0), _LANE - 6, kinds, clean(e.what))
            )
    told = f"{len(found.events)} events in {len(lanes)} lanes; the table below lists them."
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" class="chart lanes">'
        "<title>What happened</title><desc>{}</desc>{}</svg>"
    ).format(_WIDTH, bottom + _FOOT, escape(told), Markup("").join(parts))
