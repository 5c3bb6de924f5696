"""Limits of the system that are reached: descriptors and memory."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from faults.registry import Course, Expected, Scene, fault
from faults.site import SETTLED, Site
from vigia_testing import eventually

_SPARE = 2


def _descriptors(service: str) -> Course:
    """Leave a service a few descriptors, and take those by connections that say nothing."""

    def course(scene: Scene) -> Iterator[None]:
        site = scene.site
        pid = site.pid(service)
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        host, _, port = site.services[service].address.rpartition(":")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + _SPARE, usual[1]))
        with contextlib.ExitStack() as taken:
            try:
                for _ in range(4 * _SPARE + 20):
                    taken.enter_context(socket.create_connection((host, int(port)), timeout=2.0))
                eventually(lambda: bool(site.problem(service)), f"{service} not to answer any more", SETTLED)
            finally:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        site.works(service)
        yield

    return course


for _service in (
    "isolation-agent",
    "vigia-compare",
    "vigia-probe@node1",
    "vigia-exporter@node1",
    "vigia-enforcer@node1",
):
    _program = _service.partition("@")[0]
    fault(
        f"no descriptors for {_program}",
        "resources",
        f"{_program} may open no more descriptors, and connections take the last ones",
        "It does not end, and answers again as soon as there are some; it goes on measuring, or holding limits, meanwhile.",
        Expected(),
    )(_descriptors(_service))


def _memory(service: str) -> Course:
    """Forbid a service any further memory until it has ended of that, or been asked a lot."""

    def course(scene: Scene) -> Iterator[None]:
        site = scene.site
        old = site.pid(service)
        size = int(_status(old, "VmSize").split()[0]) * 1024
        usual = resource.prlimit(old, resource.RLIMIT_AS)
        resource.prlimit(old, resource.RLIMIT_AS, (size, usual[1]))
        for _ in range(20):
            _press(site, service)
            if site.pids()[service] != old:
                break
        if site.pids()[service] == old:
            resource.prlimit(old, resource.RLIMIT_AS, usual)
        site.works(service)
        yield

    return course


def _status(pid: int, key: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(key + ":"))


def _press(site: Site, service: str) -> None:
    host, _, port = site.services[service].address.rpartition(":")
    with contextlib.ExitStack() as held, contextlib.suppress(OSError):
        for _ in range(16):
            s = held.enter_context(socket.create_connection((host, int(port)), timeout=2.0))
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        for _ in range(4):
            site.page(service)


for _service in ("isolation-agent", "vigia-exporter@node1", "vigia-enforcer@node1"):
    _program = _service.partition("@")[0]
    fault(
        f"no memory for {_program}",
        "resources",
        f"{_program} may have no more memory while it is asked for pages by many at once",
        "It refuses, or ends and is started again; what it acknowledged, limits and guarantees stay.",
        Expected(restarts=_service),
    )(_memory(_service))
