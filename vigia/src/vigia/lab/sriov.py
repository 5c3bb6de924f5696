"""Virtual functions of network cards (SR-IOV), as the kernel shows them in sysfs.

The lab takes those that nobody uses, which are down, and makes none: how many a
card has is its owner's business. When a machine is removed the kernel puts its
function back, under its own name.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from vigia.errors import VigiaError

__all__ = ["SYSFS", "PhysicalFunction", "describe", "find", "take"]

SYSFS = Path("/sys/class/net")

_IFF_UP = 0x1


@dataclass(frozen=True)
class PhysicalFunction:
    """A device that can have virtual functions."""

    device: str
    most: int
    """Functions that it can have."""
    made: int
    free: tuple[str, ...]
    """Devices of its functions that are here and down."""


def find(sysfs: Path = SYSFS) -> list[PhysicalFunction]:
    """Return the devices of this network namespace that can have virtual functions."""
    here = {name for _, name in socket.if_nameindex()}
    return [
        PhysicalFunction(
            device=file.parent.parent.name,
            most=_number(file.with_name("sriov_totalvfs")),
            made=_number(file),
            free=tuple(f for f in _functions(file.parent) if f in here and not _up(sysfs / f)),
        )
        for file in sorted(sysfs.glob("*/device/sriov_numvfs"))
    ]


def _functions(device: Path) -> list[str]:
    """Return the network devices of a card's functions, in the order of the functions."""
    folders = sorted(device.glob("virtfn*"), key=lambda p: int(p.name.removeprefix("virtfn") or 0))
    return [name.name for folder in folders for name in sorted(folder.glob("net/*"))]


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _up(device: Path) -> bool:
    """Whether a device is up; one that cannot be read is taken for used."""
    try:
        return bool(int((device / "flags").read_text(), 16) & _IFF_UP)
    except (OSError, ValueError):
        return True


def describe(found: list[PhysicalFunction]) -> str:
    """Return which functions the lab can use. Raises VigiaError with what is missing and the remedy."""
    if not found:
        raise VigiaError(
            f"no device can have virtual functions (there is no {SYSFS}/*/device/sriov_numvfs); "
            "a path of kind macvlan bypasses the switch instead, and is called so"
        )
    free = [f"{f} of {p.device}" for p in found for f in p.free]
    if len(free) >= 2:
        return f"virtual functions {', '.join(free)}"
    for p in found:
        if p.made < 2 <= p.most:
            raise VigiaError(
                f"{p.device} has {p.made} of {p.most} virtual functions and a path needs two; "
                f"run: echo 2 > {SYSFS}/{p.device}/device/sriov_numvfs"
            )
    names = ", ".join(p.device for p in found)
    raise VigiaError(f"the virtual functions of {names} are up or elsewhere; free two: ip link set VF down")


def take(count: int, device: str | None, sysfs: Path = SYSFS) -> list[str]:
    """Return so many free functions of one card, or of the one of that name. Raises VigiaError."""
    cards = find(sysfs)
    if device is not None:
        cards = [p for p in cards if p.device == device]
        if not cards:
            known = ", ".join(p.device for p in find(sysfs)) or "none"
            raise VigiaError(f"{device} has no virtual functions; devices that have: {known}")
    for card in cards:
        if len(card.free) >= count:
            return list(card.free[:count])
    describe(cards)
    raise VigiaError(
        f"{count} virtual functions of one card are needed; there are "
        + ", ".join(f"{len(p.free)} free ones of {p.device}" for p in cards)
    )
