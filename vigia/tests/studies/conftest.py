"""A testbed that answers: what a measurement asks of hosts is noted, and what programs print is given."""

from __future__ import annotations

import ipaddress
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vigia.campaign.hosts import Place
from vigia.campaign.jobs import IperfServer, Job
from vigia.campaign.model import Factor
from vigia.errors import VigiaError
from vigia.report.data import Data, Repetition


@dataclass
class AnsweringHost:
    """Runs nothing: it notes each job, and gives what a program of its kind printed."""

    printed: Mapping[str, str]
    jobs: list[Any] = field(default_factory=list)
    serving_now: list[IperfServer] = field(default_factory=list)
    served: list[IperfServer] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, job: Job) -> str:
        with self.lock:
            self.jobs.append(job)
            if job.kind == "iperf3-client":
                listening = {(s.address, s.port) for s in self.serving_now}
                assert (job.address, job.port) in listening, "nobody listens there"
        return self.printed[job.kind]

    @contextmanager
    def serving(self, job: IperfServer) -> Iterator[None]:
        with self.lock:
            assert job.port not in {s.port for s in self.serving_now if s.address == job.address}
            self.serving_now.append(job)
            self.served.append(job)
        try:
            yield
        finally:
            self.serving_now.remove(job)

    def of(self, kind: str) -> list[Any]:
        """The jobs of a kind, in order."""
        return [j for j in self.jobs if j.kind == kind]


@dataclass
class AnsweringTestbed:
    """Pairs of machines on nodes a and b: 10.0.0.1 with 10.0.1.1, and so on."""

    host: AnsweringHost
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    description: dict[str, Any] = field(default_factory=dict)

    def pairs(self, path: str, placement: str, machines: int) -> list[tuple[Place, Place]]:
        self.asked.append((path, placement, machines))
        if path == "away":
            raise VigiaError('this testbed has no path "away"')
        return [
            (self._place("a", path, 0, n), self._place("b", path, 1, n)) for n in range(1, machines // 2 + 1)
        ]

    def _place(self, node: str, path: str, side: int, n: int) -> Place:
        address = ipaddress.IPv4Address(f"10.0.{side}.{n}")
        return Place(node, path, n, address, f"{node}-{n}", self.host)

    def marks(self) -> list[dict[str, Any]]:
        return []


@pytest.fixture
def answering(testdata: Path) -> Callable[..., AnsweringTestbed]:
    """Make a testbed whose programs print what real ones printed, or what is given."""

    def make(**printed: str) -> AnsweringTestbed:
        usual = {
            "iperf3-client": (testdata / "campaign" / "iperf3-tcp-bidir.json").read_text(),
            "probe": probed([0.001, 0.002], [0.0011, 0.0021]),
            "ping": "64 bytes from 10.0.1.1: icmp_seq=1 ttl=64 time=0.5 ms\n",
        }
        return AnsweringTestbed(
            AnsweringHost({**usual, **{k.replace("_", "-"): v for k, v in printed.items()}})
        )

    return make


def probed(kernel: list[float | None], application: list[float | None]) -> str:
    """What vigia-probe once --json prints, as far as it is read."""
    pairs = zip(kernel, application, strict=True)
    return json.dumps({"probes": [{"rtt_seconds": k, "rtt_application_seconds": a} for k, a in pairs]})


def measured(units: Mapping[str, str], *repetitions: tuple[Mapping[str, Factor], Mapping[str, Any]]) -> Data:
    """Data of a campaign: factors and samples of each repetition; the n-th of a combination is in block n."""
    made: list[Repetition] = []
    for n, (factors, samples) in enumerate(repetitions):
        block = sum(r.factors == factors for r in made)
        values = {m: np.asarray(v, dtype=np.float64) for m, v in samples.items()}
        made.append(Repetition(n, factors, values, block))
    return Data(made, units)


@pytest.fixture
def data() -> Callable[..., Data]:
    return measured
