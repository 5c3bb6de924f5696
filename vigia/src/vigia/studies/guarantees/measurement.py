"""E5: what two tenants get of one host's link, by who sends what and how they are kept apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vigia.campaign.model import Settings
from vigia.campaign.samples import Series
from vigia.campaign.testbed import Testbed
from vigia.isolation.model import IsolationPlan, Mode, TrafficFlow
from vigia.isolation.testbed import IsolationTestbed
from vigia.stack.places import built
from vigia.studies.study import Estimate, Factors, Measurement, level, scaled_links

__all__ = ["MEASUREMENT", "SHARES", "TRAFFIC", "Guarantees"]

SHARES: Mapping[str, float] = {"a": 0.75, "b": 0.25}
"""What each tenant is guaranteed of the link, each way."""

TRAFFIC: Mapping[str, tuple[str, int] | None] = {
    "none": None,
    "tcp-1": ("tcp", 1),
    "tcp-10": ("tcp", 10),
    "udp-1": ("udp", 1),
}
"""Level -> protocol and connections."""

_BUILD = 2.5  # seconds to make a testbed and start traffic
_FIRST = 1.0  # seconds from the beginning of traffic that are shown of themselves


class Guarantees(Measurement):
    """Host 1 has a guest of both tenants; hosts 2 and 3 have one each that sends to it, or receives.

    Every repetition makes a testbed of its own, beside the campaign's.
    """

    factors: Mapping[str, Sequence[str] | None] = {
        "control": tuple(m.value for m in Mode),
        "direction": ("receive", "send"),
        "a": tuple(TRAFFIC),
        "b": tuple(TRAFFIC),
    }

    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""
        seconds = settings.warm_up + settings.duration
        return Estimate(seconds + _BUILD, 2 * settings.limit * seconds)

    def described(self, settings: Settings) -> str:
        """Return how one repetition is made."""
        return self.scale(settings)

    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""
        plan = IsolationPlan(Mode(level(factors, "control")), SHARES, link=8 * settings.limit)
        flows = [f for t, peer in (("a", 2), ("b", 3)) if (f := _flow(t, peer, factors)) is not None]
        if not flows:
            return []
        with IsolationTestbed(plan, built("vigia-enforcer")) as made:
            outcomes = made.run(flows, settings.warm_up + settings.duration)
            found = {o.flow.tenant: o.mean(settings.warm_up) for o in outcomes}
            first = {o.flow.tenant: o.mean(0.0, _FIRST) for o in outcomes}
            bought = {t: made.guarantee(t) for t in SHARES}
        series = [Series(f"goodput_{t}", "bit/s", [rate]) for t, rate in found.items()]
        series += [Series(f"share_{t}", "ratio", [rate / bought[t]]) for t, rate in found.items()]
        series += [Series(f"first_{t}", "ratio", [rate / bought[t]]) for t, rate in first.items()]
        limit = plan.link * (1 - plan.headroom)
        return [*series, Series("used", "ratio", [sum(found.values()) / limit])]

    def scale(self, settings: Settings) -> str:
        """Return to what the links' rate is scaled, and when traffic counts."""
        counted = f"traffic is counted for {settings.duration:g} s after {settings.warm_up:g} s"
        return f"{scaled_links(settings)}; {counted}"


MEASUREMENT = Guarantees()


def _flow(tenant: str, peer: int, factors: Factors) -> TrafficFlow | None:
    what = TRAFFIC[level(factors, tenant)]
    if what is None:
        return None
    source, sink = (peer, 1) if level(factors, "direction") == "receive" else (1, peer)
    protocol, connections = what
    return TrafficFlow(tenant, source, sink, protocol, connections)
