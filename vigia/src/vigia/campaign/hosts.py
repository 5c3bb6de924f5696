"""Where jobs run: on this machine, inside a namespace or not."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vigia.campaign import jobs
from vigia.campaign.jobs import IperfServer, Job
from vigia.errors import VigiaError
from vigia.host import commands, processes
from vigia_service.patience import Patience

__all__ = ["Host", "LocalHost", "Place"]

_READY_SECONDS = 30.0


class Host(Protocol):
    """Something that runs jobs."""

    def run(self, job: Job) -> str:
        """Run a job to its end and return what it printed. Raises VigiaError."""

    def serving(self, job: IperfServer) -> AbstractContextManager[None]:
        """Return a context in which the server listens. Raises VigiaError."""


@dataclass(frozen=True)
class Place:
    """One end of a path: an address on a node, perhaps inside a namespace."""

    node: str
    path: str
    machine: int
    address: ipaddress.IPv4Address
    netns: str | None
    host: Host


class LocalHost:
    """This machine."""

    def __init__(self, probe: Path, python: str = sys.executable) -> None:
        self._probe = str(probe)
        self._python = python

    def run(self, job: Job) -> str:
        """Run a job to its end and return what it printed. Raises VigiaError.

        Programs that say with their exit status that packets were lost have
        still measured: what they printed decides.
        """
        argv = jobs.argv(job, self._probe, self._python)
        done = commands.run(argv, netns=job.netns, timeout=jobs.seconds(job), check=False)
        if done.status not in (0, 1) or not done.stdout.strip():
            raise commands.CommandError(argv, f"exit status {done.status}", done.stderr)
        return done.stdout

    @contextmanager
    def serving(self, job: IperfServer) -> Iterator[None]:
        """Run an iperf3 server while the body runs; it is listening when the body begins."""
        argv = jobs.argv(job, self._probe, self._python)
        server = commands.spawn(argv, netns=job.netns)
        try:
            _await_listening(server, job)
            yield
        finally:
            if server.poll() is None:
                server.kill()
            server.communicate()


def _await_listening(server: subprocess.Popen[str], job: IperfServer) -> None:
    patience = Patience(_READY_SECONDS)
    while not patience.over():
        if server.poll() is not None:
            out, err = server.communicate()
            raise VigiaError(f"the iperf3 server on {job.address}:{job.port} ended: {_reason(out, err)}")
        if processes.listens(server.pid, job.port):
            return
        time.sleep(0.005)
    raise VigiaError(
        f"the iperf3 server on {job.address}:{job.port} does not listen after {_READY_SECONDS} s"
    )


def _reason(out: str, err: str) -> str:
    """Return why iperf3 ended: it says so in its JSON, and only that it does on standard error."""
    try:
        return str(json.loads(out)["error"])
    except (ValueError, KeyError, TypeError):
        return (err or out).strip()[-200:]
