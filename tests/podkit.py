"""Pods of a lab's cluster: traffic from inside them, counted at both ends, and the networks between their nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kubekit import Cluster

from vigia.host import commands
from vigia.lab.kubernetes.machines import GROUPS
from vigia_testing import eventually

__all__ = ["PEERS", "PINGING", "Pod", "flood", "narrow", "overlay", "steady", "tunnelled"]

PINGING = """
apiVersion: v1
kind: Pod
metadata: {name: %(name)s, namespace: red}
spec:
  nodeName: %(node)s
  hostNetwork: %(host)s
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: lab.local/busybox:1
      command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do ping -c 1 -W 1 %(to)s > /dev/null; sleep 0.2 & wait $!; done"]
"""

PEERS = """
apiVersion: v1
kind: Namespace
metadata: {name: blue}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: red}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      nodeName: node1
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: lab.local/busybox:1, command: [/bin/sleep, infinity]}]
---
apiVersion: vigia.internal/v1alpha1
kind: NetworkGuarantee
metadata: {name: db, namespace: red}
spec: {podSelector: {matchLabels: {app: db}}, send: {rate: 8M, ceiling: 10M}}
"""

_FLOOD = """
import random, socket, sys, time
to, bits, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
payload, begun, sent = bytes(1200), time.monotonic(), 0
while (now := time.monotonic() - begun) < seconds:
    due = min(now * bits / 8 / len(payload) - sent, 64)
    for _ in range(int(due)):
        try:
            out.sendto(payload, (to, random.randrange(20000, 30000)))
        except OSError:
            pass
    sent += int(due)
    if due < 8:
        time.sleep(0.0005)
"""

_RECEIVER = """
import socket, sys
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("", 5201))
here.settimeout(5)
seen = set()
print("ready", flush=True)
while True:
    try:
        data = here.recv(2048)
    except TimeoutError:
        break
    if data[:4] == b"last":
        break
    seen.add(data[:4])
print(len(seen), flush=True)
"""

_SENDER = """
import socket, sys, time
to, packets, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(packets):
    out.sendto(i.to_bytes(4, "big") + bytes(996), (to, 5201))
    time.sleep(pause)
time.sleep(1)
for _ in range(5):
    out.sendto(b"last", (to, 5201))
    time.sleep(0.1)
"""


@dataclass(frozen=True)
class Pod:
    """A pod that runs."""

    cluster: Cluster
    item: dict[str, Any]

    @classmethod
    def find(cls, cluster: Cluster, namespace: str, name: str) -> Pod:
        """Wait for a pod to be ready, and return it."""

        def ready() -> Pod | None:
            for item in cluster.objects("-n", namespace, "pods"):
                status = item["status"]
                conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
                going = "deletionTimestamp" in item["metadata"]
                if item["metadata"]["name"] == name and conditions.get("Ready") == "True" and not going:
                    return cls(cluster, item)
            return None

        found = eventually(ready, cluster.state, 300.0)
        assert found is not None
        return found

    @property
    def uid(self) -> str:
        return str(self.item["metadata"]["uid"])

    @property
    def port(self) -> str:
        """As exporters call it."""
        return f"{self.uid}/eth0"

    @property
    def node(self) -> str:
        return str(self.item["spec"]["nodeName"])

    @property
    def address(self) -> str:
        return str(self.item["status"]["podIP"])

    def inside(self, script: str, *arguments: str) -> list[str]:
        """Return a command line that runs a script of Python in the pod's network, on this machine's files."""
        top = GROUPS / "pids" / self.cluster.places.group / self.node / "kubepods"
        groups = [*top.glob(f"pod{self.uid}/*/cgroup.procs"), *top.glob(f"*/pod{self.uid}/*/cgroup.procs")]
        pids = [pid for group in groups for pid in group.read_text().split()]
        assert pids, f"no process of {self.item['metadata']['name']} below {top}"
        return ["nsenter", f"--net=/proc/{pids[0]}/ns/net", sys.executable, "-c", script, *arguments]


@contextmanager
def flood(source: Pod, to: str, bits: int, seconds: int) -> Iterator[None]:
    """Have a pod send UDP to many ports of an address until the end of the context, and no longer than so many seconds."""
    with subprocess.Popen(source.inside(_FLOOD, to, str(bits), str(seconds))) as child:
        try:
            yield
        finally:
            child.kill()


def steady(source: Pod, sink: Pod, packets: int) -> int:
    """Send so many packets of 1 000 bytes at about 500 a second from pod to pod; return how many arrived."""
    with subprocess.Popen(sink.inside(_RECEIVER), stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        subprocess.run(source.inside(_SENDER, sink.address, str(packets), "0.002"), check=True, timeout=300)
        return int(receiver.stdout.readline())


@contextmanager
def narrow(cluster: Cluster, bits: int) -> Iterator[None]:
    """Let the wire to each node carry no more than this until the end of the context."""
    link = cluster.lab.links[0]

    def shape(rate: int) -> None:
        for node in cluster.nodes:
            limit = max(rate // 8 // 100, 20_000)  # 10 ms
            argv = ["tc", "-n", link.netns, "qdisc", "change", "dev", node.name, "root", "handle", "1:"]
            commands.run([*argv, "tbf", "rate", f"{rate}bit", "burst", str(link.burst), "limit", str(limit)])

    shape(bits)
    try:
        yield
    finally:
        shape(link.rate * 8)


@contextmanager
def overlay(cluster: Cluster) -> Iterator[None]:
    """Put the kernel's VXLAN between the nodes in place of routes, as flannel does, until the end of the context."""
    nodes = cluster.nodes
    for i, node in enumerate(nodes, start=1):
        own = ["ip", "-n", node.node.netns]
        vxlan = ["type", "vxlan", "id", "1", "local", node.address, "dstport", "8472", "nolearning"]
        mac = f"02:00:00:00:01:{i:02x}"
        commands.run([*own, "link", "add", "flannel.1", "address", mac, "mtu", "1450", *vxlan])
        commands.run([*own, "addr", "add", f"{node.pods.network_address}/32", "dev", "flannel.1"])
        commands.run([*own, "link", "set", "flannel.1", "up"])
    for node in nodes:
        for j, other in enumerate(nodes, start=1):
            if other == node:
                continue
            mac, gateway = f"02:00:00:00:01:{j:02x}", str(other.pods.network_address)
            ip, bridge = ["ip", "-n", node.node.netns], ["bridge", "-n", node.node.netns]
            commands.run(
                [*ip, "neigh", "replace", gateway, "lladdr", mac, "dev", "flannel.1", "nud", "permanent"]
            )
            commands.run([*bridge, "fdb", "append", mac, "dev", "flannel.1", "dst", other.address])
            route = [*ip, "route", "replace", str(other.pods)]
            commands.run([*route, "via", gateway, "dev", "flannel.1", "onlink"])
    try:
        yield
    finally:
        for node in nodes:
            for other in nodes:
                if other != node:
                    route = ["ip", "-n", node.node.netns, "route", "replace", str(other.pods)]
                    commands.run([*route, "via", other.address, "dev", "eth0"])
            commands.run(["ip", "-n", node.node.netns, "link", "del", "flannel.1"])


def tunnelled(cluster: Cluster, node: str) -> int:
    """Return how many packets a node has sent through the tunnel."""
    member = next(m for m in cluster.nodes if m.name == node)
    said = commands.run(["ip", "-n", member.node.netns, "-j", "-s", "link", "show", "flannel.1"]).stdout
    return int(json.loads(said)[0]["stats64"]["tx"]["packets"])
