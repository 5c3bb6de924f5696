"""Correction for testing many hypotheses at once."""

from __future__ import annotations

import numpy as np

from vigia_statistics.samples import Floats, Samples, checked


def holm(p_values: Samples) -> Floats:
    """Return Holm's adjusted p-values (Holm 1979), in the order given, shape (n,).

    Rejecting those at or below alpha keeps the chance of any false rejection
    in the family at alpha, however the tests depend on each other.
    """
    p = checked("p_values", p_values, least=0)
    if ((p < 0.0) | (p > 1.0)).any():
        raise ValueError("p_values: holds a value outside [0, 1]")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(stepped, 1.0)
    return out
