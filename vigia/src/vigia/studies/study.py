"""What a study is: a folder beside this module with a plan, a topology, a measurement and a report.

- plan.yaml: the campaign that comes with the program (vigia.campaign.model.Campaign);
- topology.yaml: the lab that it is measured in, if the plan names no other study's;
- measurement.py: MEASUREMENT, how one repetition is made;
- report.py: build(campaign, data), what the report says;
- published/*.csv: values of others that the report shows beside ours, if there are any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

import vigia_config
from vigia.campaign.model import Campaign, Factor, Settings
from vigia.campaign.samples import Series
from vigia.campaign.testbed import Testbed

if TYPE_CHECKING:
    from vigia.report.data import Data
    from vigia.report.document import Document

__all__ = ["Estimate", "Factors", "Measurement", "Study", "level", "scaled_links", "whole"]

Factors = Mapping[str, Factor]


@dataclass(frozen=True)
class Estimate:
    """What one repetition costs at most."""

    seconds: float
    bytes: float


class Measurement(ABC):
    """One study's way to measure."""

    factors: Mapping[str, Sequence[str] | None]
    """Each factor that a cell must have, with its levels if they are a closed list."""

    @abstractmethod
    def estimate(self, factors: Factors, settings: Settings) -> Estimate:
        """Return what one repetition costs."""

    @abstractmethod
    def measure(self, factors: Factors, settings: Settings, testbed: Testbed) -> list[Series]:
        """Make one repetition. Raises VigiaError."""

    @abstractmethod
    def described(self, settings: Settings) -> str:
        """Return how one repetition is made, in words, from the settings that this study uses."""

    def completed(self, factors: Factors, settings: Settings) -> Factors:
        """Return a cell of a campaign of an earlier version with the factors that it did not vary."""
        return factors

    def scale(self, settings: Settings) -> str:
        """Return to what rates are scaled, where links are made for the study; empty where they are not."""
        return ""


@dataclass(frozen=True)
class Study:
    """A question that campaigns answer. Its parts are loaded when they are used: reports draw figures."""

    name: str

    @property
    def folder(self) -> Traversable:
        """Where its files are."""
        return resources.files("vigia.studies").joinpath(self.name)

    @property
    def campaign(self) -> Campaign:
        """The campaign that comes with the program."""
        return vigia_config.parse(
            f"{self.name}/plan.yaml", self.folder.joinpath("plan.yaml").read_bytes(), Campaign
        )

    @property
    def topology(self) -> str | None:
        """Text of its own topology, None if it has none."""
        file = self.folder.joinpath("topology.yaml")
        return file.read_text() if file.is_file() else None

    @property
    def measurement(self) -> Measurement:
        """How one repetition is made."""
        found: Measurement = import_module(f"vigia.studies.{self.name}.measurement").MEASUREMENT
        return found

    def report(self, campaign: Campaign, data: Data) -> Document:
        """Return its own part of the report of what was measured."""
        build: Callable[[Campaign, Data], Document] = import_module(f"vigia.studies.{self.name}.report").build
        return build(campaign, data)


def scaled_links(settings: Settings) -> str:
    """Return to what rate the access links of the isolation experiments are scaled."""
    return (
        f"links of {8 * settings.limit / 1e6:g} Mbit/s (1 Gbit/s in the study): what a small machine carries"
    )


def level(factors: Factors, name: str) -> str:
    """Return a factor's level as text."""
    return str(factors[name])


def whole(factors: Factors, name: str) -> int:
    """Return a factor's level as a whole number."""
    return int(factors[name])
