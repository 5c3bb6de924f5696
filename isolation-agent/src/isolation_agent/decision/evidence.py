"""What the source node shows of a flood. An alert alone is a reason to look, never proof."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from isolation_agent.clock import rfc3339
from isolation_agent.model.node import PortState, View
from vigia_text.numbers import quantity

__all__ = ["evidence_of", "flooding", "missing", "offered_load", "verified"]

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


def verified(view: View | None, port_id: str, offered_below: float) -> bool:
    """Tell whether an enforcer bears an alert out, the source's or the victim's.

    The source's does if its kernel sees a flood now. The victim's has complained of the port if the fast
    loop holds it back, which counts while the port sends beyond what its tenant bought.
    """
    if flooding(view, port_id, offered_below):
        return True
    if view is None or view.state is None or port_id not in view.accused:
        return False
    port = view.state.find(port_id)
    offered = offered_load(port)
    return port is not None and offered is not None and offered > port.guarantee > 0


def missing(port: PortState | None) -> str:
    """Say what an alert that is not borne out lacks."""
    offered, guarantee = offered_load(port), port.guarantee if port else 0
    load = "an unknown load"
    if offered is not None:
        sent, bought = (quantity(v, "bytes_per_second") for v in (offered, guarantee))
        load = f"{sent} of the {bought} that it bought"
    return (
        f"the alert alone asks for it: the port sends {load}, its enforcer sees no flood, no victim complains"
    )


def evidence_of(view: View, port: PortState | None) -> dict[str, Any]:
    """Return what the enforcer shows of the port, for the record."""
    if view.state is None or port is None:
        return {"error": view.error or "the port is not in the enforcer's inventory"}
    shown = port.model_dump(mode="json", exclude={"limit"})
    if port.signals is not None:
        for name in ("flood_detected_at", "flood_last_seen_at"):
            shown["signals"][name] = rfc3339(getattr(port.signals, name))
    return {"node_time": rfc3339(view.state.time), **shown}
