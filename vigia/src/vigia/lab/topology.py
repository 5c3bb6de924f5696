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


def default(name: str = "demo") -> Topology:
    """Return a topology that comes with the program: that of the demo, or of a cloud."""
    raw = resources.files("vigia.lab").joinpath(f"topologies/{name}.yaml").read_bytes()
    return vigia_config.parse(f"{name}.yaml", raw, Topology)
