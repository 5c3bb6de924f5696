"""The clouds that a lab can be: a row here and a module of that name beside this one make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vigia.console import Steps
    from vigia.lab.model import Datapath, Lab
    from vigia.lab.naming import Layout

__all__ = ["CLOUDS", "PLAIN", "BuildStep", "Cloud", "daemons", "load", "removers"]

PLAIN = "plain"

CLOUDS: Mapping[str, str] = {
    PLAIN: "virtual switches that the lab sets up by itself",
    "kubernetes": "a cluster of Kubernetes with a node on each of the lab's",
    "neutron-ovn": "OpenStack's Neutron with OVN",
    "neutron-ovs": "OpenStack's Neutron with agents for Open vSwitch, and Keystone",
    "neutron-linuxbridge": "OpenStack's Neutron with agents for Linux bridges, and Keystone",
}
"""Name of each cloud, as --cloud has it, and what controls its network. A module has _ for the name's -."""

BuildStep = tuple[str, "Callable[[Lab, Datapath], str]"]
"""What is being done, and the function that does it and returns what was done; "" is not shown."""


@dataclass(frozen=True)
class Cloud:
    """How a lab comes into being: its module's CLOUD."""

    check: Callable[[Lab, Datapath], None]
    """Raises VigiaError for the first thing that the machine lacks; makes nothing."""
    build: Sequence[BuildStep]
    """In this order. A step that fails makes everything go, so each leaves only what lab.down finds."""
    daemons: Sequence[str]
    """Programs that it starts with files of the lab on their command lines, in the order in which they are
    stopped; what runs in the lab's namespaces is found by those."""
    expected: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a step takes, by what is being done, where somebody may wait for it."""
    prepare: Callable[[Steps], None] = lambda steps: None
    """Gets what takes long and belongs to no lab, programs for example; asked first, and may be stopped."""
    known: Callable[[Lab], Lab] = lambda lab: lab
    """The lab with what the cloud chose, names of ports and devices; as it is while the cloud has none."""
    problems: Callable[[Lab], list[str]] = lambda lab: []
    """A line for each thing that is wrong in a lab that is up, beside what can be seen of every lab."""
    remove: Callable[[Layout], list[str]] = lambda layout: []
    """Removes what neither namespaces nor the run directory hold, and says what that was."""
    stack: str = ""
    """What brings the monitoring stack, where that is not `vigia stack up`."""
    topology: str = "demo"
    """The topology without --topology, by its name in lab/topologies."""


def load(name: str) -> Cloud:
    """Return a cloud of the table."""
    found: Cloud = import_module(f"vigia.lab.clouds.{name.replace('-', '_')}").CLOUD
    return found


def daemons() -> list[str]:
    """Return the daemons of all clouds: a lab is removed without knowing which one it was."""
    return list(dict.fromkeys(program for name in CLOUDS for program in load(name).daemons))


def removers() -> list[Callable[[Layout], list[str]]]:
    """Return what removes the rest of a lab, of all clouds."""
    return [load(name).remove for name in CLOUDS]
