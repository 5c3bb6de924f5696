"""What is said of a pair at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vigia_statistics.sequential.question import Scale


class Said(StrEnum):
    """What a sequential test of a and b says."""

    A = "a"
    """a is better."""
    B = "b"
    """b is better."""
    EQUIVALENT = "equivalent"
    """They differ by less than the margin, if at all."""
    UNKNOWN = "not known yet"


@dataclass(frozen=True)
class Evidence:
    """What one pair shows by itself, before the family is looked at. See Verdict for the fields."""

    e_value: float
    e_equivalent: float
    estimate: float
    lower: float
    upper: float
    ahead: Said | None
    windows: int
    effective: float


@dataclass(frozen=True)
class Verdict:
    """What is said of a pair, and on what grounds."""

    said: Said
    since: float | None
    """Unix time since which it is said without a break; None while it is not known."""
    ahead: Said | None
    """A or B, who is better by the estimate, sure or not; None where nobody is."""
    e_value: float
    """Evidence against "they are alike": at most 1 on average where they are, whenever one looks; up to 1e100."""
    adjusted_e_value: float
    """The same after closed testing over the family; what ``needed`` is compared with."""
    e_equivalent: float
    """Evidence, adjusted, against "they differ by the margin or more"."""
    needed: float
    """1 / alpha: 20 at 5 %."""
    estimate: float
    """Of the effect: a over b, or a minus b, by ``scale``; nan before the first window."""
    lower: float
    upper: float
    """Of an interval that covers the effect at all times together with ``confidence``; infinite, or 0 for the lower
    end of a ratio, while there are too few windows. For one pair: it is not widened for the family."""
    confidence: float
    scale: Scale
    windows: int
    """Minutes that had both values."""
    effective: float
    """How many independent minutes they are worth."""
    started: float
    """Unix time since when this is watched: of the last start anew."""

    @property
    def progress(self) -> str:
        """Who is ahead and by how much, for people; a and b are for the caller to replace."""
        if self.ahead is None:
            return f"nobody is ahead, e = {_short(self.adjusted_e_value)} of {self.needed:.4g} needed"
        return (
            f"{self.ahead.value} is ahead, e = {_short(self.adjusted_e_value)} of {self.needed:.4g} needed"
        )


def _short(e: float) -> str:
    """An e-value in two digits, never rounded up."""
    if e >= 1e4:
        return f"{e:.0e}"
    digits = 0 if e >= 10.0 else 1
    scale = 10.0**digits
    return f"{int(e * scale) / scale:.{digits}f}"
