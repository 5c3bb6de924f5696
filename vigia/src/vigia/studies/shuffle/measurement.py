"""E5: how long an all-to-all job takes among pairs that compete with it, by how they are kept apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from vigia.campaign.model import Settings
from vigia.campaign.samples import Series
from vigia.campaign.testbed import Testbed
from vigia.isolation.model import IsolationPlan, Mode, ShuffleJob, ShuffleOutcome, TrafficFlow
from vigia.isolation.testbed import IsolationTestbed
from vigia.stack.places import built
from vigia.studies.study import Estimate, Factors, Measurement, level, scaled_links

__all__ = ["AGAINST", "MEASUREMENT", "Shuffle"]

AGAINST: Mapping[str, tuple[str, int] | None] = {"none": None, "tcp-10": ("tcp", 10), "udp-1": ("udp", 1)}
"""Level -> protocol and connections of each competing pair."""

_BUILD = 6.5  # seconds to make a testbed of 26 hosts and start traffic
_SETTLES = 1.5  # seconds of a job that no rate explains: connections that are made, the last machine
_UNCONTROLLED = 0.1  # part of its links that a job has among competitors without control (docs/examples/e5-b)


class Shuffle(Measurement):
    """Every host has a machine of the job and one of the other tenant; hosts 1 and 2, 3 and 4, ... compete.

    Every repetition makes a testbed of its own, beside the campaign's.
    """

    factors: Mapping[str, Sequence[str] | None] = {
        "control": tuple(m.value for m in Mode),
        "guarantee": ("25", "50", "75"),
        "against": tuple(AGAINST),
    }

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs, by what the job can have of its links."""
        against, control = level(factors, "against"), level(factors, "control")
        share = int(level(factors, "guarantee")) / 100
        if control == Mode.NONE.value:
            share = 1.0 if against == "none" else _UNCONTROLLED
        elif control != Mode.RIGID.value and against == "none":
            share = 1.0
        fetched = settings.partition * (settings.hosts - 1)
        seconds = min(1.15 * fetched / (0.95 * settings.limit * share) + _SETTLES, settings.duration)
        competing = 2 * settings.limit * (settings.hosts // 2) if AGAINST[against] else 0
        return Estimate(
            seconds + _BUILD * settings.hosts / 26, fetched * settings.hosts + competing * seconds
        )

    def described(self, settings: Settings) -> str:
        """Return how one repetition is made."""
        return f"{self.scale(settings)}; the job is given up after {settings.duration:g} s"

    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""
        share = int(level(factors, "guarantee")) / 100
        shares = {"job": share, "other": 1 - share}
        plan = IsolationPlan(
            Mode(level(factors, "control")), shares, settings.hosts, 8 * settings.limit, queue=settings.queue
        )
        job = ShuffleJob("job", settings.partition, settings.duration)
        with IsolationTestbed(plan, built("vigia-enforcer")) as made:
            outcome = made.run_job(job, _pairs(settings.hosts, level(factors, "against")))
            return _series(outcome, made.guarantee("job"), made.guarantee("other"))

    def scale(self, settings: Settings) -> str:
        """Return how many hosts there are, what their links' rate is scaled to, and the job's size."""
        return (
            f"{settings.hosts} hosts, {scaled_links(settings)}; "
            f"{settings.partition} bytes from each machine to each other one"
        )


MEASUREMENT = Shuffle()


def _pairs(hosts: int, against: str) -> list[TrafficFlow]:
    what = AGAINST[against]
    if what is None:
        return []
    protocol, connections = what
    return [TrafficFlow("other", h, h + 1, protocol, connections) for h in range(1, hosts, 2)]


def _series(outcome: ShuffleOutcome, job: float, other: float) -> list[Series]:
    took = math.nan if outcome.seconds is None else outcome.seconds
    series = [
        Series("job", "s", [took]),
        Series("fetched", "ratio", [outcome.fetched]),
        Series("share_job", "ratio", [outcome.goodput / job]),
    ]
    if outcome.competitors:
        series.append(Series("share_other", "ratio", [statistics.fmean(outcome.competitors) / other]))
    return series
