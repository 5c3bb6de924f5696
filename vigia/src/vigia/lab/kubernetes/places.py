"""Where a cluster's files and addresses are."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from vigia.lab.model import Lab, Node
from vigia.lab.naming import Layout

__all__ = ["CONTROL", "FABRIC", "PODS", "SERVICES", "ClusterPlaces", "Member", "api_address", "members"]

CONTROL = "control"
"""The control plane's machine, in the names of its namespace and files."""

PODS = ipaddress.IPv4Network("10.244.0.0/16")
SERVICES = ipaddress.IPv4Network("10.96.0.0/16")
FABRIC = ipaddress.IPv4Network("10.88.0.0/16")
"""Of every pod's second interface, a macvlan on a second wire of the nodes."""


@dataclass(frozen=True)
class ClusterPlaces:
    """Files of a lab's cluster."""

    layout: Layout

    @property
    def directory(self) -> Path:
        """Certificates, configuration, logs: gone after a reboot."""
        return self.layout.directory / "cluster"

    @property
    def data(self) -> Path:
        """What containerd and etcd keep: on disk, since it is large."""
        return Path("/var/lib/vigia") / f"lab-{self.layout.lab}"

    @property
    def certificates(self) -> Path:
        """Certificates, keys, and configuration of the API's clients."""
        return self.directory / "pki"

    @property
    def admin(self) -> Path:
        """Configuration of kubectl and helm."""
        return self.certificates / "admin.conf"

    @property
    def logs(self) -> Path:
        """One log file for each program of each machine."""
        return self.directory / "log"

    @property
    def hold(self) -> Path:
        """A file here, MACHINE-PROGRAM, keeps a program from being started again."""
        return self.directory / "hold"

    @property
    def images(self) -> Path:
        """The archive of all images."""
        return self.data / "images.tar"

    @property
    def bin(self) -> Path:
        """kubectl and helm as people call them."""
        return self.layout.directory / "bin"

    @property
    def values(self) -> Path:
        """Values by which the chart takes the lab's images."""
        return self.layout.directory / "values.yaml"

    @property
    def group(self) -> str:
        """Name of the control group below which the nodes' are."""
        return f"vigia-{self.layout.lab}"

    @property
    def control_netns(self) -> str:
        """Namespace of the control plane."""
        return f"{self.layout.prefix}{CONTROL}"


@dataclass(frozen=True)
class Member:
    """A node of the lab as the cluster knows it."""

    node: Node
    pods: ipaddress.IPv4Network
    """Addresses of its pods."""

    fabric: ipaddress.IPv4Network
    """Addresses of its pods on the second network, which is one for all nodes."""

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.node.name

    @property
    def address(self) -> str:
        """Its address on the underlay."""
        return str(self.node.underlay.ip)


def members(lab: Lab) -> list[Member]:
    """Return the nodes with the networks of their pods."""
    nets, fabric = list(PODS.subnets(new_prefix=24)), list(FABRIC.subnets(new_prefix=24))
    return [Member(node, nets[i], fabric[i]) for i, node in enumerate(lab.nodes, start=1)]


def api_address(lab: Lab) -> str:
    """Return the address of the API server: the last one of the underlay's."""
    return str(lab.nodes[0].underlay.network.broadcast_address - 1)
