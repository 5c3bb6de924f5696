"""Which kinds of paths a machine can have: tried, not guessed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from vigia.errors import VigiaError
from vigia.lab import ipsec, preflight, sriov
from vigia.lab.naming import Layout

__all__ = ["Capability", "examine"]


@dataclass(frozen=True)
class Capability:
    """A kind of path on this machine."""

    path: str
    possible: bool
    explanation: str
    """How it is done, or what is missing and the remedy."""


def examine() -> list[Capability]:
    """Return what this machine can do. Raises VigiaError if nothing can be tried."""
    kinds: tuple[tuple[str, Callable[[], str]], ...] = (
        ("direct", lambda: _kernel("veth")),
        ("linuxbridge-vxlan", lambda: _kernel("veth", "bridge", "vxlan")),
        ("ovs-vxlan", _ovs),
        ("ovs-gre", _ovs),
        ("ovs-openflow", _ovs),
        ("macvlan", lambda: _kernel("veth", "macvlan")),
        ("ipsec", _ipsec),
        ("sriov", _sriov),
    )
    found = []
    for path, attempt in kinds:
        try:
            found.append(Capability(path, True, attempt()))
        except VigiaError as e:
            found.append(Capability(path, False, str(e)))
    return found


def _kernel(*names: str) -> str:
    """Try to make the devices, in a namespace of their own. Raises VigiaError."""
    wanted = tuple(f for f in preflight.FEATURES if f.name in names)
    preflight.check_features(Layout(f"p{os.getpid() % 10**8}"), wanted)
    return f"kernel: {', '.join(names)}"


def _ovs() -> str:
    preflight.check_programs(preflight.OVS_PACKAGES)
    return f"Open vSwitch, {preflight.choose_datapath('auto')} datapath"


def _ipsec() -> str:
    preflight.check_programs(preflight.IPSEC_PACKAGES)
    return f"ESP by {ipsec.implementation()}, over any other path"


def _sriov() -> str:
    return sriov.describe(sriov.find())
