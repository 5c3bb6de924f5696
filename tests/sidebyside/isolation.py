"""Isolation: Vigia's beside HTB alone, which lends, and beside no control."""

from __future__ import annotations

from collections.abc import Iterator

from sidebyside.figures import MORE, Figure
from sidebyside.part import Bench
from vigia.isolation import bench as isolation
from vigia.isolation.model import Mode

PEERS = {Mode.NONE: "no control", Mode.BORROWING: "HTB alone, at the sender and the receiver"}
NEUTRON = "not in: Neutron's own QoS needs its agents; make lab-openstack has them, on nodes of their own"


def beside(bench: Bench) -> Iterator[Figure]:
    """A victim's TCP and an offender's flood at one receiver, by mode in turn."""
    runs, seconds = (1, 3.0) if bench.short else (max(3, bench.repetitions), 6.0)
    found = {}
    for mode in (Mode.VIGIA, *PEERS):
        found[mode] = isolation.measure(mode, runs, seconds)
        bench.say(f"{mode.value}: the victim has {found[mode].victim:.2f} of its guarantee")
    ours = found[Mode.VIGIA]
    for mode, peer in PEERS.items():
        theirs = found[mode]
        yield _figure("victim, of its guarantee", ours.victims, peer, theirs.victims)
        yield _figure("victim in the flood's first second", ours.first_seconds, peer, theirs.first_seconds)
        yield _figure("link's limit that is used", ours.uses, peer, theirs.uses)
    yield _figure("victim, of its guarantee", ours.victims, "Neutron's QoS", (), NEUTRON)


def _figure(what: str, ours: object, peer: str, theirs: object, note: str = "") -> Figure:
    assert isinstance(ours, list | tuple) and isinstance(theirs, list | tuple)
    return Figure("isolation", what, "share", list(ours), peer, list(theirs), MORE, note)
