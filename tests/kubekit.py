"""A cluster of the lab's for tests: what people type, what its pods answer, and its nodes' power."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import ROOT

from vigia.host import commands
from vigia.lab.kubernetes import machines, programs
from vigia.lab.kubernetes.places import ClusterPlaces, Member, members
from vigia.lab.model import Lab

__all__ = ["GUIDE", "TOPOLOGY", "Cluster", "Series", "guide"]

GUIDE = ROOT / "docs/how-to/kubernetes.md"
TOPOLOGY = ROOT / "vigia/src/vigia/lab/topologies/kubernetes.yaml"
NAMESPACE = "vigia"

Series = tuple[str, dict[str, str], float]
_LINE = re.compile(r"^([a-z_:]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def guide(name: str) -> str:
    """Return the commands of the guide that are marked by a name."""
    (found,) = re.findall(rf"<!-- test: {name} -->\n```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return str(found)


@dataclass(frozen=True)
class Cluster:
    """A lab's cluster that is up."""

    lab: Lab

    @property
    def places(self) -> ClusterPlaces:
        return ClusterPlaces(self.lab.layout)

    @property
    def nodes(self) -> list[Member]:
        return members(self.lab)

    def type(self, text: str, timeout: float = 900) -> str:
        """Type commands of the guide, with this lab's name in place of the guide's; return what they print."""
        script = text.replace("/run/vigia/kubernetes/", f"{self.lab.layout.directory}/")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={
                **os.environ,
                "PATH": f"{self.places.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}\n{self.state()}"
        return done.stdout

    def state(self) -> str:
        """How the pods and nodes are, for messages of failures."""
        shown = [self.kubectl("get", "nodes,pods", "--all-namespaces", "-o", "wide", check=False)]
        shown += [
            self.kubectl("-n", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp", check=False)[-3000:]
        ]
        return "\n".join(shown)

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        argv = [str(self.places.bin / "kubectl"), "--request-timeout=20s", *arguments]
        return commands.run(argv, stdin=stdin, timeout=300, check=check).stdout

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return items

    def secret(self, name: str) -> str:
        """Return the token of a Secret of the release."""
        data = json.loads(self.kubectl("-n", NAMESPACE, "get", "secret", name, "-o", "json"))["data"]
        return base64.b64decode(data["token"]).decode()

    def address(self, service: str) -> str:
        """Return where a service's pod is; empty while none is ready."""
        slices = self.objects(
            "-n", NAMESPACE, "endpointslices", "-l", f"kubernetes.io/service-name={service}"
        )
        endpoints = [e for one in slices for e in one.get("endpoints") or () if e["conditions"].get("ready")]
        if not endpoints:
            return ""
        return f"{endpoints[0]['addresses'][0]}:{slices[0]['ports'][0]['port']}"

    def http(self, url: str, *, token: str = "", method: str = "GET", body: object = None) -> str:
        """Ask somebody of the cluster; empty if nobody answers, or not with 2xx."""
        argv = ["curl", "-sS", "--fail", "--max-time", "10", "-X", method, url]
        argv += ["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body is not None else []
        argv += ["-H", "@-"] if token else []
        header = f"Authorization: Bearer {token}\n" if token else ""
        done = commands.run(argv, netns=self.places.control_netns, stdin=header, check=False)
        return done.stdout if done.status == 0 else ""

    def metrics(self, at: str, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Return the series of a name on a program's page, by their labels; none if it does not answer."""
        found = {}
        for line in self.http(f"http://{at}/metrics").splitlines():
            match = _LINE.match(line)
            if match is None or match[1] != name:
                continue
            own = dict(_LABEL.findall(match[2] or ""))
            if labels.items() <= own.items():
                found[tuple(sorted(own.items()))] = float(match[3])
        return found

    def total(self, at: str, name: str, **labels: str) -> float:
        return sum(self.metrics(at, name, **labels).values())

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Ask the release's Prometheus."""
        url = f"http://{self.address('vigia-prometheus')}/api/v1/query"
        argv = ["curl", "-sS", "--max-time", "10", "--get", url, "--data-urlencode", f"query={expression}"]
        done = commands.run(argv, netns=self.places.control_netns, check=False)
        if done.status != 0:
            return []
        result: list[dict[str, Any]] = json.loads(done.stdout)["data"]["result"]
        return result

    def alerts(self) -> set[tuple[str, str]]:
        """Return name and node of every alert that fires."""
        fired = self.query('ALERTS{alertstate="firing"}')
        return {
            (a["metric"]["alertname"], a["metric"].get("node") or a["metric"].get("src", "")) for a in fired
        }

    def processes(self, program: str, machine: Member | None = None) -> list[int]:
        """Return the processes of a program, of a node or of the control plane."""
        wanted = str(programs.find().bin / program)
        netns = self.places.control_netns if machine is None else machine.node.netns
        listed = commands.run(["ip", "netns", "pids", netns]).stdout.split()
        return [int(p) for p in listed if _argument(p) == wanted]

    def power_off(self, node: str) -> None:
        """Take a node's power away."""
        machines.stop_node(self._member(node))

    def power_on(self, node: str) -> None:
        """Let a node boot."""
        machines.start_node(self.lab, self._member(node), programs.find())

    def _member(self, node: str) -> Member:
        return next(m for m in self.nodes if m.name == node)


def _argument(pid: str) -> str:
    try:
        return Path("/proc", pid, "cmdline").read_text().split("\0")[0]
    except OSError:
        return ""
