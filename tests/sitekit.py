"""What a release of the chart says of a lab's cluster: its probers, its ports, what was bought and who is limited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubekit import Cluster
from podkit import Pod

from vigia.host import commands
from vigia_testing import eventually

__all__ = [
    "actions",
    "bought",
    "brought",
    "carried",
    "enforcers",
    "limited",
    "limits",
    "lose_alone",
    "move",
    "pods_probers",
    "port_of",
    "probers",
    "sells_by_annotations",
    "sent",
    "whole_matrix",
]

PATIENCE = 300.0


def probers(cluster: Cluster) -> list[str]:
    """Where all probers are: one in the host's network and one in the pods' of each node."""
    found = []
    for service in ("vigia-probe", "vigia-probe-pods"):
        slices = cluster.objects(
            "-n", "vigia", "endpointslices", "-l", f"kubernetes.io/service-name={service}"
        )
        found += [f"{e['addresses'][0]}:9871" for one in slices for e in one.get("endpoints") or ()]
    return found


def whole_matrix(cluster: Cluster) -> bool:
    """Whether every prober has had answers from the other node's."""
    at = probers(cluster)
    return len(at) == 4 and all(cluster.total(p, "vigia_probe_mesh_rtt_seconds_count") > 0 for p in at)


def pods_probers(cluster: Cluster) -> list[str]:
    return [at for at in probers(cluster) if at not in {f"{m.address}:9871" for m in cluster.nodes}]


def port_of(cluster: Cluster, node: int, pod: str) -> dict[str, str]:
    """What the exporter of a node says of a pod's port; empty while it knows none."""
    at = f"{cluster.nodes[node].address}:9872"
    found = [dict(labels) for labels in cluster.metrics(at, "vigia_port_info", tenant="red", workload=pod)]
    return found[0] if found else {}


def carried(cluster: Cluster, node: int, port: str) -> float:
    at = f"{cluster.nodes[node].address}:9872"
    return cluster.total(at, "vigia_port_bytes_total", port=port, direction="from_tenant")


def bought(cluster: Cluster, port: str, token: str = "") -> tuple[Any, ...]:
    """What the first node's enforcer says that a port bought; empty while nobody answers."""
    url = f"http://{cluster.nodes[0].address}:9873/v1/state"
    said = cluster.http(url, token=token or cluster.secret("vigia-enforcer-token"))
    for p in json.loads(said)["ports"] if said else ():
        if p["port"] == port:
            return p["guarantee_bytes_per_second"], p["ceiling_bytes_per_second"], p["pps_guarantee"]
    return ()


def brought(cluster: Cluster, node: str) -> str:
    """What the kubelet of a node has brought of what was bought."""
    (volume,) = cluster.places.data.glob(f"{node}/kubelet/pods/*/volumes/*/contracts-brought/contracts.yaml")
    return volume.read_text()


def limits(cluster: Cluster, node: int) -> dict[str, float]:
    """Limits that a node's enforcer has, in bits per second by port."""
    at = f"{cluster.nodes[node].address}:9873"
    found = cluster.metrics(at, "vigia_isolation_limit_bytes_per_second")
    return {dict(labels)["port"]: value * 8 for labels, value in found.items()}


def actions(cluster: Cluster) -> dict[str, str]:
    """Nodes of what is limited in the namespace, by port."""
    items = cluster.objects("-n", "red", "isolationactions")
    return {i["spec"]["port"]: i["spec"]["node"] for i in items}


def move(cluster: Cluster, pod: Pod, node: str) -> Pod:
    """Have a StatefulSet's pod run on another node; return what it is there."""
    moved = {"spec": {"template": {"spec": {"nodeName": node}}}}
    cluster.kubectl("-n", "red", "patch", "statefulset", "db", "--type=merge", "-p", json.dumps(moved))
    eventually(
        lambda: [n["metadata"]["uid"] for n in cluster.objects("-n", "red", "pods", "-l", "app=db")]
        not in ([], [pod.uid]),
        cluster.state,
        PATIENCE,
    )
    return Pod.find(cluster, "red", "db-0")


def sent(cluster: Cluster, at: str) -> float:
    return cluster.total(at, "vigia_probe_mesh_sent_total")


def enforcers(cluster: Cluster, node: int) -> set[int]:
    """The processes of a node's pod of the enforcer."""
    listed = commands.run(["ip", "netns", "pids", cluster.nodes[node].node.netns]).stdout.split()
    return {int(p) for p in listed if b"vigia-enforcer\0" in Path("/proc", p, "cmdline").read_bytes()}


def sells_by_annotations(cluster: Cluster, sells: bool) -> None:
    """Say, as the operator does, whether annotations of pods are contracts."""
    cluster.type(
        "helm upgrade vigia deploy/helm/vigia --namespace vigia --reuse-values --wait --timeout 10m "
        f"--set identity.guarantees.podAnnotations={str(sells).lower()}"
    )


def limited(cluster: Cluster, source: Pod) -> bool:
    """Whether a pod alone is limited on its node, to what it bought."""
    found = limits(cluster, [m.name for m in cluster.nodes].index(source.node))
    return list(found) == [source.port] and 8e6 <= found[source.port] <= 10e6


def lose_alone(cluster: Cluster, path: str, wire: str) -> None:
    """Pull a wire: the pods' path over it loses, no other does, and it has answers when the wire is back."""

    def lost(at: str, of: str) -> float:
        return cluster.total(at, "vigia_probe_mesh_lost_total", path=of)

    def answers(at: str) -> float:
        return cluster.total(at, "vigia_probe_mesh_rtt_seconds_count", path=path)

    def come(what: Callable[[str], float], most: dict[str, float]) -> None:
        for at, n in most.items():
            eventually(lambda at=at, n=n: what(at) > n + 5, f"{path} from {at}", PATIENCE)  # type: ignore[misc]

    netns, there = cluster.lab.links[0].netns, pods_probers(cluster)
    before = {at: lost(at, path) for at in there}
    others = {at: lost(at, "pods") for at in there}
    commands.ip_batch([f"link set {wire} down"], netns=netns)
    try:
        come(lambda at: lost(at, path), before)
        assert {at: lost(at, "pods") for at in there} == others
    finally:
        commands.ip_batch([f"link set {wire} up"], netns=netns)
    come(answers, {at: answers(at) for at in there})
