"""Bringing a lab up, all of it or nothing."""

from __future__ import annotations

import time

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import netns
from vigia.host.signals import Deferred, deferred
from vigia.lab import clouds, down, optional, preflight, state, status
from vigia.lab.model import Datapath, Lab
from vigia.lab.preflight import Wish
from vigia.lab.state import Phase, State

__all__ = ["bring_up"]


def bring_up(lab: Lab, wish: Wish, steps: Steps, cloud: str = clouds.PLAIN) -> State:
    """Bring a lab up, or find that it is up as the topology says, and return its state.

    cloud is a name of lab.clouds.CLOUDS.

    What an interrupted run left is removed first. On failure, and on SIGINT,
    SIGTERM or SIGHUP, what was made is removed. Raises VigiaError.
    """
    preflight.check_rights()
    clouds.load(cloud).prepare(steps)
    lab, left_out = optional.without_impossible(lab)
    for path, reason in left_out.items():
        steps.line(f"left out the path {path}: {reason}")
    with state.locked(lab.layout), deferred() as stop:
        present = state.read(lab.layout)
        if present and present.phase == "up" and netns.names(lab.layout.prefix):
            return _already_up(lab, present, wish, steps, cloud)
        if down.leftovers(lab.layout):
            with steps.step("removing leftovers of an interrupted run") as done:
                done.append(f"removed leftovers of an interrupted run: {down.remove(lab.layout)}")
        return _make(lab, wish, steps, stop, cloud)


def _already_up(lab: Lab, present: State, wish: Wish, steps: Steps, cloud: str) -> State:
    again = "to replace it, run: vigia lab down --lab " + lab.name
    if present.lab.topology != lab.topology:
        raise VigiaError(f"lab {lab.name} is up with another topology; {again}")
    if cloud != present.cloud:
        raise VigiaError(f"lab {lab.name} is up as the cloud {present.cloud}; {again}")
    if wish not in ("auto", present.datapath):
        raise VigiaError(f"lab {lab.name} is up with the {present.datapath} datapath; {again}")
    with steps.step(f"checking lab {lab.name}, which is up") as done:
        report = status.examine(present)
        if report.problems:
            raise VigiaError(f"lab {lab.name} is unhealthy: {report.problems[0]}; {again}")
        done.append(f"lab {lab.name} is already up, as the topology says")
    return present


def _make(lab: Lab, wish: Wish, steps: Steps, stop: Deferred, cloud: str) -> State:
    wanted = clouds.load(cloud)
    with steps.step("checking rights, programs, kernel and addresses") as done:
        datapath = preflight.choose_datapath(wish, lab)
        wanted.check(lab, datapath)
        done.append("checked rights, programs, kernel and addresses")
    stop.check()
    try:
        _record("starting", lab, datapath, cloud)
        for doing, build in wanted.build:
            with steps.step(doing, expected=wanted.expected.get(doing, 0.0)) as done:
                done.append(build(lab, datapath))
            stop.check()
        present = _record("up", lab, datapath, cloud)
    except BaseException:
        with steps.step("rolling back") as done:
            done.append(f"rolled back: {down.remove(lab.layout)}")
        raise
    steps.line(f"lab {lab.name} is up")
    return present


def _record(phase: Phase, lab: Lab, datapath: Datapath, cloud: str) -> State:
    lab.layout.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = State(phase, clouds.load(cloud).known(lab), datapath, time.time(), cloud)
    state.write(new)
    return new
