"""What the supervisor runs: one entry per process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vigia.lab.model import Lab
from vigia.stack import passwords, places
from vigia.stack.places import Places, Programs
from vigia.stack.site import AGENT_PORTS

__all__ = ["Service", "make", "read", "write"]


@dataclass(frozen=True)
class Service:
    """A process that is kept running."""

    name: str
    argv: tuple[str, ...]
    address: str
    """host:port that it listens on."""
    ready: str
    """Path that answers 200 once it works."""
    password_file: str = ""
    """The file with the password that it asks everybody for; none if it does not."""

    @property
    def ready_url(self) -> str:
        """Where to ask whether it works."""
        return f"http://{self.address}{self.ready}"

    @property
    def auth(self) -> tuple[str, str] | None:
        """User and password to ask with."""
        return passwords.credentials(Path(self.password_file)) if self.password_file else None


def make(lab: Lab, where: Places, programs: Programs) -> list[Service]:
    """Return the services of a lab's stack, in the order in which they are started."""
    return [*_site(lab, where, programs), *_agents(lab, where, programs)]


def _agents(lab: Lab, where: Places, programs: Programs) -> Iterator[Service]:
    executables = {
        "vigia-probe": (programs.probe, "probe.yaml"),
        "vigia-exporter": (programs.exporter, "exporter.yaml"),
        "vigia-enforcer": (programs.enforcer, "enforcer.yaml"),
    }
    for node in lab.nodes:
        for part in AGENT_PORTS:
            program, config = executables[part]
            address = places.agent_address(lab, node.name, part)
            yield Service(
                name=f"{part}@{node.name}",
                argv=(
                    program,
                    f"--config={lab.layout.node(node.name) / config}",
                    f"--web.listen-address={address}",
                    f"--web.reload-token-file={where.api_token}",
                ),
                address=address,
                ready="/-/ready",
            )


def _site(lab: Lab, where: Places, programs: Programs) -> Iterator[Service]:
    def site(name: str, port: int, ready: str, *argv: str, password: str = "") -> Service:
        return Service(name, argv, places.stack_address(lab, port), ready, password)

    yield site(
        "node_exporter",
        9100,
        "/",
        programs.node_exporter,
        f"--web.listen-address={places.stack_address(lab, 9100)}",
    )
    yield site(
        "prometheus",
        9090,
        "/-/ready",
        programs.prometheus,
        f"--config.file={where.directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={where.data / 'prometheus'}",
        "--storage.tsdb.retention.time=1d",
        "--storage.tsdb.retention.size=2GB",
        f"--web.listen-address={places.stack_address(lab, 9090)}",
        "--enable-feature=native-histograms",
    )
    yield site(
        "alertmanager",
        9093,
        "/-/ready",
        programs.alertmanager,
        f"--config.file={where.directory / 'alertmanager.yml'}",
        f"--storage.path={where.data / 'alertmanager'}",
        f"--web.config.file={where.directory / 'alertmanager.web.yml'}",
        f"--web.listen-address={places.stack_address(lab, 9093)}",
        "--cluster.listen-address=",
        password=str(where.alertmanager_password),
    )
    yield site(
        "isolation-agent",
        9874,
        "/-/ready",
        programs.isolation_agent,
        "--config",
        str(where.directory / "isolation-agent.yaml"),
        "run",
    )
    yield site(
        "vigia-compare",
        9875,
        "/-/ready",
        programs.compare,
        "--config",
        str(where.directory / "compare.yaml"),
        "run",
    )


def write(path: Path, services: list[Service]) -> None:
    """Write the plan for the supervisor."""
    path.write_text(json.dumps([asdict(s) for s in services], indent=1) + "\n")


def read(path: Path) -> list[Service]:
    """Read a plan."""
    entries: list[dict[str, Any]] = json.loads(path.read_text())
    return [Service(**{**entry, "argv": tuple(entry["argv"])}) for entry in entries]
