"""A campaign file: what is asked, what is varied, how often, and how it is judged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

import vigia_config
from vigia.campaign.catalogue import STUDIES
from vigia.campaign.hypotheses import Factor, Hypothesis, Word
from vigia.errors import VigiaError
from vigia_config import Rate, Seconds, Strict, fault

__all__ = [
    "SIZES",
    "Campaign",
    "Design",
    "Factor",
    "Plan",
    "Settings",
    "Size",
    "StopRule",
    "StudyName",
    "load",
    "shown",
]


def _known(name: object) -> str:
    if isinstance(name, str) and name in STUDIES:
        return name
    raise PydanticCustomError("vigia", "is not a study; write one of {known}", {"known": ", ".join(STUDIES)})


StudyName = Annotated[str, BeforeValidator(_known)]
"""Which measurement is made, and how it is reported."""

Size = Literal["smoke", "standard", "full"]
"""smoke shows that a campaign runs; standard answers it on a small machine; full is the published size."""

SIZES: tuple[Size, ...] = get_args(Size)


class Design(Strict):
    """Every combination of these levels is measured."""

    factors: dict[Word, list[Factor]] = Field(description="Levels of each factor.", min_length=1)

    @model_validator(mode="after")
    def _levels(self) -> Design:
        for name, levels in self.factors.items():
            if not levels:
                raise fault(("factors", name), "has no levels", "write at least one, or remove the factor")
            if len(set(levels)) != len(levels):
                raise fault(("factors", name), "has a level twice", "write each level once")
        return self

    def cells(self) -> Iterator[dict[str, Factor]]:
        """Yield every combination."""
        for levels in itertools.product(*self.factors.values()):
            yield dict(zip(self.factors, levels, strict=True))


class StopRule(Strict):
    """When a combination has been measured often enough."""

    repetitions: int = Field(description="Repetitions of every combination; with `until`, the most.", ge=1)
    minimum: int = Field(default=3, description="With `until`: repetitions before the first look.", ge=2)
    until: float | None = Field(
        default=None,
        description="Stop earlier when the interval of the mean of `metric` is at most this part of the mean "
        "wide on either side, for example 0.05.",
        gt=0,
        lt=1,
    )
    metric: str | None = Field(default=None, description="With `until`: the metric that is looked at.")

    @model_validator(mode="after")
    def _together(self) -> StopRule:
        if (self.until is None) != (self.metric is None):
            raise fault((), "until and metric belong together", "write both, or none")
        if self.until is not None and self.minimum > self.repetitions:
            raise fault(("minimum",), "is more than repetitions", "write at most repetitions")
        return self


class Settings(Strict):
    """How one repetition is made. Each study uses those that concern it."""

    duration: Seconds = Field(
        default=30.0,
        description="Time that traffic is counted: whole seconds. A job that takes longer is given up.",
    )
    warm_up: Seconds = Field(
        default=2.0,
        description="Time that traffic runs before packets are timed, and that is left out of what iperf3 "
        "counts, which takes whole seconds: a part of one is rounded up.",
    )
    threads: int = Field(default=10, description="Parallel streams of one connection.", ge=1, le=64)
    buffer: int = Field(default=262144, description="Socket buffer in bytes.", ge=4096, le=1 << 26)
    message: int = Field(default=57344, description="Bytes in one write.", ge=64, le=65507)
    datagram: int = Field(
        default=1400, description="Bytes in a UDP datagram that fits the MTU of every path.", ge=64, le=8900
    )
    probes: int = Field(default=100, description="Timed packets in one repetition.", ge=2, le=1_000_000)
    interval: Seconds = Field(default=0.01, description="Time between two timed packets.")
    table: int = Field(default=100_000, description="Most rules that are tried.", ge=1000, le=2_000_000)
    benchmark: int = Field(default=6000, description="Order of the matrix of LINPACK.", ge=100, le=20000)
    file: int = Field(default=100, description="Size of the disk benchmark's file in MB.", ge=1, le=4096)
    limit: Rate = Field(default=107_500_000, description="Rate of a link that guarantees are part of.")
    queue: int = Field(
        default=32, description="Frames that the access link of a job's host holds.", ge=1, le=4096
    )
    hosts: int = Field(default=26, description="Hosts that a job runs on.", ge=2, le=64, multiple_of=2)
    partition: int = Field(
        default=500_000,
        description="Bytes that each machine of a job fetches from each other one.",
        ge=1,
        le=1 << 30,
    )


class Plan(Strict):
    """One size of a campaign."""

    designs: list[Design] = Field(description="What is varied.", min_length=1)
    stop: StopRule = Field(description="How often each combination is measured.")
    settings: Settings = Field(default=Settings(), description="How one repetition is made.")

    def cells(self) -> list[dict[str, Factor]]:
        """Return every combination once."""
        found: list[dict[str, Factor]] = []
        for design in self.designs:
            found += [cell for cell in design.cells() if cell not in found]
        return found


class Campaign(Strict):
    """A campaign file."""

    version: Literal[1] = Field(description="Version of this format: 1.")
    name: Annotated[str, StringConstraints(pattern="^[a-z][a-z0-9-]{0,31}$")] = Field(
        description="Name of the campaign: lower-case letters, digits and dashes."
    )
    title: str = Field(description="Title of the report.", max_length=120)
    question: str = Field(description="What the campaign answers.", max_length=500)
    study: StudyName = Field(
        description="Measurement and report: "
        + ", ".join(f"`{name}` ({what})" for name, what in STUDIES.items())
        + "."
    )
    topology: str = Field(
        description="A topology file beside this one, of the lab or of real nodes; or the name of one that "
        "comes with the program.",
    )
    order: Literal["randomised", "given"] = Field(
        default="randomised",
        description="Order within a block, which holds every combination once: `randomised` or as `given`.",
    )
    seed: int = Field(default=1, description="Seed of the order.")
    confidence: float = Field(
        default=0.95, description="Confidence of intervals; tests use 1 minus it.", ge=0.5, lt=1
    )
    hypotheses: list[Hypothesis] = Field(
        default=[],
        description="What is tested, stated before anything is measured; without any, those of the study.",
    )
    smoke: Plan | None = Field(
        default=None, description="Shows that the campaign runs, in minutes; it answers nothing."
    )
    standard: Plan | None = Field(default=None, description="Answers the question on a small machine.")
    full: Plan | None = Field(default=None, description="As in the published study: hours.")

    @model_validator(mode="after")
    def _sound(self) -> Campaign:
        if not self.sizes:
            raise fault(("standard",), "is missing, as are smoke and full", "write at least one size")
        names = [h.name for h in self.hypotheses]
        if len(set(names)) != len(names):
            raise fault(("hypotheses",), "has a name twice", "give each hypothesis its own")
        return self

    @property
    def sizes(self) -> list[Size]:
        """The sizes that there are."""
        return [size for size in SIZES if getattr(self, size) is not None]

    def plan(self, size: Size) -> Plan:
        """Return the size that is asked for. Raises VigiaError."""
        found: Plan | None = getattr(self, size)
        if found is None:
            there = " or ".join(f"--size {s}" for s in self.sizes)
            raise VigiaError(f"campaign {self.name} has no {size} size; run it with {there}")
        return found


def load(path: Path) -> Campaign:
    """Read a campaign file. Raises vigia_config.ConfigError."""
    return vigia_config.load(path, Campaign)


def shown(factors: Mapping[str, Any]) -> str:
    """Return a combination for people: the levels, in the order of the factors."""
    return " ".join(str(v) for v in factors.values())
