"""Do two series move together more than chance makes them?

Windows of a series depend on their neighbours, so that values cannot be
permuted one by one: a whole series is rotated against the other instead
(circular shifts), which keeps the dependence inside both. The largest
statistic over all candidates corrects for having tried them all (Westfall and
Young 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from vigia_compare.limits import LEAST_WINDOWS
from vigia_compare.units import midranks
from vigia_statistics.samples import Floats

__all__ = [
    "Candidate",
    "explained_shares",
    "left_by",
    "rank",
    "rank_correlation",
]

_MOST_ROTATIONS = 499
_SWEEPS = 100
_NOTHING_LEFT = 1e-6


@dataclass(frozen=True)
class Candidate:
    """One possible cause."""

    name: str
    share: float
    p_value: float
    """Corrected for the number of candidates."""


Statistic = Callable[[Floats, Floats], Floats]
"""From effects, shape (r, n), and causes, shape (k, n), to statistics, shape (r, k)."""


def rank(effect: Floats, causes: Mapping[str, Floats], statistic: Statistic) -> list[Candidate]:
    """Return the candidates, best first; empty without causes or with too few windows."""
    if not causes or effect.size < LEAST_WINDOWS:
        return []
    names = sorted(causes)
    matrix = np.array([causes[n] for n in names])
    rotated = np.array([np.roll(effect, r) for r in [0, *_rotations(effect.size)]])
    statistics = statistic(rotated, matrix)
    observed, largest = statistics[0], statistics[1:].max(axis=1)
    found = [
        Candidate(name, float(value), (1.0 + float((largest >= value - 1e-12).sum())) / len(rotated))
        for name, value in zip(names, observed, strict=True)
    ]
    return sorted(found, key=lambda c: (-c.share, c.name))


def _rotations(n: int) -> list[int]:
    every = np.arange(1, n)
    if every.size <= _MOST_ROTATIONS:
        return [int(r) for r in every]
    return [int(r) for r in np.unique(np.linspace(1, n - 1, _MOST_ROTATIONS).astype(int))]


def rank_correlation(effects: Floats, causes: Floats) -> Floats:
    """Spearman's correlation of every effect with every cause, 0 where one is constant."""
    e = np.array([_unit(midranks(v)) for v in effects])
    c = np.array([_unit(midranks(v)) for v in causes])
    return np.asarray(e @ c.T)


def _unit(values: Floats) -> Floats:
    centred = values - values.mean()
    length = float(np.sqrt((centred**2).sum()))
    return centred / length if length > 0.0 else np.zeros(values.size)


def explained_shares(effects: Floats, causes: Floats) -> Floats:
    """Share of each effect's variation that each cause explains, all causes fitted together.

    Least squares with coefficients of zero or more: a co-tenant's traffic cannot
    help. The shares of an effect add up to the fit's R squared; that of a cause is
    its coefficient times its covariance with the effect (Pratt 1987).
    """
    y = np.array([_unit(v) for v in effects])
    x = np.array([_unit(v) for v in causes])
    against = y @ x.T
    return np.asarray(np.maximum(_nonnegative(x @ x.T, against) * against, 0.0))


def left_by(covariates: Floats, values: Floats) -> Floats:
    """Return what covariates, shape (k, n), leave unexplained of values, shape (n,).

    Centred, in units of the values' own length: the squares add up to the share
    that is left, 1 where nothing is explained. Coefficients are zero or more, as
    in explained_shares: a load that falls while the harm rises is no excuse for it.
    """
    y = _unit(values)
    if not len(covariates):
        return y
    x = np.array([_unit(v) for v in covariates])
    left = np.asarray(y - (_nonnegative(x @ x.T, (y @ x.T)[None]) @ x)[0])
    return left if float((left**2).sum()) > _NOTHING_LEFT else np.zeros(y.size)


def _nonnegative(gram: Floats, against: Floats) -> Floats:
    """Minimise w G w / 2 - w b over w >= 0 for every row b, by coordinate descent.

    G is a matrix of correlations: ones on its diagonal, or zeros for a constant cause.
    """
    weights = np.zeros(against.shape)
    for _ in range(_SWEEPS):
        before = weights.copy()
        for i in np.flatnonzero(np.diag(gram) > 0.0):
            slope = against[:, i] - weights @ gram[i] + weights[:, i]
            weights[:, i] = np.maximum(slope, 0.0)
        if np.abs(weights - before).max() < 1e-6:
            break
    return weights
