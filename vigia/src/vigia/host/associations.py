"""IPsec associations of this machine: the kernel's and strongSwan's, by their SPIs (RFC 4301).

Others than a moment ago mean that a path was rekeyed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands

__all__ = ["VICI", "all_of", "in_kernel", "of_strongswan"]

VICI = Path("/run/charon.vici")
"""Where strongSwan listens unless told otherwise."""

_MOST = 4096
_KERNEL = re.compile(r"^\s+proto esp spi 0x([0-9a-f]{8})", re.MULTILINE)
_STRONGSWAN = re.compile(r"^\s+(?:in|out)\s+([0-9a-f]{8})", re.MULTILINE)


def in_kernel(netns: str | None) -> frozenset[str]:
    """Return the SPIs of the kernel's ESP associations in a namespace. Raises VigiaError."""
    return frozenset(_KERNEL.findall(commands.run(["ip", "xfrm", "state"], netns=netns).stdout))


def of_strongswan(vici: Path, env: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the SPIs of the ESP associations of the strongSwan behind a socket. Raises VigiaError."""
    argv = ["swanctl", "--list-sas", "--uri", f"unix://{vici}"]
    return frozenset(_STRONGSWAN.findall(commands.run(argv, env=env).stdout))


def all_of(namespaces: Sequence[str], sockets: Sequence[Path]) -> dict[str, list[str]]:
    """Return what can be seen: SPIs by place, those of the machine itself by "". At most 4096 of each.

    A place that cannot be looked at is left out: no right to, no such namespace, no strongSwan there.
    """
    found: dict[str, set[str]] = {}
    for place in (None, *namespaces):
        try:
            spis = in_kernel(place)
        except VigiaError:
            continue
        found.setdefault(place or "", set()).update(spis)
    for socket in sockets:
        if socket.exists():
            try:
                spis = of_strongswan(socket)
            except VigiaError:
                continue
            found.setdefault("", set()).update(spis)
    return {place: sorted(spis)[:_MOST] for place, spis in found.items()}
