"""From tests to a winner, or to none: "tie" and "not enough data" are answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import comb

import numpy as np

from vigia_statistics.multiplicity import holm
from vigia_statistics.paired import signed_rank
from vigia_statistics.samples import Samples, checked
from vigia_statistics.twosample import minimum_detectable_shift, rank_sum, welch

MANN_WHITNEY = "mann-whitney"
SIGNED_RANK = "wilcoxon signed-rank"


class Direction(StrEnum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"


class Verdict(StrEnum):
    """What a comparison of a with b says."""

    A = "a"
    B = "b"
    TIE = "tie"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True)
class Comparison:
    """Paths a and b compared on one metric. Shift and interval are of a minus b."""

    a: str
    b: str
    samples_a: int
    samples_b: int
    median_a: float
    median_b: float
    shift: float
    lower: float
    upper: float
    confidence: float
    p_value: float
    adjusted_p_value: float
    """After Holm over the family; equal to p_value until judge has seen the family."""
    effect_size: float
    """Cliff's delta, -1 to 1."""
    minimum_detectable_shift: float
    welch_p_value: float
    test: str
    """MANN_WHITNEY or SIGNED_RANK."""
    smallest_p_value: float
    """The smallest p-value that this many samples can give."""
    verdict: Verdict = Verdict.NOT_ENOUGH_DATA


def compare(  # noqa: PLR0913 - the question has this many parts
    a: str, b: str, values_a: Samples, values_b: Samples, *, confidence: float = 0.95, paired: bool = False
) -> Comparison:
    """Compare two samples of at least two values; ``paired`` pairs them by position.

    The verdict stays open until ``judge`` has seen the whole family.
    """
    x, y = checked(a, values_a, least=2), checked(b, values_b, least=2)
    if paired and x.size != y.size:
        raise ValueError(f"{a}, {b}: {x.size} and {y.size} values; paired samples have equally many")
    ranks = rank_sum(x, y, confidence)
    shift, p, smallest = ranks.shift, ranks.p_value, 2.0 / comb(x.size + y.size, x.size)
    if paired:
        signed = signed_rank(x - y, confidence)
        shift, p, smallest = signed.shift, signed.p_value, 2.0 ** (1 - x.size)
    return Comparison(
        a=a,
        b=b,
        samples_a=x.size,
        samples_b=y.size,
        median_a=float(np.median(x)),
        median_b=float(np.median(y)),
        shift=shift.estimate,
        lower=shift.lower,
        upper=shift.upper,
        confidence=shift.confidence,
        p_value=p,
        adjusted_p_value=p,
        effect_size=ranks.cliffs_delta,
        minimum_detectable_shift=minimum_detectable_shift(x, y, alpha=1.0 - confidence),
        welch_p_value=welch(x, y, confidence).p_value,
        test=SIGNED_RANK if paired else MANN_WHITNEY,
        smallest_p_value=min(1.0, smallest),
    )


def with_differences(c: Comparison, differences: Samples, confidence: float = 0.95) -> Comparison:
    """Return a comparison decided by paired differences (a minus b, shape (n,), n >= 2).

    For twins of which only the difference is known; medians, effect size and
    the detectable shift stay those of the two samples.
    """
    d = checked("differences", differences, least=2)
    signed = signed_rank(d, confidence)
    return replace(
        c,
        samples_a=d.size,
        samples_b=d.size,
        shift=signed.shift.estimate,
        lower=signed.shift.lower,
        upper=signed.shift.upper,
        confidence=signed.shift.confidence,
        p_value=signed.p_value,
        adjusted_p_value=signed.p_value,
        test=SIGNED_RANK,
        smallest_p_value=min(1.0, 2.0 ** (1 - d.size)),
    )


def judge(
    family: Sequence[Comparison],
    better: Direction,
    *,
    alpha: float = 0.05,
    margin: float = 0.0,
    minimum_samples: int = 5,
) -> list[Comparison]:
    """Return the family with adjusted p-values (Holm) and verdicts, in the order given.

    a or b wins when the adjusted p-value is at most ``alpha`` and the interval
    of the shift lies beyond ``margin`` (in the unit of the samples) on that
    side. "Not enough data" says that a side has under ``minimum_samples``, or
    that so few samples could not separate however far apart they were.
    """
    adjusted = holm([c.p_value for c in family])
    return [
        replace(
            c,
            adjusted_p_value=float(p),
            verdict=_verdict(c, float(p), better, alpha, margin, minimum_samples, len(family)),
        )
        for c, p in zip(family, adjusted, strict=True)
    ]


def _verdict(  # noqa: PLR0913
    c: Comparison, p: float, better: Direction, alpha: float, margin: float, least: int, size: int
) -> Verdict:
    if min(c.samples_a, c.samples_b) < least or c.smallest_p_value * size > alpha:
        return Verdict.NOT_ENOUGH_DATA
    if p > alpha or (c.lower <= margin and c.upper >= -margin):
        return Verdict.TIE
    a_is_lower = c.upper < 0.0
    return Verdict.A if a_is_lower == (better is Direction.LOWER) else Verdict.B


def winner(names: Sequence[str], family: Sequence[Comparison]) -> str | None:
    """Return the one of names that beats every other in the judged family, or None for a tie.

    None as well while any pair with it is missing.
    """
    wins: Mapping[str, set[str]] = {name: set() for name in names}
    for c in family:
        if c.verdict is Verdict.A and c.a in wins:
            wins[c.a].add(c.b)
        elif c.verdict is Verdict.B and c.b in wins:
            wins[c.b].add(c.a)
    for name, beaten in wins.items():
        if len(names) > 1 and beaten >= set(names) - {name}:
            return name
    return None
