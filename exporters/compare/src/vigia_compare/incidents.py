"""Events put together: what caused an incident, what shows it, what was done, and whom it hurt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vigia_compare.site import Harm
from vigia_compare.timeline import Event

__all__ = ["GAP", "MOST_INCIDENTS", "Incident", "incidents"]

GAP = 120.0
"""Seconds between two events of one tenant from which they are two incidents."""

MOST_INCIDENTS = 20
"""Incidents that are shown, the newest."""


@dataclass
class Incident:
    """What a tenant did and what came of it, each part from its beginning on."""

    tenant: str
    begin: float
    end: float
    lasts: bool = False
    gap: float = GAP
    """Seconds before it and after it that still are of it."""
    causes: list[Event] = field(default_factory=list)
    """Its floods."""
    evidence: list[Event] = field(default_factory=list)
    """Alerts about it."""
    actions: list[Event] = field(default_factory=list)
    """Limits on it."""
    effects: list[Event] = field(default_factory=list)
    """Whom it hurt, and alerts about them meanwhile."""
    suspected: Sequence[str] = ()
    """Whom it likely hurt, by statistics alone, which know no time."""

    @property
    def parts(self) -> Sequence[tuple[str, list[Event], str]]:
        """Name, events, and what is said where there are none, from the cause to the effect."""
        return (
            ("Cause", self.causes, f"not known: no flood by {self.tenant} was seen"),
            ("Evidence", self.evidence, f"no alert about {self.tenant}"),
            ("Action", self.actions, f"none: {self.tenant} was not limited"),
            ("Effect", self.effects, self._unseen),
        )

    @property
    def _unseen(self) -> str:
        if self.suspected:
            return f"{', '.join(self.suspected)}, likely; when is not known"
        return "none: nobody is known to have been hurt"

    @property
    def victims(self) -> frozenset[str]:
        """Whom it hurt."""
        return frozenset(e.tenant for e in self.effects if e.kind == "harm")

    def take(self, event: Event) -> None:
        """Add an event of the tenant's own."""
        {"flood": self.causes, "limit": self.actions, "harm": self.effects}[event.kind].append(event)
        self.begin, self.end = min(self.begin, event.begin), max(self.end, event.end)
        self.lasts = self.lasts or event.lasts

    def meanwhile(self, event: Event) -> bool:
        """Tell whether an event falls into it, or close before or after it."""
        return event.begin <= self.end + self.gap and event.end >= self.begin - self.gap


def incidents(
    events: Sequence[Event], step: float = 0.0, harms: Sequence[Harm] = ()
) -> tuple[list[Incident], list[Event]]:
    """Return the incidents, the newest first, and the alerts that belong to none.

    ``step`` is how many seconds lie between two looks: what is closer than that may be one. ``harms`` are
    those of the end of the period; what has no time is told of the newest incident of who did it.
    """
    by_tenant: dict[str, list[Event]] = {}
    for event in events:
        if event.kind != "alert":
            by_tenant.setdefault(event.by or event.tenant, []).append(event)
    found = [i for tenant, mine in by_tenant.items() for i in _in_turn(tenant, mine, max(GAP, step))]
    found.sort(key=lambda i: (-i.begin, i.tenant))
    rest = [e for e in events if e.kind == "alert" and not _placed(e, found)]
    for tenant in {h.offender for h in harms}:
        newest = next((i for i in found if i.tenant == tenant), None)
        if newest is not None:
            newest.suspected = sorted({h.tenant for h in harms if h.offender == tenant and not h.begin})
    for incident in found:
        for _, part, _ in incident.parts:
            part.sort(key=lambda e: (e.begin, e.what))
    return found, rest


def _in_turn(tenant: str, events: Sequence[Event], gap: float) -> Iterator[Incident]:
    """Yield one incident after the other of a tenant."""
    current: Incident | None = None
    for event in sorted(events, key=lambda e: (e.begin, e.end, e.what)):
        if current is None or not current.meanwhile(event):
            if current is not None:
                yield current
            current = Incident(tenant, event.begin, event.end, gap=gap)
        current.take(event)
    if current is not None:
        yield current


def _placed(alert: Event, found: Sequence[Incident]) -> bool:
    """Put an alert to every incident that it tells of; tell whether there is one."""
    placed = False
    for incident in found:
        if not alert.tenant or not incident.meanwhile(alert):
            continue
        if alert.tenant == incident.tenant:
            incident.evidence.append(alert)
        elif alert.tenant in incident.victims:
            incident.effects.append(alert)
        else:
            continue
        placed = True
    return placed
