"""The corpus in short: a few of its entries against real enforcers. The whole of it: make test-attacks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from labkit import ROOT

from vigia.attacks import experiment
from vigia.attacks.corpus import CORPUS, LEGITIMATE, SHORT
from vigia.host import netns
from vigia.isolation.overlay import OverlaySwitch, OverlayTestbed

ENFORCER = ROOT / "bin" / "vigia-enforcer"
HONEST = {e.name for e in LEGITIMATE}


def meets(
    switch: OverlaySwitch, names: tuple[str, ...], *, seconds: float = 4.0, patience: float = 300.0
) -> None:
    """Each entry meets the requirement; where a run does not, the machine may have been busy: it is run again."""
    with OverlayTestbed(experiment.plan(), ENFORCER, switch, "debug") as bed:
        own = bed.fabric.removesuffix("f")
        assert netns.names(own)
        for name in names:
            entry = replace(CORPUS[name], seconds=seconds)
            deadline = time.monotonic() + patience
            while True:
                trial = experiment.run(bed, entry, honest=name in HONEST)
                wrong = experiment.faults(entry, trial, honest=name in HONEST)
                if not wrong or time.monotonic() > deadline:
                    break
            assert wrong == [], f"{trial}"
            assert (trial.limited is None) == (name in HONEST), f"{trial}"
    assert netns.names(own) == []


def test_attackers_are_limited_and_an_honest_tenant_is_not(root: None) -> None:
    meets(OverlaySwitch.LINUX_BRIDGE, SHORT)


def test_a_flood_and_an_honest_server_on_open_vswitch(root: None) -> None:
    meets(OverlaySwitch.OPENVSWITCH, ("one-port", "two-tenants", "dns"))


@pytest.mark.long
def test_the_others_on_open_vswitch(root: None) -> None:
    meets(OverlaySwitch.OPENVSWITCH, tuple(n for n in SHORT if n not in ("one-port", "dns")))


@pytest.mark.long
@pytest.mark.parametrize("switch", OverlaySwitch)
def test_a_flood_in_turns_that_goes_on(switch: OverlaySwitch, root: None) -> None:
    """What a flood gets when it looks over, again and again, shows after a while only. Run again, it might not."""
    meets(switch, ("alternating",), seconds=45.0, patience=0.0)
