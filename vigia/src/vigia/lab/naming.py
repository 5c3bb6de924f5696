"""Names of everything that the lab makes, and where its files are."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from vigia.errors import OptionError

__all__ = [
    "INFRA",
    "LAB_NAME",
    "RESERVED_LAB",
    "Layout",
    "device",
    "joined",
    "layout_of",
    "mac",
    "port",
    "tenant_in_names",
]

INFRA = "_infra"
"""The operator's own tenant: the endpoints that measure."""

LAB_NAME = "[a-z][a-z0-9]{0,9}"
"""What a lab may be called, as a regular expression."""

RESERVED_LAB = "test"
"""Not a lab: the project's tests call their namespaces vigia-test-..."""

_DEVICE = 15  # longest device name (IFNAMSIZ - 1)


def tenant_in_names(tenant: str) -> str:
    """Return a tenant as it is written in names of namespaces, devices and ports."""
    return "infra" if tenant == INFRA else tenant


def device(tenant: str, key: int, machine: int = 1) -> str:
    """Return the name of a tenant's port on its node, for example red-110, or red-110-2."""
    shown = f"{key}{_further(machine)}"
    return f"{tenant_in_names(tenant)[: min(8, _DEVICE - 1 - len(shown))]}-{shown}"


def port(node: str, tenant: str, key: int, machine: int = 1) -> str:
    """Return the stable identity of a tenant's port, for example node1-red-110."""
    return f"{node}-{tenant_in_names(tenant)}-{key}{_further(machine)}"


def joined(address: object, port: int) -> str:
    """Return an IP address with a port."""
    text = str(address)
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


def _further(machine: int) -> str:
    return "" if machine == 1 else f"-{machine}"


def mac(netns: str, name: str) -> str:
    """Return the hardware address of a device: always the same, locally administered, unicast."""
    digest = hashlib.sha256(f"{netns}/{name}".encode()).digest()
    return "02:" + ":".join(f"{byte:02x}" for byte in digest[:5])


@dataclass(frozen=True)
class Layout:
    """Where a lab is: its namespaces, files and sockets."""

    lab: str
    root: Path = Path("/run/vigia")

    @property
    def prefix(self) -> str:
        """What the names of the lab's namespaces begin with."""
        return f"vigia-{self.lab}-"

    @property
    def directory(self) -> Path:
        """The run directory: everything that the lab writes."""
        return self.root / self.lab

    @property
    def state_file(self) -> Path:
        """What is up, or was being brought up."""
        return self.directory / "state.json"

    @property
    def lock_file(self) -> Path:
        """Held while a command changes the lab."""
        return self.root / f"{self.lab}.lock"

    @property
    def stack(self) -> Path:
        """Configuration, secrets and logs of the monitoring stack beside the lab, if there is one."""
        return self.directory / "stack"

    @property
    def bpffs(self) -> Path:
        """Mount point of the lab's own BPF file system."""
        return self.directory / "bpffs"

    @property
    def token_file(self) -> Path:
        """Secret that the enforcers ask of the isolation agent."""
        return self.directory / "enforcer.token"

    def notice_keys(self, node: str) -> Path:
        """Secrets by which a node's enforcer and each other one know each other's notices."""
        return self.node(node) / "notice.keys"

    def node(self, node: str) -> Path:
        """Files of a node: configuration of its agents."""
        return self.directory / "nodes" / node

    def pins(self, node: str) -> Path:
        """Where a node's agents pin their BPF objects."""
        return self.bpffs / node

    def ovs(self, node: str) -> Path:
        """Database, sockets, pid files and logs of a node's Open vSwitch."""
        return self.node(node) / "ovs"

    def node_netns(self, node: str) -> str:
        """Namespace of a node."""
        return f"{self.prefix}{node}"

    def wire_netns(self, link: str) -> str:
        """Namespace of a link's switch."""
        return f"{self.prefix}wire-{link}"

    def endpoint_netns(self, node: str, tenant: str, path: str, machine: int = 1) -> str:
        """Namespace of a tenant's VM."""
        return f"{self.prefix}{node}-{tenant_in_names(tenant)}-{path}{_further(machine)}"


def layout_of(lab: str) -> Layout:
    """Return the layout of a lab whose name a person gave. Raises OptionError."""
    if re.fullmatch(LAB_NAME, lab) is None or lab == RESERVED_LAB:
        raise OptionError(f'--lab "{lab}" is not the name of a lab; write for example demo')
    return Layout(lab)
