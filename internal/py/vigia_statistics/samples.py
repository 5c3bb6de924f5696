"""Checking what callers pass in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
"""A one-dimensional array of float64."""

Samples: TypeAlias = Floats | Sequence[float]
"""What callers may pass: one number per run or window."""


def checked(name: str, values: Samples, least: int = 1) -> Floats:
    """Return values as an array of at least ``least`` finite numbers. Raises ValueError."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name}: has {array.ndim} dimensions; pass one number per run")
    if array.size < least:
        raise ValueError(f"{name}: has {array.size} values; at least {least} are needed")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: holds NaN or infinity; leave missing runs out")
    return array


def checked_confidence(confidence: float) -> float:
    """Return confidence if it lies between 0 and 1. Raises ValueError."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence: {confidence} is outside (0, 1); write for example 0.95")
    return confidence
