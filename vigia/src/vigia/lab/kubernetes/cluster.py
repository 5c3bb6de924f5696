"""What is done to a cluster through its API: waiting for it, its DNS, the commands for people."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.host.source import source_root
from vigia.lab.kubernetes.places import SERVICES, ClusterPlaces, Member, members
from vigia.lab.kubernetes.programs import ClusterPrograms
from vigia.lab.model import Lab

__all__ = ["VOLUMES", "furnish", "ready", "unready", "wait_for_api", "wait_for_nodes", "write_commands"]

VOLUMES = 4
"""One for each part of the chart that keeps something; node.sh makes their folders."""

_PATIENCE = 300.0


def write_commands(lab: Lab, programs: ClusterPrograms) -> None:
    """Write kubectl and helm for people: in the control plane's namespace, as the cluster's administrator."""
    places = ClusterPlaces(lab.layout)
    places.bin.mkdir(exist_ok=True)
    for name, program in (("kubectl", programs.bin / "kubectl"), ("helm", source_root() / "bin/helm")):
        script = places.bin / name
        script.write_text(
            f"#!/bin/sh\nexec nsenter --net=/run/netns/{places.control_netns} "
            f'env KUBECONFIG={places.admin} {program} "$@"\n'
        )
        script.chmod(0o755)


def wait_for_api(lab: Lab) -> str:
    """Wait until the API server answers, and the accounts that pods have are made."""
    _until(lab, "the API server", lambda: _kubectl(lab, "get", "serviceaccount", "default").status == 0)
    return "the API server answers"


def wait_for_nodes(lab: Lab) -> str:
    """Wait until all nodes are ready."""
    wanted = members(lab)
    _until(lab, "the nodes", lambda: not unready(lab, wanted))
    return f"{len(wanted)} nodes are ready"


def furnish(lab: Lab) -> str:
    """Start the cluster's DNS and wait for it; make volumes on the first node."""
    items = [*_dns(), *_volumes(members(lab)[0])]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    done = _kubectl(lab, "apply", "-f", "-", stdin=listed)
    if done.status != 0:
        raise VigiaError(f"the cluster's DNS and volumes cannot be made: {done.stderr.strip()}")
    _until(lab, "CoreDNS", lambda: ready(lab, "kube-system"))
    return f"CoreDNS answers at {SERVICES.network_address + 10}; {VOLUMES} volumes are free"


def unready(lab: Lab, wanted: Sequence[Member]) -> list[str]:
    """Return a line for each node that is not ready, or why nobody can say."""
    done = _kubectl(lab, "get", "nodes", "-o", "json")
    if done.status != 0:
        return [f"the API server does not answer: {done.stderr.strip()}"]
    found = {item["metadata"]["name"]: _condition(item, "Ready") for item in json.loads(done.stdout)["items"]}
    return [f"node {m.name}: not ready in the cluster" for m in wanted if found.get(m.name) != "True"]


def ready(lab: Lab, namespace: str) -> bool:
    """Whether a namespace has pods and all of them are ready."""
    done = _kubectl(lab, "--namespace", namespace, "get", "pods", "-o", "json")
    if done.status != 0:
        return False
    items = json.loads(done.stdout)["items"]
    return bool(items) and all(_condition(item, "Ready") == "True" for item in items)


def _condition(item: dict[str, Any], kind: str) -> str:
    found = [c["status"] for c in item["status"].get("conditions", []) if c["type"] == kind]
    return str(found[0]) if found else ""


def _kubectl(lab: Lab, *arguments: str, stdin: str = "") -> commands.CommandResult:
    argv = [str(ClusterPlaces(lab.layout).bin / "kubectl"), "--request-timeout=10s", *arguments]
    return commands.run(argv, stdin=stdin, check=False, timeout=60)


def _until(lab: Lab, what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > end:
            logs = ClusterPlaces(lab.layout).logs
            raise VigiaError(f"{what} did not become ready within {_PATIENCE:g} s; see {_newest(logs)}")
        time.sleep(0.5)


def _newest(folder: Path) -> Path:
    return max(folder.glob("*.log"), key=lambda p: p.stat().st_mtime, default=folder)


_CORE = """.:53 {
  errors
  health 0.0.0.0:8080
  ready 0.0.0.0:8181
  kubernetes cluster.local in-addr.arpa
  cache 5
}
"""


def _dns() -> list[dict[str, Any]]:
    """Return the objects of the cluster's DNS; names outside of the cluster are not known."""
    meta = {"name": "coredns", "namespace": "kube-system"}
    labels = {"k8s-app": "kube-dns"}
    subject = {"kind": "ServiceAccount", **meta}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    watched = {"verbs": ["list", "watch"]}
    rules = [
        {"apiGroups": [""], "resources": ["services", "namespaces", "pods", "endpoints"], **watched},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], **watched},
    ]
    container = {
        "name": "coredns",
        "image": "lab.local/coredns:1",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "runAsUser": 0},
    }
    spec = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    ports = [{"name": p.lower(), "protocol": p, "port": 53} for p in ("UDP", "TCP")]
    rbac = "rbac.authorization.k8s.io/v1"
    named = {"name": "system:coredns"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": named, "rules": rules},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": named,
            "roleRef": role,
            "subjects": [subject],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": _CORE}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**meta, "name": "kube-dns"},
            "spec": {"clusterIP": str(SERVICES.network_address + 10), "selector": labels, "ports": ports},
        },
    ]


def _volumes(member: Member) -> list[dict[str, Any]]:
    """Return volumes of a node's disk, of no class: each claim without one takes one."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [member.name]}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"lab-{number}"},
            "spec": {
                "capacity": {"storage": "16Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": f"/var/lib/kubelet/lab-volumes/{number}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }
        for number in range(1, VOLUMES + 1)
    ]
