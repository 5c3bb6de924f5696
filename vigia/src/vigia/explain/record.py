"""The records that vigia-probe serves under /v1/moments; probes/moment says what each field means."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vigia_json import JsonError, loads

__all__ = ["FarEnd", "Hop", "Hops", "HostState", "Moment", "Page", "PathMTU", "Queue", "page"]

MAX_ANSWER = 8 << 20
_MAX_TEXT = 512


class _Part(BaseModel):
    """Fields that a later version adds are left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True, str_max_length=_MAX_TEXT)


class Hop(_Part):
    """One hop of a trace."""

    hop: int
    outcome: str
    address: str = ""
    rtt_seconds: float = 0.0
    says: str = ""
    mtu_bytes: int = 0
    unverified: bool = False


class FarEnd(_Part):
    """What packets that went all the way showed of the other end."""

    asked: int
    answered: int
    dscp: int | None = None
    hops: int | None = None
    return_dscp: int | None = None
    rtt_seconds: float = 0.0


class Hops(_Part):
    """A trace of a target's own flow."""

    origin: str = Field("", alias="from")
    to: str = ""
    dscp: int = 0
    hops: tuple[Hop, ...]
    reached: bool = False
    far_end: FarEnd | None = None
    packets: int = 0
    error: str = ""

    def at(self, number: int) -> Hop | None:
        """Return a hop by its number."""
        return self.hops[number - 1] if 0 < number <= len(self.hops) else None

    @property
    def last(self) -> Hop | None:
        """The last hop that answered."""
        return next((h for h in reversed(self.hops) if h.outcome != "silent"), None)


class PathMTU(_Part):
    """A search of the path MTU."""

    size: int = Field(0, alias="bytes")
    at_most: bool = False
    outcome: str
    reported_bytes: int = 0
    packets: int = 0
    error: str = ""


class Queue(_Part):
    """A queueing discipline that has dropped packets."""

    netns: str = ""
    device: str
    kind: str
    handle: str
    dropped: int
    backlog_bytes: int = 0

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What it is known by."""
        return self.netns, self.device, self.kind, self.handle


class HostState(_Part):
    """The state of the probing host; counters are since its start."""

    load1: float
    processors: int
    cpu_pressure: float
    steal: float
    softnet_dropped: int
    socket_dropped: int
    send_refused: int
    queues: tuple[Queue, ...] = ()
    error: str = ""


class Outcomes(_Part):
    """What became of the probes just before."""

    seconds: float
    settled: int
    lost: dict[str, int] = {}
    median_rtt_seconds: float = 0.0
    max_rtt_seconds: float = 0.0


class Moment(_Part):
    """One record of a target."""

    src: str
    dst: str
    path: str
    tenant: str
    probe: str
    time: datetime
    seconds: float
    why: str
    outcomes: Outcomes
    hops: Hops
    beneath: Hops | None = None
    beneath_path: str = ""
    path_mtu: PathMTU
    host: HostState
    host_after: HostState
    last_good: Moment | None = None

    @property
    def target(self) -> tuple[str, str, str, str, str]:
        """Whose it is: src, dst, path, tenant, probe."""
        return self.src, self.dst, self.path, self.tenant, self.probe


class Page(_Part):
    """What a node serves: bad records, the newest first, and the last good one of each target."""

    node: str
    moments: tuple[Moment, ...]
    good: tuple[Moment, ...]


def page(raw: bytes) -> tuple[Page, dict[str, Any]]:
    """Return a page, and the same as it was sent. Raises JsonError."""
    sent = loads(raw, max_size=MAX_ANSWER)
    if not isinstance(sent, dict):
        raise JsonError("the page is no object")
    try:
        return Page.model_validate_json(raw), sent
    except ValueError as e:
        first = e.errors(include_url=False, include_input=False)[0] if hasattr(e, "errors") else {}
        where = ".".join(map(str, first.get("loc", ())))
        raise JsonError(f"{where or 'the page'}: {first.get('msg', 'is no page of records')}") from e
