"""Real nodes as what a campaign measures on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import vigia_config
from vigia.campaign.hosts import Place
from vigia.campaign.testbed import Pair
from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.nodes.client import RemoteHost
from vigia.nodes.settings import client_context
from vigia.nodes.topology import NodesTopology, RealPath

__all__ = ["NodesTestbed", "connect", "nodes_testbed"]


class NodesTestbed:
    """Nodes whose agents answer."""

    def __init__(self, topology: NodesTopology, hosts: dict[str, RemoteHost]) -> None:
        self.topology = topology
        self._hosts = hosts
        self._environments = {name: host.environment() for name, host in hosts.items()}
        self._associations: dict[tuple[str, str], frozenset[str]] = {}

    @property
    def description(self) -> dict[str, Any]:
        """What the manifest says about it."""
        return {
            "kind": "nodes",
            "name": self.topology.name,
            "topology": self.topology.model_dump(mode="json", exclude={"tls"}),
            "environments": self._environments,
        }

    def pairs(self, path: str, placement: str, machines: int) -> list[Pair]:
        """Return the connections of so many machines on a path. Raises VigiaError."""
        if machines < 2 or machines % 2:
            raise VigiaError(f"{machines} machines make no pairs; write an even number")
        found = self._path(path)
        first = [self._place(found, i) for i, e in enumerate(found.ends) if e.node == found.ends[0].node]
        other = [self._place(found, i) for i, e in enumerate(found.ends) if e.node != found.ends[0].node]
        wanted = machines // 2
        match placement:
            case "cross-node":
                # One end on each node stands for the nodes themselves, which take every connection.
                single = len(first) == len(other) == 1
                there = [(first[0], other[0])] * wanted if single else list(zip(first, other, strict=False))
            case "same-node":
                there = list(zip(first[::2], first[1::2], strict=False))
            case _:
                raise VigiaError(f'"{placement}" is not a placement; write same-node or cross-node')
        if len(there) < wanted:
            raise VigiaError(
                f"path {path} has {len(there)} {placement} connections and {wanted} are wanted; "
                f"add ends to it in the topology {self.topology.name}"
            )
        return there[:wanted]

    def marks(self) -> list[dict[str, Any]]:
        """Return what happened since the last time: IPsec associations of a node that were keyed again.

        A node that cannot say is not asked in vain: its next job says what is wrong with it.
        """
        found: list[dict[str, Any]] = []
        for name, host in self._hosts.items():
            try:
                present = host.associations()
            except VigiaError:
                continue
            for place, spis in present.items():
                before = self._associations.get((name, place))
                self._associations[(name, place)] = spis
                if before and spis and spis - before:
                    where = f"{name}, namespace {place}" if place else name
                    found.append({"at": time.time(), "what": f"IPsec of {where} was rekeyed"})
        return found

    def _path(self, name: str) -> RealPath:
        for path in self.topology.paths:
            if path.name == name:
                return path
        known = ", ".join(p.name for p in self.topology.paths)
        raise VigiaError(f'topology {self.topology.name} has no path "{name}"; its paths are {known}')

    def _place(self, path: RealPath, i: int) -> Place:
        end = path.ends[i]
        return Place(end.node, path.name, i + 1, end.address, end.netns, self._hosts[end.node])


@contextmanager
def connect(topology: NodesTopology) -> Iterator[dict[str, RemoteHost]]:
    """Return the nodes' agents by name, whether or not they answer. Raises VigiaError."""
    verify = client_context(topology.tls)
    with ExitStack() as stack:
        hosts = {n.name: RemoteHost(n.name, n.agent, verify) for n in topology.nodes}
        for host in hosts.values():
            stack.callback(host.close)
        yield hosts


@contextmanager
def nodes_testbed(text: str, steps: Steps) -> Iterator[NodesTestbed]:
    """Find every node of a topology. Raises VigiaError for one that does not answer."""
    topology = vigia_config.parse("topology", text, NodesTopology)
    with connect(topology) as hosts:
        testbed = NodesTestbed(topology, hosts)
        steps.line(f"{topology.name}: the agents of {', '.join(hosts)} answer")
        yield testbed
