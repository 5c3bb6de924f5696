"""The limit that a level of the ladder asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from isolation_agent.model.node import PortState
from isolation_agent.policy import Policy
from vigia_text.numbers import quantity

__all__ = ["LimitSpec", "effective_level", "relaxed", "spec_of"]


@dataclass(frozen=True)
class LimitSpec:
    """A limit as a level asks for it. Rates in bytes per second, packets and new flows in 1/s."""

    protocol: str
    rate: int
    packets: int | None = None
    new_flows: int | None = None
    needs: tuple[str, ...] = ()  # what the enforcer has to support

    def fields(self) -> dict[str, Any]:
        """Return the fields of the enforcer's contract, those that are set."""
        named = {
            "protocol": self.protocol,
            "rate_bytes_per_second": self.rate,
            "packets_per_second": self.packets,
            "new_flows_per_second": self.new_flows,
        }
        return {k: v for k, v in named.items() if v is not None}

    def describe(self, port: str) -> str:
        """Return in words what the limit does to a port."""
        if self.rate == 0:
            return f"drop all but TCP of {port}"
        what = f"shape everything of {port}" if self.protocol == "all" else f"cap all but TCP of {port}"
        counts = [(self.packets, "packets/s"), (self.new_flows, "new flows/s")]
        caps = [quantity(self.rate, "bytes_per_second"), *(f"{n} {unit}" for n, unit in counts if n)]
        return f"{what} at the guarantee of {' and '.join(caps)}"


def spec_of(level: str, port: PortState | None) -> LimitSpec:
    """Return the limit of a level from L1 on, at what the tenant bought."""
    guarantee = port.guarantee if port else 0
    if level == "L1":
        return LimitSpec("all", guarantee, needs=("all",))
    if level == "L3":
        packets = port.pps_guarantee if port else None
        flows = port.new_flows_guarantee if port else None
        return LimitSpec("udp", guarantee, packets, flows, needs=("packets",))
    if level == "L4":
        return LimitSpec("udp", 0, needs=("below_floor",))
    return LimitSpec("udp", guarantee)


def relaxed(spec: LimitSpec, port: PortState) -> LimitSpec:
    """Return a limit that the tenant would not feel unless the flood came back."""
    room = max(port.ceiling_bytes_per_second or 0, 2 * port.guarantee, 1)
    return replace(spec, rate=room, packets=None, new_flows=None, needs=())


def effective_level(policy: Policy, labels: Mapping[str, str]) -> str:
    """Return the policy's level; L0 unless the alert asks for an action or for a person's approval of one."""
    return policy.level if labels.get("isolate") in ("auto", "approve") else "L0"
