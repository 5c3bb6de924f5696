"""Where the files and addresses of a lab's Neutron are."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vigia.lab.model import Lab
from vigia.lab.naming import Layout

__all__ = ["CONTROL", "Driver", "NeutronPlaces", "management"]

Driver = Literal["ovn", "openvswitch", "linuxbridge"]
"""Mechanism driver of Neutron's ML2 plugin."""

CONTROL = "control"
"""The control plane's machine, in the name of its namespace."""

_MANAGEMENT = ipaddress.IPv4Network("10.98.0.0/24")


@dataclass(frozen=True)
class NeutronPlaces:
    """Files, addresses and the namespace of a lab's control plane."""

    layout: Layout

    @property
    def directory(self) -> Path:
        """Configuration, databases and logs: gone after a reboot."""
        return self.layout.directory / "cloud"

    @property
    def logs(self) -> Path:
        """One log file for each program of each machine."""
        return self.directory / "log"

    @property
    def hold(self) -> Path:
        """A file here, MACHINE-PROGRAM, keeps a program from being started again."""
        return self.directory / "hold"

    @property
    def scratch(self) -> Path:
        """What would be in /tmp."""
        return self.directory / "tmp"

    @property
    def ovn(self) -> Path:
        """OVN's databases and their sockets."""
        return self.directory / "ovn"

    @property
    def southbound(self) -> str:
        """OVN's southbound database as the exporters reach it: a socket, whatever namespace they are in."""
        return f"unix:{self.ovn}/ovnsb_db.sock"

    @property
    def secrets(self) -> Path:
        """Passwords, drawn for this lab."""
        return self.directory / "secrets.json"

    @property
    def known(self) -> Path:
        """What Neutron chose for the lab's machines."""
        return self.directory / "known.json"

    @property
    def clouds_file(self) -> Path:
        """clouds.yaml of the cloud's administrator."""
        return self.directory / "clouds.yaml"

    @property
    def hosts(self) -> Path:
        """Owners of each node's ports, NODE.yaml, where nodes do not know: vigia-identity's."""
        return self.layout.directory / "hosts"

    @property
    def contracts(self) -> Path:
        """What each node's ports have bought, NODE.yaml: vigia-identity's, and none before it runs."""
        return self.layout.directory / "contracts"

    @property
    def sites(self) -> Path:
        """Who asks whom to limit whose ports, NODE.yaml: vigia-identity's, the lab's own before it runs."""
        return self.layout.directory / "sites"

    def libvirt(self, node: str) -> Path:
        """A node's libvirt, all that would be in /etc, /run and /var; there is one where a guest is."""
        return self.layout.node(node) / "libvirt"

    def domains(self, node: str) -> Path:
        """What a node's libvirt says of the guests that run: /run/libvirt/qemu."""
        return self.libvirt(node) / "run/qemu"

    @property
    def netns(self) -> str:
        """Namespace of the control plane."""
        return f"{self.layout.prefix}{CONTROL}"

    @property
    def address(self) -> str:
        """Address of the control plane on the management network."""
        return str(_MANAGEMENT.network_address + 1)

    @property
    def neutron_url(self) -> str:
        """Neutron's API."""
        return f"http://{self.address}:9696"

    @property
    def keystone_url(self) -> str:
        """Keystone's API."""
        return f"http://{self.address}:15000/v3"


def management(lab: Lab) -> dict[str, str]:
    """Return the nodes' addresses on the management network, with their prefix length, by name."""
    first = _MANAGEMENT.network_address + 11
    return {node.name: f"{first + i}/{_MANAGEMENT.prefixlen}" for i, node in enumerate(lab.nodes)}
