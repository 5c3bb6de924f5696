"""Actions of a lab's cluster that wait for a person, and what people may do with them."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from kubekit import Cluster

from vigia.host import commands

__all__ = ["OWNER", "OWNS", "Alert", "annotated", "refused", "waiting"]

AWAITING = "vigia.internal/awaits=approval"
OWNER = "system:serviceaccount:red:owner"
"""A user who may do everything in the namespace red."""

OWNS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: owner, namespace: red}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: owner, namespace: red}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: owner, namespace: red}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: owner}
subjects: [{kind: ServiceAccount, name: owner, namespace: red}]
"""


class Alert:
    """An alert about a port which nothing else bears out: whether it is right is for a person to say."""

    def __init__(self, cluster: Cluster, port: str, **labels: str) -> None:
        self._cluster = cluster
        self._labels = {"alertname": "VigiaUdpFlood", "isolate": "auto", "severity": "critical"}
        self._labels |= {"node": "node1", "port": port, "tenant": "red", **labels}
        self._began = datetime.now(UTC)

    def post(self, status: str) -> bool:
        """Have the isolation agent told, as Alertmanager does; return whether it took it."""
        now = datetime.now(UTC).isoformat()
        alert = {
            "status": status,
            "labels": self._labels,
            "annotations": {"summary": "a test of the cluster"},
            "startsAt": self._began.isoformat(),
            "endsAt": now if status == "resolved" else "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus/graph",
            "fingerprint": hashlib.sha256(json.dumps(self._labels).encode()).hexdigest()[:16],
        }
        message = {
            "version": "4",
            "groupKey": "{}",
            "truncatedAlerts": 0,
            "status": status,
            "receiver": "isolation-agent",
        }
        message |= {
            "groupLabels": {},
            "commonLabels": {},
            "commonAnnotations": {},
            "externalURL": "http://a:9093",
        }
        return bool(
            self._cluster.http(
                f"http://{self._cluster.address('vigia-isolation-agent')}/v1/webhook/alertmanager",
                token=self._cluster.secret("vigia-webhook-token"),
                method="POST",
                body={**message, "alerts": [alert]},
            )
        )


def waiting(cluster: Cluster) -> list[dict[str, Any]]:
    """What waits for a person, as the cluster shows it."""
    return cluster.objects("-n", "vigia", "isolationactions", "-l", AWAITING)


def annotated(verdict: str, by: str) -> list[str]:
    """Annotations that decide."""
    return [f"vigia.internal/verdict={verdict}", f"vigia.internal/verdict-by={by}"]


def refused(cluster: Cluster, *arguments: str, stdin: str = "") -> str:
    """Return why the API server refuses what is asked of it; empty if it does not."""
    argv = [str(cluster.places.bin / "kubectl"), *arguments]
    done = commands.run(argv, stdin=stdin, check=False, timeout=60)
    return done.stderr if done.status != 0 else ""
