"""What the source node shows of a flood. An alert alone is a reason to look, never proof."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from isolation_agent.clock import rfc3339
from isolation_agent.model.node import PortState, View

__all__ = ["evidence_of", "flooding", "offered_load"]

_FRESH = timedelta(seconds=5)
"""Age up to which the last sign of a flood in the kernel is evidence that it goes on."""


def offered_load(port: PortState | None) -> float | None:
    """Return the UDP load that the tenant offers, in bytes per second; None if it is not known."""
    return port.offered.udp_bytes_per_second if port and port.attached and port.offered else None


def flooding(view: View | None, port_id: str, offered_below: float) -> bool:
    """Tell whether the source shows a flood: the kernel sees one now, and the load would keep a limit."""
    state = view.state if view else None
    port = state.find(port_id) if state else None
    offered = offered_load(port)
    if state is None or port is None or port.signals is None or not offered:
        return False
    since, last = port.signals.flood_detected_at, port.signals.flood_last_seen_at
    if since is None or (last is not None and state.time - last > _FRESH):  # one clock, the node's
        return False
    return offered >= offered_below * port.guarantee


def evidence_of(view: View, port: PortState | None) -> dict[str, Any]:
    """Return what the enforcer shows of the port, for the record."""
    if view.state is None or port is None:
        return {"error": view.error or "the port is not in the enforcer's inventory"}
    shown = port.model_dump(mode="json", exclude={"limit"})
    if port.signals is not None:
        for name in ("flood_detected_at", "flood_last_seen_at"):
            shown["signals"][name] = rfc3339(getattr(port.signals, name))
    return {"node_time": rfc3339(view.state.time), **shown}
