"""What Vigia's containers cost a node of a lab's cluster at rest: processor time and memory of their control groups.

    PYTHONPATH=tests .venv/bin/python tests/kubernetes/footprint.py --lab kubernetes --seconds 180 --pods 30

The chart has to be installed in the cluster; pods that ping now and then are made beside it for the time of the measurement.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubekit import NAMESPACE, Cluster

from vigia.lab import state
from vigia.lab.kubernetes.machines import GROUPS
from vigia.lab.kubernetes.places import ClusterPlaces
from vigia.lab.model import Lab
from vigia_testing import eventually

BUSY = "footprint"
WORK = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: work, namespace: %(namespace)s}
spec:
  replicas: %(pods)d
  selector: {matchLabels: {app: work}}
  template:
    metadata: {labels: {app: work}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: work}}}
      containers:
        - name: main
          image: lab.local/busybox:1
          command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do ping -c 1 -W 1 %(to)s > /dev/null; sleep 5 & wait $!; done"]
"""


@dataclass(frozen=True)
class Container:
    """A container, and where its control group is below a hierarchy."""

    node: str
    component: str
    group: str

    def cpu(self) -> float:
        """Seconds of a processor that it has used."""
        return int((GROUPS / "cpuacct" / self.group / "cpuacct.usage").read_text()) / 1e9

    def memory(self) -> int:
        """Bytes that are its own: anonymous memory, and what its files map."""
        lines = (GROUPS / "memory" / self.group / "memory.stat").read_text().splitlines()
        found = dict(line.split() for line in lines)
        return int(found["total_rss"]) + int(found["total_mapped_file"])


def containers(lab: Lab, pods: list[dict[str, Any]]) -> Iterator[Container]:
    """Find the containers of pods."""
    top = ClusterPlaces(lab.layout).group
    for pod in pods:
        quality = {"Burstable": "burstable/", "BestEffort": "besteffort/"}.get(pod["status"]["qosClass"], "")
        node = pod["spec"]["nodeName"]
        for status in pod["status"]["containerStatuses"]:
            name = status["containerID"].removeprefix("containerd://")
            group = f"{top}/{node}/kubepods/{quality}pod{pod['metadata']['uid']}/{name}"
            yield Container(node, pod["metadata"]["labels"]["app.kubernetes.io/component"], group)


def measure(cluster: Cluster, seconds: float) -> str:
    """Return what each part cost each node meanwhile, as a table."""
    own = ["-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/name=vigia"]
    found = list(containers(cluster.lab, cluster.objects(*own)))
    before, load, began = {c: c.cpu() for c in found}, os.getloadavg()[0], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    cost: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for c in found:  # a pod may have several
        cpu, memory = cost[c.component].get(c.node, (0.0, 0.0))
        cost[c.component][c.node] = (cpu + (c.cpu() - before[c]) / took, memory + c.memory() / 2**20)
    nodes = sorted({c.node for c in found})
    lines = [
        f"load {load:.1f} to {os.getloadavg()[0]:.1f}, {took:.0f} s",
        "",
        "| part | " + " | ".join(nodes) + " |",
    ]
    lines.append("|---|" + "--:|" * len(nodes))
    each = ("probe", "probe-pods", "exporter", "enforcer")
    for component in (*each, *sorted(set(cost) - set(each))):
        cells = [cost[component].get(n) for n in nodes]
        shown = [f"{c[0]:.2%} of a core, {c[1]:.0f} MiB" if c else "" for c in cells]
        lines.append(f"| {component} | " + " | ".join(shown) + " |")
    sums = [[cost[c][n] for c in each if n in cost[c]] for n in nodes]
    total = [f"{sum(c for c, _ in s):.2%} of a core, {sum(m for _, m in s):.0f} MiB" for s in sums]
    lines.append("| **those of every node** | " + " | ".join(total) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what Vigia costs a node of a cluster at rest.")
    parser.add_argument("--lab", default="kubernetes")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--pods", type=int, default=30, help="beside Vigia's own, on each node")
    asked = parser.parse_args()
    cluster = Cluster(state.running(asked.lab).lab)
    to = cluster.nodes[1].address
    cluster.kubectl("create", "namespace", BUSY)
    try:
        work = WORK % {"namespace": BUSY, "pods": asked.pods * len(cluster.nodes), "to": to}
        cluster.kubectl("apply", "-f", "-", stdin=work)

        def ready() -> bool:
            (item,) = cluster.objects("-n", BUSY, "deployments")
            return bool(item["status"].get("readyReplicas") == item["spec"]["replicas"])

        eventually(ready, cluster.state, 600.0)
        time.sleep(60)  # what starting costs is no rest
        print(measure(cluster, asked.seconds))
    finally:
        cluster.kubectl("delete", "namespace", BUSY, "--wait=true")


if __name__ == "__main__":
    main()
