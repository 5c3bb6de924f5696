"""Paths with known truth, many pairs at once, for simulations: what a node would see of them, window by
window.

A path's value is its level times the load that all paths of its hosts share times its own noise: log-normal
by 0.3 a minute, a first-order autoregression. Windows of 15 s in the first hour are four to a minute of the
same process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from vigia_statistics.samples import Floats

DAY = 1440
"""Minutes."""
FINE_MINUTES = 60
NOISE = 0.3
"""Deviation of a path's own noise in a minute, of logarithms."""


@dataclass(frozen=True)
class World:
    """How windows stray and what they share."""

    name: str
    correlation: float = 0.0
    """Of a path's noise in neighbouring minutes."""
    busy: bool = False
    """A daily cycle and a load, shared by paths: levels double and halve, and noise is from 0.4 to 1.6 of
    its mean."""
    heavy: bool = False
    """Noise of Student's t with 3 degrees of freedom in place of a normal one."""


INDEPENDENT = World("independent windows")
MILD = World("correlation 0.5", 0.5)
STRONG = World("correlation 0.8", 0.8)
BUSY = World("daily cycles and shared load, correlation 0.8", 0.8, busy=True)
HEAVY = World("heavy tails, correlation 0.5", 0.5, heavy=True)
WORLDS = (INDEPENDENT, MILD, STRONG, BUSY, HEAVY)


def noise(rng: np.random.Generator, size: int, r: float, heavy: bool) -> Callable[[], Floats]:
    """Return a stationary autoregression of variance 1: a function that makes the next step."""

    def draw() -> Floats:
        return rng.standard_t(3.0, size) / math.sqrt(3.0) if heavy else rng.normal(size=size)

    state = rng.normal(size=size)

    def step() -> Floats:
        nonlocal state
        now = state
        state = r * state + math.sqrt(1.0 - r * r) * draw()
        return now

    return step


def windows(
    world: World, rng: np.random.Generator, size: int, minutes: int, paths: int = 2, fine: int = FINE_MINUTES
) -> Iterator[tuple[float, Floats]]:
    """Yield the end of each window in seconds since the start and log values of shape (paths, size), of
    level 0."""
    quarter = world.correlation**0.25 if world.correlation else 0.0
    # Of a mean of four neighbours.
    spread = math.sqrt((4.0 + 6.0 * quarter + 4.0 * quarter**2 + 2.0 * quarter**3) / 16.0)
    early = [noise(rng, size, quarter, world.heavy) for _ in range(paths)]
    later = [noise(rng, size, world.correlation, world.heavy) for _ in range(paths)]
    load, phase = noise(rng, size, 0.95, False), rng.uniform(0.0, 2.0 * math.pi, size)
    for minute in range(minutes):
        shared, loud = np.zeros(size), np.ones(size)
        if world.busy:
            hour = np.sin(2.0 * math.pi * minute / DAY + phase)
            shared, loud = 0.7 * hour + 0.2 * load(), 1.0 + 0.6 * hour
        if minute < fine:
            for part in range(1, 5):
                own = np.array([step() for step in early])
                yield 60.0 * minute + 15.0 * part, shared + NOISE / spread * loud * own
        else:
            own = np.array([step() for step in later])
            yield 60.0 * (minute + 1), shared + NOISE * loud * own


def losses(
    rng: np.random.Generator, size: int, minutes: int, rates: tuple[float, float], sent: int = 3000
) -> Iterator[tuple[float, Floats, Floats]]:
    """Yield minutes of two paths' lost probes of ``sent``: half at random, half in bursts of two minutes on
    average."""
    bad = np.zeros((2, size), dtype=bool)
    mean = np.array(rates)[:, None]
    share = 0.02  # of minutes that are in a burst
    for minute in range(1, minutes + 1):
        enter = 0.5 * share / (1.0 - share)
        bad = np.where(bad, rng.random((2, size)) < 0.5, rng.random((2, size)) < enter)
        p = np.minimum(0.5 * mean + np.where(bad, 0.5 * mean / share, 0.0), 1.0)
        lost = rng.binomial(sent, np.broadcast_to(p, (2, size))).astype(float)
        yield 60.0 * minute, lost[0], lost[1]
