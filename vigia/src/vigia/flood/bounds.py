"""How much a flood may be."""

from __future__ import annotations

__all__ = ["MAX_PORTS", "MAX_RATE", "MAX_SECONDS", "MAX_SIZE", "MIN_SIZE"]

MAX_RATE = 125_000_000
"""Highest rate in bytes of UDP payload per second: 1 Gbit/s."""

MAX_SECONDS = 120.0

MAX_PORTS = 16384
"""Different destination ports at most; they are used in turn, so any shorter run has no port twice."""

MIN_SIZE, MAX_SIZE = 18, 1472
"""Bytes of UDP payload: a frame of at least 60 bytes, and a packet that needs no fragments."""
