"""The lab's topology file: the whole of it, and where it is read."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from pydantic import model_validator

import vigia_config
from vigia.lab import rules
from vigia.lab.schema import TopologySpec

__all__ = ["Topology", "default", "load"]


class Topology(TopologySpec):
    """The whole lab."""

    @model_validator(mode="after")
    def _together(self) -> Topology:
        rules.check(self)
        return self


def load(path: Path) -> Topology:
    """Read a topology file. Raises vigia_config.ConfigError."""
    return vigia_config.load(path, Topology)


def default() -> Topology:
    """Return the topology of the demo, which comes with the program."""
    raw = resources.files("vigia.lab").joinpath("topologies/demo.yaml").read_bytes()
    return vigia_config.parse("demo.yaml", raw, Topology)
