"""Soaks that were not run: records with known courses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from vigia.soak import record
from vigia.soak.record import ChurnEvent, Sampled, SoakPlan, SoakRecord

BEGUN = 1_700_000_000.0
MIB = float(1 << 20)

Course = Callable[[float], float]
"""A value by hours."""

QUIET: Mapping[str, Mapping[str, Course]] = {
    "vigia-probe@lb1": {
        "memory_bytes": lambda h: 25 * MIB + MIB / 8 * (int(h * 120) % 3),
        "descriptors": lambda h: 38.0 + (int(h * 60) % 2),
        "goroutines": lambda h: 32.0,
    },
    "prometheus": {
        "store_bytes": lambda h: 5 * MIB + 40 * MIB * h,
        "wal_bytes": lambda h: 4 * MIB + 30 * MIB * h,
    },
    "rules vigia-paths": {"missed_iterations": lambda h: 0.0, "rule_share": lambda h: 0.01},
    "lab": {"namespaces": lambda h: 24.0 + (int(h * 60) % 2)},
}

Write = Callable[..., SoakRecord]


@pytest.fixture
def soaked(tmp_path: Path) -> Write:
    """Write a record of a soak of so many hours; courses are added to those of a healthy one."""

    def write(
        hours: float = 3.0,
        courses: Mapping[str, Mapping[str, Course]] | None = None,
        *,
        events: tuple[ChurnEvent, ...] = (),
        restarts: int = 0,
        problems: tuple[str, ...] = (),
    ) -> SoakRecord:
        every = 10.0
        plan = SoakPlan("soak", hours, every, 600.0, BEGUN, "1.2.3", 2)
        kept = record.create(tmp_path / "soak", plan)
        subjects = {s: dict(c) for s, c in QUIET.items()}
        for subject, further in (courses or {}).items():
            subjects.setdefault(subject, {}).update(further)
        for i in range(int(hours * 3600 / every) + 1):
            h = i * every / 3600
            values = {s: {q: course(h) for q, course in c.items()} for s, c in subjects.items()}
            last = restarts if i * every >= hours * 1800 else 0
            kept.sampled(
                Sampled(BEGUN + i * every, values, {"prometheus": 1}, last, 1.5, problems if i == 3 else ())
            )
        done = [
            ChurnEvent(BEGUN + 120 + 600 * n, "flood", True, "limited", 30.0) for n in range(int(hours * 6))
        ]
        for event in (*done, *events):
            kept.happened(event)
        return record.read(kept.folder)

    return write
