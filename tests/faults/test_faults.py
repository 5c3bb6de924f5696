"""Every fault of the list, done to one site under load; what holds after each is in invariants.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from labkit import Machine, need_root

from faults import catalogue
from faults.invariants import Moment, check, plant, recovered, stored
from faults.load import loaded
from faults.registry import Fault, Scene
from faults.site import LAB, SETTLED, lab, remove, running
from vigia.stack.places import Places
from vigia_testing import eventually

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """The site, working and under load, with objects of somebody else beside ours."""
    need_root()
    remove(Places(lab().layout))
    before = _left()
    with ExitStack() as stack:
        site = stack.enter_context(running())
        plant(site)
        found = Scene(site, stack.enter_context(loaded(site)), {})
        eventually(lambda: len(found.load.acknowledged) > 4, "alerts to be acknowledged", SETTLED)
        eventually(lambda: len(site.query("up == 1")) == 18, "all to be scraped", SETTLED)
        eventually(
            lambda: stored(site).get("vigia_probe_rtt_seconds", 0) >= 100, "all paths to be measured", SETTLED
        )
        found.stored.update(stored(site))
        yield found
    assert _left() == before


def _left() -> tuple[list[str], ...]:
    """What the lab could leave behind; other tests run beside this one."""
    now = Machine.now(LAB)
    return now.namespaces, now.processes, now.run


def suffer(fault: Fault, scene: Scene) -> None:
    eventually(lambda: all(scene.site.pids().values()), "every service to run", SETTLED)
    before = Moment.of(scene.site)
    begin = time.monotonic()
    with contextmanager(fault.course)(scene):
        noticed = time.monotonic()
    recovered(scene.site, before)
    well = time.monotonic()
    check(scene, before, fault.expected)
    print(f"{fault.name}: noticed after {noticed - begin:.1f} s, all well after {well - begin:.1f} s")


_CASES = [
    pytest.param(f, id=f.name, marks=[pytest.mark.long] if f.short else []) for f in catalogue.all_faults()
]
"""The long tests of the gate have those of the short form; `make test-faults` has all."""


@pytest.mark.parametrize("fault", _CASES)
def test_the_site_survives(fault: Fault, scene: Scene) -> None:
    suffer(fault, scene)


@pytest.mark.long
def test_afterwards_prometheus_has_all_that_it_had(scene: Scene) -> None:
    """After the last fault, and whichever went before: each series is scraped again, under the names that it had."""
    wanted = scene.stored
    eventually(
        lambda: stored(scene.site) == wanted, lambda: f"{wanted} series, now {stored(scene.site)}", SETTLED
    )
    eventually(lambda: not scene.site.query("up == 0"), "all to be scraped", SETTLED)
