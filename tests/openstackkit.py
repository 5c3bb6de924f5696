"""A lab's OpenStack for tests: what people type, its API, its nodes' agents and what they say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from labkit import ROOT, VIGIA, own_topology, run_vigia
from prometheus_client.parser import text_string_to_metric_families
from prometheuskit import CONTENT

from vigia.host import commands, netns, processes
from vigia.lab import naming, openvswitch, state
from vigia.lab.files.enforcer import NOTICES
from vigia.lab.model import Datapath, Endpoint, Lab, Node
from vigia.lab.neutron.api import Neutron
from vigia.lab.neutron.machines import Known, read_known
from vigia.lab.neutron.places import Driver, NeutronPlaces
from vigia_testing import eventually

__all__ = ["GUIDE", "NAME", "TOPOLOGIES", "Agents", "Cloud", "Page", "down", "guide", "up"]

GUIDE = ROOT / "docs/how-to/openstack.md"
TOPOLOGIES = ROOT / "vigia/src/vigia/lab/topologies"
PATIENCE = 300.0
NAME = "ostest"
"""The lab that these tests bring up."""
_PORTS = {"exporter": 9872, "enforcer": 9873}

Page = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
"""Values of a page's series, by name and labels."""


def up(cloud: str, folder: Path) -> list[str]:
    """Return the command that brings a cloud up, with a topology of the tests' own that is written into a folder."""
    topology = own_topology(folder, NAME, "127.72.0.0/24", TOPOLOGIES / f"{cloud}.yaml")
    topology.write_text(
        topology.read_text().replace("stack_address: 127.0.0.1", "stack_address: 127.72.0.250")
    )
    return [str(VIGIA), "lab", "up", "--cloud", cloud, "--topology", str(topology)]


def down() -> None:
    """Take the cloud away."""
    done = run_vigia("lab", "down", "--lab", NAME, timeout=600)
    assert done.status == 0, done.stderr


def guide(name: str) -> str:
    """Return the block of the guide that is marked by a name."""
    (found,) = re.findall(rf"<!-- test: {name} -->\n```\w+\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return str(found)


def total(page: Page, name: str, **labels: str) -> float:
    """Return the sum of a page's series of a name with these labels."""
    wanted = set(labels.items())
    return sum(value for (n, own), value in page.items() if n == name and wanted <= own)


@dataclass(frozen=True)
class Cloud:
    """A lab's cloud that is up."""

    lab: Lab
    driver: Driver
    datapath: Datapath

    @classmethod
    def of(cls, name: str) -> Cloud:
        """Return the cloud of a lab that is up."""
        present = state.running(name)
        found = read_known(present.lab)
        assert found is not None
        return cls(present.lab, found.driver, present.datapath)

    @property
    def places(self) -> NeutronPlaces:
        return NeutronPlaces(self.lab.layout)

    @property
    def known(self) -> Known:
        found = read_known(self.lab)
        assert found is not None
        return found

    @property
    def neutron(self) -> Neutron:
        return Neutron(self.places, self.driver)

    @property
    def ends(self) -> dict[str, dict[str, str]]:
        """Where enforcers listen, and where tunnels end, which is another address with Open vSwitch."""
        return {
            n.name: {"address": naming.joined(n.underlay.ip, NOTICES), "tunnel": str(n.tunnel.ip)}
            for n in self.lab.nodes
        }

    def machine(self, node: str, tenant: str) -> Endpoint:
        """Return a tenant's machine on a node: that on its first network."""
        return next(e for e in self.lab.node(node).endpoints if e.tenant == tenant)

    def type(self, text: str, timeout: float = 600) -> str:
        """Type commands of the guide, with this lab's name in place of the guide's; return what they print."""
        script = text.replace("neutronovn", self.lab.name).replace("neutronovs", self.lab.name)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={**os.environ, "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"},
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def identity(self, folder: Path, probes: Mapping[str, Any] | None = None, **more: Any) -> list[str]:
        """Return the command of vigia-identity as the cloud's administrator has it, on the control plane."""
        config: dict[str, Any] = {
            "tenants_file": str(folder / "tenants.yaml"),
            "ports_dir": str(self.places.hosts),
            "contracts_dir": str(self.places.contracts),
            "sites_dir": str(self.places.sites),
            "every": "1h",  # what follows sooner, follows from what Neutron says has changed
            "openstack": {
                "cloud": "lab",
                "clouds_file": str(self.places.clouds_file),
                "names": self.driver != "ovn",
                "operator": self.known.projects[naming.INFRA],
                "changes": "1s",
                "default": {"guarantee": "1Mbit", "ceiling": "150Mbit"},
                "notices": {"nodes": {} if self.driver == "linuxbridge" else self.ends},
                **({} if probes is None else {"probes": dict(probes)}),
            },
            **more,
        }
        (folder / "identity.yaml").write_text(yaml.safe_dump(config))
        program = [str(ROOT / ".venv/bin/vigia-identity"), "--config", str(folder / "identity.yaml")]
        return ["nsenter", f"--net=/run/netns/{self.places.netns}", *program]

    def ask(self, folder: Path, probes: Mapping[str, Any] | None = None) -> commands.CommandResult:
        """Have vigia-identity ask once."""
        return commands.run([*self.identity(folder, probes), "--once"], timeout=PATIENCE, check=False)

    def hold(self, service: str) -> Path:
        """Return the file that keeps a program from being started again."""
        return self.places.hold / service

    def kill(self, program: str, machine: str = "") -> None:
        """Kill a program of the control plane or of a node, and what it has started; it is started again."""
        with netns.held([machine or self.places.netns]) as inodes:
            mine = [pid for pid in processes.all_pids() if netns.is_inside(pid, inodes)]
            found = [pid for pid in mine if _runs(pid, program)]
            assert found, f"no {program} runs"
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def pings(self, source: Endpoint, address: object, count: int = 3) -> int:
        """Return how many echoes a machine gets back from an address."""
        argv = ["ping", "-n", "-q", "-c", str(count), "-i", "0.2", "-W", "1", str(address)]
        done = commands.run(argv, netns=source.netns, check=False)
        found = re.search(r"(\d+) received", done.stdout)
        return int(found[1]) if found else 0

    def foreign(self, node: Node, port: Endpoint) -> dict[str, str]:
        """Return Neutron's and OVN's own objects at a port and on its node: what Vigia leaves as it is."""
        found = {
            "qdisc": _run("tc", "qdisc", "show", "dev", port.device, netns=node.netns),
            "class": _run("tc", "class", "show", "dev", port.device, netns=node.netns),
        }
        if self.driver == "linuxbridge":
            found["rules"] = _run("iptables-save", netns=node.netns)
            return {k: _stable(v) for k, v in found.items()}
        for table, columns in (("QoS", "type,other_config,queues"), ("Queue", "other_config")):
            found[table] = openvswitch.vsctl(
                self.lab.layout, node.name, f"--columns={columns}", "list", table
            )
        columns = "name,ingress_policing_rate,external_ids,options"
        found["Interface"] = openvswitch.vsctl(
            self.lab.layout, node.name, f"--columns={columns}", "list", "Interface"
        )
        env = {"OVS_RUNDIR": str(self.lab.layout.ovs(node.name))}
        for what in ("dump-flows", "dump-meters"):
            said = commands.run(
                ["ovs-ofctl", "-O", "OpenFlow15", what, "br-int", "--no-stats"], env=env, check=False
            )
            found[what] = said.stdout
        return {k: _stable(v) for k, v in found.items()}


def _run(*argv: str, netns: str) -> str:
    try:
        return commands.run(list(argv), netns=netns, check=False).stdout
    except commands.CommandError:  # the machine has no such program
        return ""


def _stable(text: str) -> str:
    """Leave out what counts, and what has no order."""
    lines = [
        re.sub(r"\[\d+:\d+\]|(duration|n_packets|n_bytes|idle_age)=\S+ ?", "", line)
        for line in text.splitlines()
    ]
    return "\n".join(sorted(line for line in lines if not line.startswith("#")))


def _runs(pid: int, program: str) -> bool:
    """Whether a process is a program, by its path or by the title that it gave itself."""
    words = " ".join(processes.arguments(pid)).split(" ")
    return any(Path(word.rstrip(":")).name == program for word in words[:2])


class Agents:
    """vigia-exporter and vigia-enforcer of a lab's nodes, run by the files that the lab wrote."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._running = ExitStack()

    @contextmanager
    def running(self, nodes: Sequence[str], folder: Path) -> Iterator[Agents]:
        """Run them until the end of the context, or until they are stopped."""
        with self._running as stack:
            for name in nodes:
                node = self.cloud.lab.node(name)
                for program, port in _PORTS.items():
                    self._start(stack, node, program, port, folder)
            yield self

    def stop(self) -> None:
        """Have them end: others take their place."""
        self._running.close()

    def _start(self, stack: ExitStack, node: Node, program: str, port: int, folder: Path) -> None:
        config = self.cloud.lab.layout.node(node.name) / f"{program}.yaml"
        argv = [str(ROOT / f"bin/vigia-{program}"), f"--config={config}"]
        log = folder / f"{program}-{node.name}.log"
        child = commands.start([*argv, f"--web.listen-address={node.agent}:{port}"], log=log)
        stack.callback(child.wait)
        stack.callback(child.terminate)
        at = f"http://{node.agent}:{port}/-/ready"
        eventually(
            lambda: _answers(at), lambda: f"{program} of {node.name}: {log.read_text()[-2000:]}", PATIENCE
        )

    def page(self, node: str, program: str = "exporter") -> Page:
        """Return the page of a program; empty while it does not answer."""
        try:
            said = httpx.get(
                f"http://{self.cloud.lab.node(node).agent}:{_PORTS[program]}/metrics", timeout=20.0
            )
        except httpx.HTTPError:
            return {}
        if said.is_error:
            return {}
        families = text_string_to_metric_families(said.text)
        samples = (s for family in families for s in family.samples)
        return {(s.name, frozenset(s.labels.items())): s.value for s in samples}

    def raw(self, node: str, program: str) -> tuple[str, bytes]:
        """Return a program's page as Prometheus reads it, native histograms among it: its type, and what it has."""
        at = f"http://{self.cloud.lab.node(node).agent}:{_PORTS[program]}/metrics"
        said = httpx.get(at, headers={"Accept": CONTENT}, timeout=20.0).raise_for_status()
        return said.headers["Content-Type"], said.content

    def ports(self, node: str) -> dict[str, dict[str, str]]:
        """Return what the exporter of a node says of each port, by its id."""
        found = [dict(own) for (name, own) in self.page(node) if name == "vigia_port_info"]
        return {p["port"]: p for p in found}

    def enforcer(self, node: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """Ask the enforcer of a node, as the isolation agent does."""
        token = self.cloud.lab.layout.token_file.read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        at = f"http://{self.cloud.lab.node(node).agent}:9873{path}"
        return httpx.request(method, at, json=body, headers=headers, timeout=20.0)

    def limit(self, node: str, port: str) -> dict[str, Any]:
        """Return the limit in force at a port; empty without one, or where there is no such port."""
        return dict(self._state(node, port).get("limit") or {})

    def bought(self, node: str, port: str) -> int:
        """Return what a port is guaranteed, in bytes per second; 0 without a contract."""
        return int(self._state(node, port).get("guarantee_bytes_per_second") or 0)

    def _state(self, node: str, port: str) -> dict[str, Any]:
        listed = (
            self.enforcer(node, "GET", "/v1/state").json().get("ports", [])
        )  # none of one that has just begun
        return dict(next((p for p in listed if p["port"] == port), {}))

    def promised(self, node: str, owner: str) -> tuple[int, set[int]]:
        """Return the ceiling that a contract has on a node, and those of its classes on uplinks.

        In bytes per second; 0 without it.
        """
        listed = self.enforcer(node, "GET", "/v1/desired").json()["contracts"]
        found = [c["from_tenant"]["ceiling_bytes_per_second"] for c in listed if c["contract"] == owner]
        devices = self.enforcer(node, "GET", "/v1/actual").json()["devices"]
        sent = [c for d in devices if d["direction"] == "from_tenant" for c in d["classes"]]
        classes = {c["ceiling_bytes_per_second"] for c in sent if c.get("contract") == owner}
        return (int(found[0]) if found else 0), classes

    def set_limit(self, node: str, port: str, tenant: str, *, rate: int, ttl: float) -> httpx.Response:
        """Limit a port's UDP, in bytes per second."""
        body = {
            "id": "0b5f4d0e-6f0e-4c3c-9a55-0d0f5b1f7a11",
            "tenant": tenant,
            "protocol": "udp",
            "rate_bytes_per_second": rate,
            "burst_bytes": max(rate // 10, 20_000),
            "ttl_seconds": ttl,
        }
        return self.enforcer(node, "PUT", f"/v1/ports/{port}/limit", body)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0).is_success
    except httpx.HTTPError:
        return False
