"""A topology of real nodes: who has an agent, and where each path ends."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from vigia.campaign.jobs import Netns
from vigia_config import Strict, fault
from vigia_config.tls import Tls

__all__ = ["NodesTopology", "PathEnd", "RealNode", "RealPath", "describes_nodes"]

Name = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]

_KIND = re.compile(r"^kind:\s*[\"']?nodes[\"']?\s*(#.*)?$", re.MULTILINE)


def describes_nodes(text: str) -> bool:
    """Whether the text of a topology file is about real nodes and not a lab."""
    return _KIND.search(text) is not None


class RealNode(Strict):
    """A machine with an agent."""

    name: Name = Field(description="Name of the node, as in the metrics' label `src`.")
    agent: Annotated[
        str,
        StringConstraints(pattern=r"^https?://[^/\s?#]+$"),
        Field(description="Where its agent is: `https://HOST:9877`."),
    ]


class PathEnd(Strict):
    """One end of a path."""

    node: Name = Field(description="Node that it is on.")
    address: ipaddress.IPv4Address = Field(description="Address there: traffic of the path is sent to it.")
    netns: Netns | None = Field(
        default=None,
        description="Network namespace on the node that the address is in; none is the node's own.",
    )


class RealPath(Strict):
    """A way between nodes: underlay, overlay, SR-IOV function, IPsec."""

    name: Name = Field(description="Name of the path, as in the campaign's factor `path` or `site`.")
    ends: list[PathEnd] = Field(
        description="Where it ends. The first node's ends send; the n-th of them to the n-th of the other "
        "node (cross-node), or the first to the second and the third to the fourth (same-node).",
        min_length=2,
        max_length=64,
    )


class NodesTopology(Strict):
    """A topology of real nodes."""

    version: Literal[1] = Field(description="Version of this format: 1.")
    kind: Literal["nodes"] = Field(description="`nodes`: real ones, not a lab.")
    name: Name = Field(description="Name of the place.")
    tls: Tls | None = Field(
        default=None, description="Certificates of the machine that runs campaigns; needed for https agents."
    )
    nodes: list[RealNode] = Field(description="Machines with an agent.", min_length=1, max_length=256)
    paths: list[RealPath] = Field(description="Paths between the nodes.", min_length=1, max_length=256)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        known = {n.name for n in self.nodes}
        for what, names in (("nodes", [n.name for n in self.nodes]), ("paths", [p.name for p in self.paths])):
            for i, name in enumerate(names):
                if name in names[:i]:
                    raise fault([what, i, "name"], f'"{name}" is there twice', "use each name once")
        for i, node in enumerate(self.nodes):
            if node.agent.startswith("https:") and self.tls is None:
                raise fault(["nodes", i, "agent"], "needs certificates", "add tls at the top level")
        for i, path in enumerate(self.paths):
            for j, end in enumerate(path.ends):
                if end.node not in known:
                    where: list[str | int] = ["paths", i, "ends", j, "node"]
                    raise fault(
                        where, f'"{end.node}" is not a node', f"write one of {', '.join(sorted(known))}"
                    )
            if len({e.node for e in path.ends}) > 2:
                raise fault(
                    ["paths", i, "ends"], "are on more than two nodes", "make a path for each pair of nodes"
                )
        return self
