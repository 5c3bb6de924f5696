"""What is said of a pair at a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from vigia_statistics.sequential.plain import number
from vigia_statistics.sequential.question import Scale

__all__ = ["Effect", "Evidence", "Latch", "Said", "Verdict"]


class Said(StrEnum):
    """What a sequential test of a and b says."""

    A = "a"
    """a is better."""
    B = "b"
    """b is better."""
    EQUIVALENT = "equivalent"
    """They differ by less than the margin, if at all."""
    UNKNOWN = "not known yet"


class Effect(NamedTuple):
    """How large an effect is: a over b, or a minus b."""

    estimate: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Evidence:
    """What one pair shows by itself, before the family is looked at. See Verdict for the fields."""

    e_value: float
    e_equivalent: float
    e_beyond: float
    """Evidence against "they differ by less than the margin"."""
    estimate: float
    lower: float
    upper: float
    ahead: Said | None
    windows: int
    effective: float
    effect: Callable[[float], Effect] = field(repr=False, compare=False)
    """The effect with an interval of another confidence, 1 less the argument; takes only what is here."""

    def with_ahead(self, ahead: Said) -> Evidence:
        """Return the same with another one ahead."""
        return replace(self, ahead=ahead)


@dataclass
class Latch:
    """What was found of a pair since its start, and when."""

    better: Said | None = None
    better_since: float | None = None
    equivalent_since: float | None = None

    @property
    def said(self) -> tuple[Said, float | None]:
        """What is said, and since when; a difference that does not matter is equivalence."""
        if self.equivalent_since is not None:
            return Said.EQUIVALENT, self.equivalent_since
        return self.better or Said.UNKNOWN, self.better_since

    def contradicted(self, found: Evidence, e_value: float, needed: float) -> bool:
        """Whether the contrary of what is latched has as much evidence: the paths are not what they were."""
        if self.equivalent_since is not None and found.e_beyond >= needed:
            return True
        other = self.better is not None and found.ahead is not None and found.ahead is not self.better
        return other and e_value >= needed

    def take(self, at: float, found: Evidence, e_value: float, e_equivalent: float, needed: float) -> None:
        """Latch what has the evidence that is needed."""
        if self.better is None and e_value >= needed and found.ahead is not None:
            self.better, self.better_since = found.ahead, at
        if self.equivalent_since is None and e_equivalent >= needed:
            self.equivalent_since = at

    @classmethod
    def of(cls, data: object) -> Latch:
        """Return one from what asdict gave. Raises ValueError."""
        if not isinstance(data, Mapping):
            raise ValueError("latch: is not an object; start anew")
        since = {
            k: None if data.get(k) is None else number(f"latch.{k}", data[k])
            for k in ("better_since", "equivalent_since")
        }
        better = data.get("better")
        if better not in (None, Said.A, Said.B) or (better is None) != (since["better_since"] is None):
            raise ValueError(f"latch.better: is {better!r}; start anew")
        return cls(None if better is None else Said(better), **since)


@dataclass(frozen=True)
class Verdict:
    """What is said of a pair, and on what grounds."""

    said: Said
    since: float | None
    """Unix time since which it is said without a break; None while it is not known."""
    ahead: Said | None
    """A or B, who is better by the estimate, sure or not; None where nobody is."""
    e_value: float
    """Evidence against "they are alike": at most 1 on average where they are, whenever one looks; up to
    1e100."""
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
    """Of an interval that covers the effect at all times together with ``confidence`` or more; infinite, or 0
    for the lower end of a ratio, while there are too few windows. As wide as the family asks for a verdict:
    it excludes "alike" just when the evidence, adjusted, names a path."""
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
        return f"{self.ahead.value} is ahead, e = {_short(self.adjusted_e_value)} of {self.needed:.4g} needed"


def _short(e: float) -> str:
    """An e-value in two digits, never rounded up."""
    if e >= 1e4:
        return f"{e:.0e}"
    digits = 0 if e >= 10.0 else 1
    scale = 10.0**digits
    return f"{int(e * scale) / scale:.{digits}f}"
