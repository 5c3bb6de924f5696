"""A soak from its beginning to its end: nothing of it is left, whatever ends it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host.signals import Deferred, deferred
from vigia.lab import down as lab_down
from vigia.lab import model, naming, state, topology
from vigia.lab import up as lab_up
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia.soak import record
from vigia.soak.churn import Churn
from vigia.soak.record import ChurnEvent, SoakPlan, SoakRecord
from vigia.soak.sampler import Sampler
from vigia.stack import control, places
from vigia.stack import up as stack_up
from vigia.stack.places import Places

__all__ = ["Wanted", "lab_named", "soak"]

AGENTS = "127.84.0.0/24"
STACK = "127.84.0.250"
_PAUSE = 0.5  # seconds until a signal is noticed


def lab_named(name: str) -> Lab:
    """Return the demo's lab under another name, with addresses of its own. Raises OptionError."""
    naming.layout_of(name)
    given = topology.default().model_dump(mode="json")
    given |= {"name": name, "agents": AGENTS, "stack_address": STACK}
    return model.resolve(topology.Topology.model_validate(given))


class Wanted:
    """What is to be run, and where it is written."""

    def __init__(
        self, name: str, hours: float, sample_seconds: float, flood_seconds: float, folder: Path
    ) -> None:
        self.lab = lab_named(name)
        self.hours = hours
        self.sample_seconds = sample_seconds
        self.flood_seconds = flood_seconds
        self.folder = folder

    def plan(self, version: str) -> SoakPlan:
        """Return the plan of a run that begins now."""
        return SoakPlan(
            self.lab.name,
            self.hours,
            self.sample_seconds,
            self.flood_seconds,
            time.time(),
            version,
            os.cpu_count() or 1,
        )


def soak(wanted: Wanted, version: str, steps: Steps) -> SoakRecord:
    """Bring the stack up, sample it under churn, remove it, and return what was recorded. Raises VigiaError.

    A soak of the same lab that was killed is removed first. SIGINT, SIGTERM and SIGHUP end it
    early, with Interrupted; what was sampled until then stays.
    """
    places.find_programs()
    if (wanted.folder / "plan.json").exists():
        raise VigiaError(f"--output {wanted.folder} has a soak already; choose another folder")
    with _alone(wanted.lab), deferred() as stop:
        _refuse_others(wanted.lab)
        _remove(wanted.lab, steps)
        try:
            present = lab_up.bring_up(wanted.lab, "auto", steps)
            stop.check()
            where = stack_up.bring_up(present, steps)
            stop.check()
            kept = record.create(wanted.folder, wanted.plan(version))
            steps.line(f"samples and events go to {wanted.folder}")
            _run(kept, present, where, steps, stop)
        finally:
            _remove(wanted.lab, steps)
    return record.read(wanted.folder)


@contextmanager
def _alone(lab: Lab) -> Iterator[None]:
    """Hold a lock that no other soak of this lab holds; it is free when this process has ended."""
    with state.locked(Layout(f"{lab.name}.soak", lab.layout.root)):
        yield


def _refuse_others(lab: Lab) -> None:
    """Leave alone a lab of that name that was not made by a soak. Raises VigiaError."""
    present = state.read(lab.layout)
    if present is not None and present.lab.topology != lab.topology:
        raise VigiaError(
            f"lab {lab.name} is up and not a soak's; give --lab another name, "
            f"or remove it: vigia down --lab {lab.name}"
        )


def _remove(lab: Lab, steps: Steps) -> None:
    with state.locked(lab.layout):
        stopped = control.down(Places(lab.layout))
        removed = lab_down.remove(lab.layout)
    if stopped or removed.anything:
        steps.line(f"removed lab {lab.name}: {stopped} processes of the stack, {removed}")


def _run(kept: SoakRecord, present: state.State, where: Places, steps: Steps, stop: Deferred) -> None:
    plan = kept.plan
    seconds = plan.hours * 3600
    ended = threading.Event()

    def tell(event: ChurnEvent) -> None:
        kept.happened(event)
        if event.what == "flood" or not event.ok:
            steps.line(event.detail if event.ok else f"cannot do this churn: {event.what}: {event.detail}")

    churn = Churn(present.lab, present.datapath, where, tell, plan.flood_seconds)
    thread = threading.Thread(target=churn.run, args=(ended,), name="churn")
    begin = time.monotonic()
    samples = 0
    with (
        Sampler(present.lab, where) as sampler,
        steps.step(f"soaking for {plan.hours:g} h", expected=seconds) as done,
    ):
        thread.start()
        try:
            while (gone := time.monotonic() - begin) < seconds:
                kept.sampled(sampler.sample())
                samples += 1
                following = begin + (gone // plan.sample_seconds + 1) * plan.sample_seconds
                while (left := min(following, begin + seconds) - time.monotonic()) > 0:
                    stop.check()
                    time.sleep(min(left, _PAUSE))
                stop.check()
                if not thread.is_alive():
                    raise VigiaError("the churn ended early; this is a defect of the soak")
        finally:
            ended.set()
            thread.join()
            done.append(f"took {samples} samples in {(time.monotonic() - begin) / 3600:.2f} h")
