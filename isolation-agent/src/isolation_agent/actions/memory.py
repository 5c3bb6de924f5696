"""What the controller remembers between turns. All of it can be lost: the database has what counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from isolation_agent.clock import Clock

__all__ = ["ActionKey", "Cooldowns", "Watch"]

ActionKey = tuple[str, str, str, str]
"""Policy, node, port and tenant: what makes two actions the same."""


@dataclass
class Watch:
    """What is remembered of an action between ticks, on the monotonic clock."""

    expires: float  # when the kernel ends the limit by itself, at the latest
    failures: int = 0
    retry_at: float = 0.0
    below_since: float | None = None
    below_at: datetime | None = None
    relaxed_since: float | None = None
    harm_since: float | None = None
    waiting_since: float | None = None  # for a person
    reported: set[str] = field(default_factory=set)  # what is in the timeline already, once

    def reset_hold(self) -> None:
        """Forget since when the load has been low."""
        self.below_since = self.below_at = None


class Cooldowns:
    """When actions ended, on the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: dict[ActionKey, float] = {}

    def ended(self, key: ActionKey, seconds_ago: float = 0.0) -> None:
        """Remember that an action of that key ended; an end in the future counts as now."""
        self._ended[key] = self._clock.monotonic() - max(0.0, seconds_ago)

    def left(self, key: ActionKey, cooldown: float) -> float:
        """Return how many seconds of the cooldown are left."""
        ended = self._ended.get(key)
        return 0.0 if ended is None else max(0.0, ended + cooldown - self._clock.monotonic())

    def forget(self, older_than: float) -> None:
        """Drop ends that no cooldown reaches back to."""
        limit = self._clock.monotonic() - older_than
        self._ended = {k: t for k, t in self._ended.items() if t >= limit}
