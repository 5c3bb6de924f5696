"""What is wrong with a lab's Neutron, beside what can be seen of every lab."""

from __future__ import annotations

from vigia.errors import VigiaError
from vigia.lab.model import Lab
from vigia.lab.neutron import guest
from vigia.lab.neutron.api import Neutron
from vigia.lab.neutron.places import Driver, NeutronPlaces

__all__ = ["problems"]


def problems(lab: Lab, driver: Driver) -> list[str]:
    """Return a line for each agent that is not alive and each port that does not work."""
    neutron = Neutron(NeutronPlaces(lab.layout), driver)
    try:
        alive = {a["host"] for a in neutron.listed("agents") if a["alive"]}
        active = {p["id"] for p in neutron.listed("ports", status="ACTIVE", fields="id")}
    except VigiaError as e:
        return [f"Neutron does not answer: {e}"]
    found = [f"node {n.name}: Neutron's agent is not alive" for n in lab.nodes if n.name not in alive]
    own = guest.read(lab)
    ports = [*(e.port for e in lab.endpoints), *([own.port] if own is not None else [])]
    return found + [f"port {port}: not active in Neutron" for port in ports if port not in active]
