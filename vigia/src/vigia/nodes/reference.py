"""The page docs/reference/nodes.md, made from the models."""

from __future__ import annotations

from pydantic import BaseModel

from vigia.lab.reference import table
from vigia.nodes.settings import Agent
from vigia.nodes.topology import NodesTopology, PathEnd, RealNode, RealPath
from vigia_config.tls import Tls

__all__ = ["markdown"]

_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The agent: `/etc/vigia/node.yaml`", Agent),
    ("`tls`", Tls),
    ("The topology", NodesTopology),
    ("`nodes`", RealNode),
    ("`paths`", RealPath),
    ("`ends`", PathEnd),
)

_INTRODUCTION = """\
# Real nodes

`vigia node serve` is the agent of a node, and `vigia campaign run CAMPAIGN --topology FILE` measures
across the nodes of a topology; [the guide](../how-to/real-nodes.md) shows how. `vigia node check-config`
and `vigia node status` say what is wrong with one or the other (file, line, value, fix). Unknown and
repeated keys are errors.
"""


def markdown() -> str:
    """Return the page."""
    sections = (f"## {title}\n\n{model.__doc__}\n\n{table(model)}" for title, model in _SECTIONS)
    return "\n".join([_INTRODUCTION, *sections])
