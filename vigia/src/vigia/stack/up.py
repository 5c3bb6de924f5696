"""Bringing the stack of a lab up, and waiting until all of it works."""

from __future__ import annotations

import time

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.lab import clouds, state
from vigia.stack import control
from vigia.stack.places import Places
from vigia_service.patience import Patience

__all__ = ["bring_up", "refuse"]

READY_SECONDS = 600.0
"""How long a service may take to work; generous, for slow machines and disks; one that ends has less."""

RECOVERS = 30.0
"""Seconds in which a service that does not answer may do so again, or be started again by its supervisor."""


def bring_up(present: state.State, steps: Steps) -> Places:
    """Start the stack of a lab unless it runs, and wait until all of it works. Raises VigiaError."""
    refuse(present.lab.name, present.cloud)
    with state.locked(present.lab.layout):
        return _bring_up(present, steps)


def refuse(lab: str, cloud: str) -> None:
    """Raise VigiaError if something else brings the stack of such a cloud."""
    instead = clouds.load(cloud).stack
    if instead:
        raise VigiaError(f"lab {lab} is the cloud {cloud}, which has its stack by another way: {instead}")


def _failing(where: Places) -> str:
    """Return what does not work, or nothing; a slow answer is no reason to remove what was measured."""
    patience = Patience(RECOVERS)
    while bad := [c for c in control.conditions(where) if c.problem]:
        if patience.over():
            return f"{bad[0].name}: {bad[0].problem}"
        time.sleep(0.2)
    return ""


def _bring_up(present: state.State, steps: Steps) -> Places:
    where = Places(present.lab.layout)
    if control.is_up(where):
        problem = _failing(where)
        if not problem:
            steps.line("the stack is already up")
            return where
        with steps.step("removing an unhealthy stack") as done:
            control.down(where)
            done.append(f"removed an unhealthy stack ({problem})")
    services = control.prepare(present.lab)
    with steps.step(f"starting {len(services)} services", total=len(services)) as done:
        control.start(where)
        ready = 0
        for _ in control.wait_ready(
            where, services, READY_SECONDS, lambda what: steps.line(f"still waiting for {what}")
        ):
            ready += 1
            done.advance()
        done.append(f"started {ready} services; all of them are ready")
    return where
