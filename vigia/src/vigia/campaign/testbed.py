"""What a campaign measures on: a lab that is brought up for it, with reflectors at every endpoint."""

from __future__ import annotations

import io
import ipaddress
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import yaml

import vigia_config
from vigia.campaign.hosts import LocalHost, Place
from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import clouds, down, ipsec, model, state, topology, up
from vigia.lab.model import Datapath, Endpoint, Lab, Node
from vigia.lab.naming import joined
from vigia.lab.topology import Topology
from vigia.stack.places import built
from vigia_service.patience import Patience

__all__ = ["LabTestbed", "Pair", "Testbed", "lab_testbed"]

Pair = tuple[Place, Place]
"""Sender and receiver."""

INFRA = "_infra"
_REFLECTOR_PORT = 862
_READY_SECONDS = 30.0


class Testbed(Protocol):
    """Where places are found."""

    @property
    def description(self) -> dict[str, Any]:
        """What the manifest says about it."""

    def pairs(self, path: str, placement: str, machines: int) -> list[Pair]:
        """Return the connections of so many machines on a path. Raises VigiaError."""

    def marks(self) -> list[dict[str, Any]]:
        """Return what happened since the last time, each with at (Unix time) and what."""


class LabTestbed:
    """A lab that is up."""

    def __init__(self, lab: Lab, datapath: Datapath, host: LocalHost, cloud: str = clouds.PLAIN) -> None:
        self.lab = lab
        self.cloud = cloud
        self.datapath = datapath
        self.host = host
        self._associations: Mapping[str, frozenset[str]] = {}

    @property
    def description(self) -> dict[str, Any]:
        """What the manifest says about it."""
        return {
            "kind": "lab",
            "name": self.lab.name,
            "cloud": self.cloud,
            "ovs_datapath": self.datapath,
            "esp": ipsec.datapath(self.lab),
            "topology": self.lab.topology.model_dump(mode="json"),
        }

    def node_of(self, path: str) -> Node:
        """Return the first node of the link that a path is on. Raises VigiaError."""
        for link in self.lab.links:
            node = self.lab.node(link.nodes[0])
            if any(p.name == path for p in self.lab.paths_of(node)):
                return node
        known = ", ".join(p.name for p in self.lab.topology.paths)
        raise VigiaError(f'lab {self.lab.name} has no path "{path}"; its paths are {known}')

    def pairs(self, path: str, placement: str, machines: int) -> list[Pair]:
        """Return the connections of so many machines on a path. Raises VigiaError.

        cross-node: each machine of the first node with the one of the same
        number on the other. same-node: the first with the second, the third
        with the fourth, all on the first node.
        """
        if machines < 2 or machines % 2:
            raise VigiaError(f"{machines} machines make no pairs; write an even number")
        node = self.node_of(path)
        if any(p.name == path and p.kind == "direct" for p in self.lab.topology.paths):
            return [self._direct(node, path)] * (machines // 2)
        if any(s.path == path for s in node.stations):
            ends = self._station(node, path), self._station(self.lab.node(node.peer), path)
            return [ends] * (machines // 2)
        if placement == "cross-node":
            return [
                (self._place(node.name, path, n), self._place(node.peer, path, n))
                for n in range(1, machines // 2 + 1)
            ]
        if placement == "same-node":
            return [
                (self._place(node.name, path, n), self._place(node.name, path, n + 1))
                for n in range(1, machines + 1, 2)
            ]
        raise VigiaError(f'"{placement}" is not a placement; write same-node or cross-node')

    def _direct(self, node: Node, path: str) -> Pair:
        peer = self.lab.node(node.peer)
        return (
            Place(node.name, path, 1, _ipv4(node), node.netns, self.host),
            Place(peer.name, path, 1, _ipv4(peer), peer.netns, self.host),
        )

    def _station(self, node: Node, path: str) -> Place:
        s = next(s for s in node.stations if s.path == path)
        return Place(node.name, path, 1, s.address.ip, s.netns, self.host)

    def marks(self) -> list[dict[str, Any]]:
        """Return what happened since the last time: IPsec associations that were rekeyed."""
        present = ipsec.association_sets(self.lab)
        before, self._associations = self._associations, present
        return [
            {"at": time.time(), "what": f"IPsec of {path} was rekeyed"}
            for path, spis in present.items()
            if path in before and spis != before[path]
        ]

    def _place(self, node: str, path: str, machine: int) -> Place:
        e = self.endpoint(node, path, machine)
        return Place(node, path, machine, e.address.ip, e.netns, self.host)

    def endpoint(self, node: str, path: str, machine: int) -> Endpoint:
        """Return an endpoint of the operator's own. Raises VigiaError."""
        there = sum((e.tenant, e.path) == (INFRA, path) for e in self.lab.node(node).endpoints)
        if machine > there:
            raise VigiaError(
                f"{there} machines are on {path} at node {node} of lab {self.lab.name}, and {machine} are "
                f"wanted; write machines: {machine} for the network of {INFRA} on {path} in the topology"
            )
        return self.lab.endpoint(node, INFRA, path, machine)


def _ipv4(node: Node) -> ipaddress.IPv4Address:
    address = node.underlay.ip
    if isinstance(address, ipaddress.IPv4Address):
        return address
    raise VigiaError(
        f"the underlay address of {node.name} is {address}, and campaigns measure the direct path by IPv4; "
        "write an IPv4 underlay in the topology"
    )


@contextmanager
def lab_testbed(text: str, steps: Steps, cloud: str = clouds.PLAIN) -> Iterator[LabTestbed]:
    """Bring up the lab of a topology, and remove it afterwards. Raises VigiaError.

    A lab of that name that is there already was left by a campaign that was
    killed: it is removed first, with whatever still runs inside.
    """
    lab = model.resolve(vigia_config.parse("topology", text, Topology))
    if lab.topology == topology.default() or lab.name == "demo":
        raise VigiaError("a campaign's lab must not be the demo; give its topology another name")
    host = LocalHost(built("vigia-probe"))
    if down.leftovers(lab.layout):
        _remove(lab, steps)
    present = up.bring_up(lab, "auto", Steps(io.StringIO()), cloud)
    lab = present.lab
    try:
        steps.line(f"lab {lab.name} is up: {len(lab.nodes)} nodes, {len(lab.namespaces())} namespaces")
        with _reflectors(lab, host):
            yield LabTestbed(lab, present.datapath, host, cloud)
    finally:
        _remove(lab, steps)


def _remove(lab: Lab, steps: Steps) -> None:
    with state.locked(lab.layout):
        removed = down.remove(lab.layout)
    steps.line(f"removed lab {lab.name}: {removed}")


@contextmanager
def _reflectors(lab: Lab, host: LocalHost) -> Iterator[None]:
    """Run a reflector at every endpoint and node while the body runs, by one vigia-probe."""
    ends: list[tuple[str, object]] = [(n.netns, n.underlay.ip) for n in lab.nodes]
    ends += [(e.netns, e.address.ip) for e in lab.endpoints if e.tenant == INFRA]
    ends += [(s.netns, s.address.ip) for n in lab.nodes for s in n.stations]
    listeners = [{"netns": place, "address": joined(address, _REFLECTOR_PORT)} for place, address in ends]
    config = lab.layout.directory / "reflectors.yaml"
    reflector = {"listeners": listeners, "allow": ["0.0.0.0/0"], "max_rate": 1_000_000}
    config.write_text(yaml.safe_dump({"node": "campaign", "reflector": reflector}))
    address = f"{lab.topology.agents.network_address + lab.topology.agents.num_addresses - 2}:9871"
    log = lab.layout.directory / "reflectors.log"
    child = commands.start(
        [str(built("vigia-probe")), "--config", str(config), "--web.listen-address", address], log=log
    )
    try:
        _await_reflectors([place for place, _ in ends], child, log)
        yield
    finally:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=10)
        child.kill()
        child.wait()


def _await_reflectors(places: list[str], child: subprocess.Popen[bytes], log: Path) -> None:
    patience = Patience(_READY_SECONDS)
    wanted = f":{_REFLECTOR_PORT:04X} "

    def bound() -> bool:
        return wanted in Path("/proc/thread-self/net/udp").read_text()

    while not all(netns.inside(place, bound) for place in places):
        if child.poll() is not None:
            raise VigiaError(f"the reflectors ended: {log.read_text(errors='replace').strip()[-400:]}")
        if patience.over():
            raise VigiaError(
                f"not all of {len(places)} reflectors listen after {_READY_SECONDS:g} s; see {log}"
            )
        time.sleep(0.05)
