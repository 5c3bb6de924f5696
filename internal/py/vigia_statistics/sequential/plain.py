"""Arrays as JSON holds them, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["arrays", "number", "plain"]

Array = NDArray[np.float64]


def plain(state: Mapping[str, Array]) -> dict[str, list[float | None]]:
    """Return arrays as flat lists, None for nan."""
    return {k: [None if np.isnan(x) else float(x) for x in v.ravel()] for k, v in state.items()}


def arrays(name: str, data: object, like: Mapping[str, Array]) -> dict[str, Array]:
    """Return what ``plain`` gave, of the shapes of ``like``. Raises ValueError naming what does not fit."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{name}: is not an object; start anew")
    out = {}
    for key, old in like.items():
        values = data.get(key)
        if not isinstance(values, list) or len(values) != old.size:
            raise ValueError(f"{name}.{key}: is not a list of {old.size} numbers; start anew")
        found = [np.nan if v is None else number(f"{name}.{key}", v) for v in values]
        out[key] = np.array(found, dtype=np.float64).reshape(old.shape)
    return out


def number(name: str, value: object) -> float:
    """Return a finite number. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise ValueError(f"{name}: {value!r} is not a finite number; start anew")
    return float(value)
