"""Running a target on its seeds and on texts near them."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz.mutations import mutated
from fuzz.targets import SEEDS, TARGETS, Target

__all__ = ["Finding", "fuzz", "keep", "seeds"]

_SLOW = 20.0
"""Seconds that no text of a megabyte may cost, however busy the machine is."""
_KEPT = 2000
"""Texts near the seeds that are gone on from."""


@dataclass(frozen=True)
class Finding:
    """A text that a target took wrongly."""

    raw: bytes
    problem: str


def seeds(name: str) -> list[bytes]:
    """Return what a target begins with, in the same order every time."""
    folder = SEEDS / name
    files = [*TARGETS[name].seeds, *(folder.iterdir() if folder.is_dir() else ())]
    return [file.read_bytes() for file in sorted(files)]


def _wrong(target: Target, raw: bytes) -> str:
    """Return what is wrong with how a target takes a text, or nothing."""
    begun = time.process_time()
    try:
        target.check(raw)
    except Exception as e:
        return f"{type(e).__name__}: {str(e)[:300]}"
    took = time.process_time() - begun
    return f"took {took:.0f} s of processor time" if took > _SLOW else ""


def fuzz(
    name: str, source: random.Random, *, texts: int = 0, seconds: float = 0.0
) -> Iterator[Finding | int]:
    """Try every seed, then texts near them, so many or for so long; yields findings, and then how many were tried."""
    target, pool, tried = TARGETS[name], seeds(name), 0
    for raw in pool:
        tried += 1
        if problem := _wrong(target, raw):
            yield Finding(raw, problem)
    end, first = time.monotonic() + seconds, len(pool)
    while tried < texts or time.monotonic() < end:
        raw = mutated(source.choice(pool), source)
        tried += 1
        if problem := _wrong(target, raw):
            yield Finding(raw, problem)
        elif len(raw) < 20_000 and source.random() < 0.1:  # a step further from the seeds
            if len(pool) < first + _KEPT:
                pool.append(raw)
            else:
                pool[source.randrange(first, len(pool))] = raw
    yield tried


def keep(name: str, finding: Finding) -> Path:
    """Write a finding among the target's seeds, so that it is tried from now on."""
    folder = SEEDS / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / hashlib.sha256(finding.raw).hexdigest()[:16]
    file.write_bytes(finding.raw)
    return file
