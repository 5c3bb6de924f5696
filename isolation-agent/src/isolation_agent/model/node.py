"""What an enforcer reports of its node: ports, what tenants offer, what the kernel sees, limits in force."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

__all__ = [
    "MOST_PORTS",
    "Amount",
    "Count",
    "Left",
    "Limit",
    "NodeState",
    "Offered",
    "PortState",
    "Reported",
    "Signals",
    "View",
]


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as e:
        raise PydanticCustomError("vigia", "is no instant in UTC") from e


Instant = Annotated[AwareDatetime, AfterValidator(_utc)]
Count = Annotated[int, Field(ge=0, lt=2**64)]
Left = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
"""Seconds until something ends: of bounded size, so that it can be added to any instant."""
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Reported(BaseModel):
    """Base of what an enforcer says; fields that the agent does not know are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Limit(Reported):
    """A limit as read back from the kernel."""

    id: str
    protocol: str
    rate_bytes_per_second: Count
    packets_per_second: Count | None = None
    new_flows_per_second: Count | None = None
    burst_bytes: Count = 0
    expires_in_seconds: Left
    policed_bytes: Count = 0
    policed_packets: Count = 0


class Offered(Reported):
    """UDP that the tenant sent in the last second or so, passed and policed together."""

    udp_bytes_per_second: Amount
    udp_packets_per_second: Amount = 0.0
    window_seconds: Amount = 0.0


class Signals(Reported):
    """What the kernel's flood detector sees."""

    flood_score: Amount = 0.0
    udp_packets: Amount = 0.0
    udp_destination_ports: Amount = 0.0
    udp_reply_ratio: Amount = 0.0
    flood_detected_at: Instant | None = None  # start of the newest flood, over or not
    flood_last_seen_at: Instant | None = None  # and its last sign; not every enforcer tells


class PortState(Reported):
    """One vport."""

    port: str
    tenant: str
    device: str = ""
    workload: str = ""  # whose port it is, for example a pod's; not every enforcer tells
    attached: bool = True
    hook: str = ""
    guarantee_bytes_per_second: Count | None = None  # None without a contract
    ceiling_bytes_per_second: Count | None = None
    pps_guarantee: Count | None = None  # packets per second; None without such a contract
    new_flows_guarantee: Count | None = None
    offered: Offered | None = None
    signals: Signals | None = None
    limit: Limit | None = None

    @property
    def guarantee(self) -> int:
        """The guarantee in bytes per second; 0 without a contract."""
        return self.guarantee_bytes_per_second or 0


MOST_PORTS = 16_384
"""Ports that a node can have: an enforcer has classes for fewer contracts."""


class NodeState(Reported):
    """Answer of GET /v1/state."""

    node: str
    time: Instant
    ports: list[PortState] = Field(max_length=MOST_PORTS)
    supports: frozenset[str] = frozenset()  # what this enforcer does beyond capping UDP
    term: Count = 0  # highest fencing term that it has seen
    complete: bool = True  # False: a port that is missing may be there; not every enforcer tells

    def find(self, port: str) -> PortState | None:
        """Return the port of that id."""
        return next((p for p in self.ports if p.port == port), None)


@dataclass(frozen=True)
class View:
    """What is known of a node in this tick: a fresh state, or why there is none."""

    state: NodeState | None
    error: str = ""
    asked: bool = True  # False while the back-off holds: this tick says nothing new
    accused: frozenset[str] = frozenset()  # ports that the fast loop holds back for a victim; if it was asked
