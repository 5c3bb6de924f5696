"""What a soak's samples say: which quantity grows faster than its limit, and what else went wrong."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Literal

from vigia.soak import limits
from vigia.soak.limits import Limit
from vigia.soak.record import ChurnEvent, Floats, SoakRecord
from vigia.soak.trend import TooFewError, Trend, trend

__all__ = ["Judgement", "Slope", "judge", "warm_up"]

_WARM_UP = 1 / 3
"""Hours that are left out at most."""
_WARM_UP_SHARE = 0.25

Verdict = Literal["within", "grows", "too short"]


def warm_up(hours: float) -> float:
    """Return the hours that are left out at the start: 20 minutes, or a quarter of a short run."""
    return min(_WARM_UP, hours * _WARM_UP_SHARE)


@dataclass(frozen=True)
class Slope:
    """How one quantity of one subject went."""

    subject: str
    limit: Limit
    verdict: Verdict
    trend: Trend | None
    """None if there were too few samples."""
    reason: str
    """Why it is not judged; empty if it is."""
    last: float
    """Value at the end."""

    @property
    def nearness(self) -> float:
        """Lower end of the interval by the limit: above 1 it grows too fast."""
        return self.trend.lower / self.limit.per_hour if self.trend else -math.inf


@dataclass(frozen=True)
class Judgement:
    """The verdict of a soak."""

    hours: float
    slopes: tuple[Slope, ...]
    restarts: int
    failures: tuple[ChurnEvent, ...]
    """Churn that failed."""
    done: dict[str, int]
    """How often each kind of churn was done without failing."""
    gaps: dict[str, int]
    """In how many samples something could not be read, by what it was."""

    @property
    def growing(self) -> list[Slope]:
        """What grows too fast."""
        return [s for s in self.slopes if s.verdict == "grows"]

    @property
    def passed(self) -> bool:
        """Whether nothing that was judged grows, nothing ended and all churn was done."""
        judged = any(s.verdict != "too short" for s in self.slopes)
        return judged and not (self.growing or self.restarts or self.failures)

    def as_json(self) -> dict[str, object]:
        """Return the verdict as data; an end of an interval that is not known is null."""
        return {
            "passed": self.passed,
            "hours": round(self.hours, 4),
            "restarts": self.restarts,
            "churn": self.done,
            "failures": [asdict(e) for e in self.failures],
            "gaps": self.gaps,
            "slopes": [_slope_json(s) for s in self.slopes],
        }


def _slope_json(s: Slope) -> dict[str, object]:
    found: dict[str, object] = {
        "quantity": s.limit.quantity,
        "subject": s.subject,
        "unit": s.limit.unit,
        "verdict": s.verdict,
        "reason": s.reason,
        "limit_per_hour": s.limit.per_hour,
        "last": s.last,
    }
    if s.trend is not None:
        t = s.trend
        ends = [x if math.isfinite(x) else None for x in (t.lower, t.upper)]
        found |= {"per_hour": t.slope, "interval": ends, "blocks": t.blocks, "dependence": t.dependence}
    return found


def judge(record: SoakRecord) -> Judgement:
    """Judge what was sampled so far."""
    block = record.plan.flood_seconds / 3600
    slopes = [
        _judged(subject, limit, series, record.hours, block)
        for (quantity, subject), series in record.series().items()
        if (limit := limits.of(quantity, subject)) is not None
    ]
    return Judgement(
        hours=record.hours,
        slopes=tuple(slopes),
        restarts=max((s.restarts for s in record.samples), default=0),
        failures=tuple(e for e in record.events if not e.ok),
        done=dict(sorted(Counter(e.what for e in record.events if e.ok).items())),
        gaps=dict(sorted(Counter(p.partition(":")[0] for s in record.samples for p in s.problems).items())),
    )


def _judged(subject: str, limit: Limit, series: tuple[Floats, Floats], length: float, block: float) -> Slope:
    """Judge one series of a run of so many hours, by blocks of so many."""
    hours, values = series
    kept = hours >= warm_up(length)
    last = float(values[-1])
    try:
        found = trend(hours[kept], values[kept], block)
    except TooFewError as e:
        return Slope(subject, limit, "too short", None, str(e), last)
    if length < limit.hours * 0.99:  # the last sample is a little before the end
        reason = f"judged from {limit.hours:g} h on"
        return Slope(subject, limit, "too short", found, reason, last)
    return Slope(subject, limit, "grows" if found.lower > limit.per_hour else "within", found, "", last)
