"""Where the stack is: its files, its addresses, the programs it is made of."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.host.source import built, source_root
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia.stack.site import AGENT_PORTS

__all__ = ["MARKER", "Places", "Programs", "built", "find_programs", "source_root"]

MARKER = "VIGIA_STACK"
"""Environment variable that every process of a stack carries; its value is the stack's folder."""


@dataclass(frozen=True)
class Places:
    """Files and addresses of a lab's stack."""

    layout: Layout
    data_root: Path = Path("/var/lib/vigia")

    @property
    def directory(self) -> Path:
        """Configuration, secrets, logs: gone after a reboot."""
        return self.layout.stack

    @property
    def data(self) -> Path:
        """Time series, alerts, actions: on disk, since they grow."""
        return self.data_root / self.layout.lab

    @property
    def plan(self) -> Path:
        """What the supervisor runs."""
        return self.directory / "plan.json"

    @property
    def status(self) -> Path:
        """What the supervisor reports."""
        return self.directory / "status.json"

    @property
    def logs(self) -> Path:
        """One log file per service."""
        return self.directory / "log"

    @property
    def webhook_token(self) -> Path:
        """What Alertmanager shows the isolation agent."""
        return self.directory / "webhook.token"

    @property
    def alertmanager_password(self) -> Path:
        """What Prometheus shows Alertmanager."""
        return self.directory / "alertmanager.password"

    @property
    def api_token(self) -> Path:
        """What a person shows the isolation agent."""
        return self.directory / "api.token"


def agent_address(lab: Lab, node: str, part: str) -> str:
    """Return host:port of a node's agent."""
    return f"{lab.node(node).agent}:{AGENT_PORTS[part]}"


def stack_address(lab: Lab, port: int) -> str:
    """Return host:port of a part of which there is one per site."""
    return f"{lab.topology.stack_address}:{port}"


@dataclass(frozen=True)
class Programs:
    """The executables, all found."""

    probe: str
    exporter: str
    enforcer: str
    isolation_agent: str
    compare: str
    prometheus: str
    alertmanager: str
    node_exporter: str


_DEBIAN = {
    "prometheus": ("prometheus", "prometheus"),
    "alertmanager": ("prometheus-alertmanager", "prometheus-alertmanager"),
    "node_exporter": ("prometheus-node-exporter", "prometheus-node-exporter"),
}


def find_programs() -> Programs:
    """Find every executable. Raises VigiaError that says what to install or build."""
    found = {part: str(built(f"vigia-{part}")) for part in ("probe", "exporter", "enforcer")}
    for name, (program, package) in _DEBIAN.items():
        where = commands.find(program)
        if where is None:
            raise VigiaError(f"{program} is not installed; install it: apt-get install {package}")
        found[name] = where
    for field, name in (("isolation_agent", "isolation-agent"), ("compare", "vigia-compare")):
        path = Path(sys.executable).parent / name
        if not path.is_file():
            raise VigiaError(f"{path} is missing; install it: make deps")
        found[field] = str(path)
    return Programs(**found)
