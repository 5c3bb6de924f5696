"""Endpoints of probes on the nodes of a real Neutron, made as docs/how-to/openstack.md has an operator make them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from labkit import ROOT
from openstackkit import PATIENCE, Cloud, guide, total
from prometheus_client.parser import text_string_to_metric_families

from vigia.host import commands, netns
from vigia.lab.model import Node
from vigia_testing import eventually

__all__ = ["OWNER", "Probing"]

OWNER = "vigia:probe"
"""device_owner of ports that vigia-identity makes."""


class Probing:
    """What an operator has written and started so that nodes probe each other."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud, self.folder = cloud, folder
        self.files = folder / "probes"
        self.files.mkdir()
        said = yaml.safe_load(guide("probes.yaml"))["openstack"]["probes"]
        there = {p.encap for p in cloud.lab.topology.paths if p.kind == "overlay"}
        if there == {"geneve"}:  # the guide says to write what the cloud has
            said["networks"] = [{"name": "geneve", "type": "geneve"}]
        self.said = {**said, "dir": str(self.files)}
        self.said["networks"] = [n for n in said["networks"] if n["type"] in there]
        self.names = [n["name"] for n in self.said["networks"]]
        assert len(self.names) == len(there)

    def ask(self, **probes: Any) -> commands.CommandResult:
        """Have vigia-identity ask once, with other settings of openstack.probes than the guide's."""
        return self.cloud.ask(self.folder, {**self.said, **probes})

    def ports(self) -> list[dict[str, Any]]:
        """Return Neutron's ports that are ours."""
        return self.cloud.neutron.listed("ports", device_owner=OWNER)

    def others(self) -> set[str]:
        """Return the ids of all ports that are not."""
        return {p["id"] for p in self.cloud.neutron.listed("ports") if p["device_owner"] != OWNER}

    def prefix(self, node: str) -> str:
        """Return what names of a node's endpoints begin with: nodes of the lab share the folder of names."""
        return f"{self.cloud.lab.layout.prefix}{node}-probe-"

    def endpoints(self, node: str) -> set[str]:
        """Return the networks that a node has an endpoint of."""
        prefix = self.prefix(node)
        return {name.removeprefix(prefix) for name in netns.names(prefix)}

    def plug(self, node: Node, *more: str) -> list[str]:
        """Return the guide's command, with this node's files."""
        words = shlex.split(
            guide("plug").replace("/var/lib/vigia/probes/node1.yaml", f"{self.files}/{node.name}.yaml")
        )
        own = [
            f"--ovsdb=unix:{self.cloud.lab.layout.ovs(node.name)}/db.sock",
            f"--netns-prefix={self.prefix(node.name)}",
            f"--state={self.folder}/plug-{node.name}/state.json",
            "--every=500ms",
        ]
        return [
            "nsenter",
            f"--net=/run/netns/{node.netns}",
            str(ROOT / "bin" / words[0]),
            *words[1:],
            *own,
            *more,
        ]

    @contextmanager
    def plugging(self) -> Iterator[dict[str, Any]]:
        """Run the command on all nodes until the end of the context, and then take away what it made."""
        with ExitStack() as stack:
            children = {}
            for node in self.cloud.lab.nodes:
                children[node.name] = self.start_plug(node)
                stack.callback(lambda node=node: commands.run(self.plug(node, "--remove"), timeout=PATIENCE))
                stack.callback(lambda name=node.name: end(children[name]))
            yield children

    def start_plug(self, node: Node) -> Any:
        """Start the command on a node."""
        return commands.start(self.plug(node), log=self.folder / f"plug-{node.name}.log")

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Run vigia-probe of all nodes with the guide's configuration until the end of the context."""
        with ExitStack() as stack:
            for node in self.cloud.lab.nodes:
                file = self.folder / f"probe-{node.name}.yaml"
                file.write_text(yaml.safe_dump(self.configuration(node)))
                argv = [str(ROOT / "bin/vigia-probe"), f"--config={file}"]
                log = self.folder / f"probe-{node.name}.log"
                child = commands.start([*argv, f"--web.listen-address={node.agent}:9871"], log=log)
                stack.callback(end, child)
            yield

    def configuration(self, node: Node) -> dict[str, Any]:
        """Return the guide's configuration of vigia-probe, with what is this node's and this cloud's."""
        text = guide("probe.yaml").replace("vigia-probe-", self.prefix(node.name))
        text = text.replace("/var/lib/vigia/probes/", f"{self.files}/")
        if self.names == ["geneve"]:
            text = text.replace("vxlan", "geneve")
        content: dict[str, Any] = yaml.safe_load(text)
        assert content["node"] == "node1"
        subnets = [s["cidr"] for s in self.cloud.neutron.listed("subnets")]
        content |= {"node": node.name}
        content["reflector"]["allow"] = sorted(set(subnets))
        (found,) = content["discovery"]
        found["refresh"] = "1s"
        kept = [t for t in found["targets"] if t["at"] in self.names]
        content["discovery"] = [{**found, "targets": kept}]
        paths = {t["path"] for t in kept}
        content["paths"] = [p for p in content["paths"] if p["name"] in paths]
        listeners = content["reflector"]["listeners"]
        content["reflector"]["listeners"] = [
            li for li in listeners if li["netns"].removeprefix(self.prefix(node.name)) in self.names
        ]
        return content

    def received(self, node: str, to: str) -> Mapping[str, float]:
        """Return how many answers a node has had from another, by path."""
        try:
            said = httpx.get(f"http://{self.cloud.lab.node(node).agent}:9871/metrics", timeout=20.0).text
        except httpx.HTTPError:
            return {}
        samples = (s for family in text_string_to_metric_families(said) for s in family.samples)
        page = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
        paths = {dict(own).get("path", "") for name, own in page if name == "vigia_probe_received_total"}
        return {p: total(page, "vigia_probe_received_total", dst=to, path=p) for p in paths}

    def nodes(self) -> dict[str, dict[str, str]]:
        """Return the labels of each node in the file of discovery."""
        groups = json.loads((self.files / "nodes.json").read_text())
        return {g["labels"]["node"]: g["labels"] for g in groups}

    def wait_for_endpoints(self, node: str, wanted: set[str]) -> None:
        """Wait until a node has endpoints of these networks, and no others."""
        log = self.folder / f"plug-{node}.log"
        eventually(
            lambda: self.endpoints(node) == wanted,
            lambda: f"{node} has {self.endpoints(node)}: {log.read_text()[-2000:]}",
            PATIENCE,
        )


def end(child: Any) -> None:
    """End a program that was started here."""
    child.terminate()
    child.wait()
