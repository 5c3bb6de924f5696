"""The alert path under a stop-watch: flood, exporter, Prometheus, Alertmanager, agent, enforcer, kernel.

Every part is the real one, in one namespace of its own, configured as it is shipped
but for the guards that would stop a hundred floods in two minutes. Each flood comes
from a port and a tenant of its own at a random moment; the times are those that the
agent's timeline has for its action.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import yaml

from vigia.errors import VigiaError
from vigia.flood import run as floods
from vigia.flood.order import FloodOrder
from vigia.host import commands, netns
from vigia.isolation import claims
from vigia.stack import files, passwords, places
from vigia.stack import site as sites
from vigia.stack.agent import IsolationAgent

__all__ = ["Alarm", "Alarms", "AlertTestbed", "alarms"]

_NODE = "n1"
_READY = 60.0
_SIZE, _RATE = 100, 600_000  # bytes of payload, and a second: three times the 2 000 packets that make a flood
_GUARANTEE = "1Mbit"
_FLOOD = 6.0
_APART = 1.2  # seconds between the beginnings of two floods, on average
_PATIENCE = 30.0


@dataclass(frozen=True)
class Alarm:
    """What a flood came to, in seconds from its first packet; None if it did not."""

    detected: float | None
    """until the kernel held it for a flood"""
    verified: float | None
    """until the limit was read back from the kernel"""


@dataclass(frozen=True)
class Alarms:
    """Every flood of a run."""

    found: Sequence[Alarm] = field(default_factory=list)

    @property
    def missed(self) -> int:
        """Floods that no limit followed."""
        return sum(a.verified is None for a in self.found)

    @property
    def detected(self) -> list[float]:
        """Times until the kernel held a flood for one."""
        return [a.detected for a in self.found if a.detected is not None]

    @property
    def verified(self) -> list[float]:
        """Times until the limit was read back."""
        return [a.verified for a in self.found if a.verified is not None]


class AlertTestbed:
    """A site of one node with so many ports; it is there while it is entered."""

    def __init__(self, ports: int) -> None:
        self.ports = ports
        self._node = self._guests = ""
        self._stack = ExitStack()
        self._folder = Path()
        self._token = Path()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        programs = places.find_programs()
        try:
            claimed = self._stack.enter_context(claims.claim("a"))
            self._folder = claimed.folder
            self._node, self._guests = f"{claimed.name}-n", f"{claimed.name}-g"
            self._build()
            self._write_files(claimed.mount_bpffs())
            self._start(programs)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _build(self) -> None:
        both = (self._node, self._guests)
        self._stack.callback(commands.ip_batch, [f"netns del {n}" for n in both], force=True)
        commands.ip_batch([f"netns add {n}" for n in both])
        for name in both:
            keys = [f"net.ipv6.conf.{k}.disable_ipv6=1" for k in ("all", "default")]
            commands.run(["sysctl", "-qw", *keys], netns=name)
            commands.ip_batch(["link set lo up"], netns=name)
        numbers = range(self.ports)
        commands.ip_batch(
            [
                f"link add t{i} netns {self._node} type veth peer name g{i} netns {self._guests}"
                for i in numbers
            ]
        )
        commands.ip_batch([f"link set t{i} up" for i in numbers], netns=self._node)
        lines = []
        for i in numbers:
            lines += [f"link set g{i} up", f"addr add {self._address(i, 2)}/24 dev g{i}"]
            lines.append(f"neigh add {self._address(i, 9)} lladdr 02:00:00:00:00:09 dev g{i} nud permanent")
        commands.ip_batch(lines, netns=self._guests)

    @staticmethod
    def _address(port: int, host: int) -> str:
        return f"10.{80 + port // 250}.{port % 250}.{host}"

    def _write_files(self, pins: Path) -> None:
        for name in ("enforcer.token", "webhook.token", "api.token"):
            files.write_secret(self._folder / name)
        root = places.source_root()
        password = files.write_password(self._folder)
        site = sites.Site("127.0.0.1", {_NODE: "127.0.0.1"}, password)
        node: dict[str, Any] = {
            "node": _NODE,
            "ports_file": str(self._folder / "ports.yaml"),
            "bpf": {"pin_dir": str(pins / "vigia"), "max_ports": max(64, self.ports)},
        }
        contracts = [
            {"tenant": f"tenant-{i}", "guarantee": _GUARANTEE, "ceiling": "100Mbit"}
            for i in range(self.ports)
        ]
        enforcer = {**node, "token_file": str(self._folder / "enforcer.token"), "contracts": contracts}
        ports = [{"device": f"t{i}", "port": f"p{i}", "tenant": f"tenant-{i}"} for i in range(self.ports)]
        self._yaml("ports.yaml", {"version": 1, "ports": ports})
        self._yaml("exporter.yaml", node)
        self._yaml("enforcer.yaml", enforcer)
        self._yaml("policies.yaml", _policies(root, self.ports))
        self._text(
            "prometheus.yml", sites.prometheus((root / "deploy/prometheus/prometheus.yml").read_text(), site)
        )
        shipped = (root / "deploy/alertmanager/alertmanager.yml").read_text()
        self._text("alertmanager.yml", sites.alertmanager(shipped, site))
        tokens = {_NODE: self._folder / "enforcer.token"}
        self._text("isolation-agent.yaml", sites.isolation_agent(site, self._folder, tokens))
        (self._folder / "rules").mkdir()
        for file in sorted((root / "alert-rules").glob("*.rules.yml")):
            shutil.copy(file, self._folder / "rules")
        (self._folder / "targets").mkdir()
        for job, groups in sites.targets(site).items():
            if job not in ("vigia-probe", "vigia-compare", "node"):
                self._text(f"targets/{job}.json", json.dumps(groups))

    def _text(self, name: str, content: str) -> None:
        (self._folder / name).write_text(content)

    def _yaml(self, name: str, content: Mapping[str, Any]) -> None:
        self._text(name, yaml.safe_dump(content, sort_keys=False))

    def _start(self, programs: places.Programs) -> None:
        """Start all at once, then wait for each: they find each other when they are there."""
        self._stack.callback(self._stop)
        services = self._services(programs)
        for name, (argv, _) in services.items():
            self._children[name] = commands.start(argv, log=self._folder / f"{name}.log", netns=self._node)
        for name, (_, port) in services.items():
            self._await(name, f"{port}/-/ready")
        self._await_targets()

    def _services(self, programs: places.Programs) -> Mapping[str, tuple[list[str], int]]:
        """Return the command line and the port of each."""
        at = self._folder
        listen = "--web.listen-address=127.0.0.1:"
        return {
            "exporter": ([programs.exporter, f"--config={at / 'exporter.yaml'}", f"{listen}9872"], 9872),
            "enforcer": ([programs.enforcer, f"--config={at / 'enforcer.yaml'}", f"{listen}9873"], 9873),
            "agent": (
                [programs.isolation_agent, "--config", str(at / "isolation-agent.yaml"), "run"],
                9874,
            ),
            "alertmanager": (
                [
                    programs.alertmanager,
                    f"--config.file={at / 'alertmanager.yml'}",
                    f"--web.config.file={at / passwords.WEB_CONFIG}",
                    f"--storage.path={at / 'am'}",
                    f"{listen}9093",
                    "--cluster.listen-address=",
                ],
                9093,
            ),
            "prometheus": (
                [
                    programs.prometheus,
                    f"--config.file={at / 'prometheus.yml'}",
                    f"--storage.tsdb.path={at / 'tsdb'}",
                    f"{listen}9090",
                    "--enable-feature=native-histograms",
                ],
                9090,
            ),
        }

    def _inside(self, url: str, auth: tuple[str, str] | None = None) -> httpx.Response:
        return netns.inside(
            self._node, lambda: httpx.get(f"http://127.0.0.1:{url}", timeout=5.0, trust_env=False, auth=auth)
        )

    def _await(self, name: str, url: str) -> None:
        deadline = time.monotonic() + _READY
        asks = name == "alertmanager"
        auth = passwords.credentials(self._folder / passwords.PASSWORD) if asks else None
        while time.monotonic() < deadline and self._children[name].poll() is None:
            with suppress(httpx.HTTPError):
                if self._inside(url, auth).status_code == httpx.codes.OK:
                    return
            time.sleep(0.1)
        said = (self._folder / f"{name}.log").read_text(errors="replace")[-1000:]
        raise VigiaError(f"{name} did not become ready: {said}")

    def _await_targets(self) -> None:
        """Wait until Prometheus reads the page that shows floods, and every port is watched for them."""
        deadline = time.monotonic() + _READY
        query = f"9090/api/v1/query?query={quote('sum(vigia_exporter_flood_watched_ports)')}"
        while time.monotonic() < deadline:
            found = []
            with suppress(httpx.HTTPError):
                found = self._inside(query).json()["data"]["result"]
            if found and int(found[0]["value"][1]) >= self.ports:
                return
            time.sleep(0.3)
        raise VigiaError(f"Prometheus does not see that {self.ports} ports are watched for floods")

    def _stop(self) -> None:
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def flood(self, port: int) -> Alarm:
        """Flood from a port and wait for its limit. Raises VigiaError."""
        source, destination = self._address(port, 2), self._address(port, 9)
        report = floods.run(
            FloodOrder(self._guests, _NODE, f"tenant-{port}", "", source, destination, _RATE, _FLOOD, _SIZE)
        )
        begun = report.outcome.first_ns / 1e9
        deadline = time.monotonic() + _PATIENCE
        instants: Mapping[str, float] = {}
        while time.monotonic() < deadline:
            instants = netns.inside(self._node, lambda: self._instants(port))
            if "limit_verified" in instants:
                break
            time.sleep(0.5)

        def since(event: str) -> float | None:
            return instants[event] - begun if event in instants else None

        return Alarm(since("kernel_detected"), since("limit_verified"))

    def _instants(self, port: int) -> Mapping[str, float]:
        with IsolationAgent("127.0.0.1:9874", self._folder / "api.token") as agent:
            action = agent.newest(_NODE, f"p{port}")
        return action.instants if action else {}


def _policies(root: Path, ports: int) -> Mapping[str, Any]:
    """Return the shipped policies, with guards that let so many floods pass."""
    content: dict[str, Any] = yaml.safe_load((root / "deploy/isolation-agent/policies.yaml").read_text())
    content["guards"] |= {
        "max_active": 2 * ports,
        "max_per_node": 2 * ports,
        "breaker": {"actions": 2 * ports},
    }
    return content


def alarms(runs: int, seed: int = 1) -> Alarms:
    """Let so many floods come one after the other, each from a port of its own. Raises VigiaError."""
    order = random.Random(seed)  # noqa: S311 - moments, not secrets
    with AlertTestbed(runs) as bed, ThreadPoolExecutor(max_workers=32) as pool:
        waiting = []
        for port in range(runs):
            waiting.append(pool.submit(bed.flood, port))
            time.sleep(order.uniform(0.5, 1.5) * _APART)
        return Alarms([w.result() for w in waiting])
