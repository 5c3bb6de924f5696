"""Steps of the wall clock. The machine's own is everybody's, and a time namespace does not have one (time_namespaces(7)):
the programs in Python are run with a library that steps theirs."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from faults.registry import Course, Expected, Scene, fault
from faults.site import Site
from vigia_testing import eventually

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
PYTHON = ("isolation-agent", "vigia-compare")


def _stepped(seconds: int) -> Course:
    def course(scene: Scene) -> Iterator[None]:
        if not FAKETIME.exists():
            pytest.fail(f"{FAKETIME} is missing; install it: make tools")
        site = scene.site
        offset = site.folder / "clock"
        _tell(offset, 0)
        for service in PYTHON:
            site.put_before(service, _preload(offset))
            _again(site, service)
        try:
            _tell(offset, seconds)
            eventually(
                lambda: abs(_ahead(site) - seconds) < 60, lambda: f"the clock to be stepped: {_ahead(site)}"
            )
            known = len(scene.load.acknowledged)
            eventually(lambda: len(scene.load.acknowledged) > known + 20, "alerts to be acknowledged")
            for service in PYTHON:
                site.works(service)
            _tell(offset, 0)
            eventually(lambda: abs(_ahead(site)) < 60, "the clock to be stepped back")
            yield
        finally:
            for service in PYTHON:
                site.put_before(service, "")
                _again(site, service)

    return course


def _preload(offset: Path) -> str:
    settings = {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME_TIMESTAMP_FILE": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": 1,
        "FAKETIME_CACHE_DURATION": 1,
    }
    return "".join(f"export {name}={value}\n" for name, value in settings.items())


def _tell(offset: Path, seconds: int) -> None:
    new = offset.with_suffix(".new")
    new.write_text(f"{seconds:+d}\n")
    new.replace(offset)


def _again(site: Site, service: str) -> None:
    old = site.pid(service)
    os.kill(old, signal.SIGTERM)
    site.restarted(service, old)


def _ahead(site: Site) -> float:
    """Seconds by which the agent's clock is ahead of the machine's, by the newest record of its audit log."""
    last = (site.disk("isolation-agent") / "audit.jsonl").read_text().splitlines()[-1]
    return datetime.fromisoformat(json.loads(last)["time"]).timestamp() - time.time()


for _seconds in (3600, -3600):
    fault(
        f"clock {'ahead' if _seconds > 0 else 'back'} an hour",
        "clocks",
        f"The wall clock of isolation-agent and vigia-compare is stepped {'ahead' if _seconds > 0 else 'back'} by an hour "
        "while they run, and back again (the programs in Go: see below)",
        "Ends of limits and leases are on the monotonic clock: nothing ends early or late, no alert is lost, the audit log "
        "is one chain.",
        Expected(restarts="|".join(PYTHON)),
        short=False,
    )(_stepped(_seconds))
