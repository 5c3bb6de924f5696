"""A soak's folder: what was asked for, and a line for each sample and event, written as it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vigia.errors import VigiaError

__all__ = ["ChurnEvent", "Sampled", "SoakPlan", "SoakRecord", "create", "read"]

Floats = NDArray[np.float64]

_PLAN, _SAMPLES, _EVENTS = "plan.json", "samples.jsonl", "events.jsonl"


@dataclass(frozen=True)
class SoakPlan:
    """What a soak was asked to do."""

    lab: str
    hours: float
    sample_seconds: float
    flood_seconds: float
    """From one flood to the next: the time in which the churn repeats itself."""
    begun: float
    """Unix time at which everything ran."""
    version: str
    processors: int


@dataclass(frozen=True)
class Sampled:
    """All quantities at one moment."""

    at: float
    """Unix time."""
    values: Mapping[str, Mapping[str, float]]
    """By subject (a process, a place, a rule group) and quantity."""
    processes: Mapping[str, int] = field(default_factory=dict)
    """Process of each service and daemon."""
    restarts: int = 0
    """How often the supervisor has started a service again."""
    load: float = 0.0
    """Load average of the machine, of a minute."""
    problems: tuple[str, ...] = ()
    """What could not be read, and why."""


@dataclass(frozen=True)
class ChurnEvent:
    """Something that was done to the stack."""

    at: float
    what: str
    ok: bool
    detail: str
    seconds: float


@dataclass(frozen=True)
class SoakRecord:
    """A soak as it is on disk."""

    folder: Path
    plan: SoakPlan
    samples: tuple[Sampled, ...] = ()
    events: tuple[ChurnEvent, ...] = ()

    def sampled(self, sample: Sampled) -> None:
        """Append a sample."""
        _append(self.folder / _SAMPLES, asdict(sample))

    def happened(self, event: ChurnEvent) -> None:
        """Append an event."""
        _append(self.folder / _EVENTS, asdict(event))

    @property
    def hours(self) -> float:
        """Hours from the beginning to the last sample."""
        return max(0.0, self.samples[-1].at - self.plan.begun) / 3600 if self.samples else 0.0

    def series(self) -> dict[tuple[str, str], tuple[Floats, Floats]]:
        """Return hours since the beginning and values, by quantity and subject."""
        points: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for sample in self.samples:
            hours = (sample.at - self.plan.begun) / 3600
            for subject, values in sample.values.items():
                for quantity, value in values.items():
                    points.setdefault((quantity, subject), []).append((hours, value))
        arrays = {key: np.array(found) for key, found in points.items()}
        return {key: (a[:, 0], a[:, 1]) for key, a in sorted(arrays.items())}


def _append(file: Path, line: Mapping[str, Any]) -> None:
    """Append a line in one write, so that a crash loses that line at most."""
    with file.open("a") as f:
        f.write(json.dumps(line, separators=(",", ":")) + "\n")


def create(folder: Path, plan: SoakPlan) -> SoakRecord:
    """Begin a record. Raises VigiaError if the folder has one."""
    if (folder / _PLAN).exists():
        raise VigiaError(f"--output {folder} has a soak already; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _PLAN).write_text(json.dumps(asdict(plan), indent=1) + "\n")
    return SoakRecord(folder, plan)


def read(folder: Path) -> SoakRecord:
    """Read a record, also of a soak that was killed. Raises VigiaError if it is none."""
    try:
        plan = SoakPlan(**json.loads((folder / _PLAN).read_text()))
        samples = tuple(
            Sampled(**{**line, "problems": tuple(line["problems"])}) for line in _lines(folder / _SAMPLES)
        )
        events = tuple(ChurnEvent(**line) for line in _lines(folder / _EVENTS))
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise VigiaError(f"{folder} cannot be read as a soak's folder: {e}; name the --output of one") from e
    return SoakRecord(folder, plan, samples, events)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file; the last one may be half of one, after a crash."""
    if not file.exists():
        return
    lines = file.read_text().splitlines()
    for number, text in enumerate(lines, start=1):
        try:
            yield json.loads(text)
        except ValueError:
            if number < len(lines):
                raise
