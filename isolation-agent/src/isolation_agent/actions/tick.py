"""What one turn of the controller knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from isolation_agent.config import Loop, Settings
from isolation_agent.enforcers.fleet import Fleet
from isolation_agent.model.node import View
from isolation_agent.policy import MANUAL_POLICY, AllowEntry
from isolation_agent.storage.tables import Action, Episode

__all__ = ["Tick"]


@dataclass
class Tick:
    """Settings, what the nodes show, and what is on record, as of the beginning of the turn."""

    settings: Settings
    fleet: Fleet
    kill_switch: bool
    now: datetime
    views: Mapping[str, View]
    reasons: defaultdict[int, list[tuple[str, Episode]]]  # by action: policy and episode
    held: dict[tuple[str, str], Action]  # actions with a limit in force or under way, by node and port
    recent: Counter[str] = field(default_factory=Counter)  # limits that ended lately, by tenant
    tenants: int = 0  # known to the enforcers
    breaker: str = ""  # why the breaker has tripped, if it has
    allowed: Sequence[AllowEntry] = ()  # entries of the allow list that were added at run time
    cleared: Mapping[str, View] = field(default_factory=dict)  # nodes whose limits were all removed just now
    harm: Sequence[Episode] = ()  # firing alerts that show harm to others

    @property
    def loop(self) -> Loop:
        """Timing of the controller."""
        return self.settings.config.controller

    def wanted(self, action: Action) -> bool:
        """Tell whether somebody still asks for the action: an alert that fires, or a person."""
        return action.policy == MANUAL_POLICY or bool(self.firing(action))

    def firing(self, action: Action) -> list[tuple[str, Episode]]:
        """Return the policies and episodes that still speak for the action."""
        return [(p, e) for p, e in self.reasons[action.seq] if self.speaks(e)]

    def speaks(self, episode: Episode) -> bool:
        """Tell whether an episode still counts: firing, and heard of lately."""
        timeout = timedelta(seconds=self.loop.episode_timeout)
        return episode.status == "firing" and self.now - episode.last_seen < timeout

    def is_old(self, instant: datetime) -> bool:
        """Tell whether an instant is further from now than max_alert_age, before or after: clocks differ."""
        return abs(self.now - instant) > timedelta(seconds=self.loop.max_alert_age)
