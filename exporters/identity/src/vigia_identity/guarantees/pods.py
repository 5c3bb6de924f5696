"""Pods as guarantees select them: what little is kept of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["EGRESS", "FIELDS", "INGRESS", "PATH", "Pod", "pod", "selector"]

PATH = "/api/v1/pods"
FIELDS = "spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"
"""Which pods have a port of their own."""
EGRESS, INGRESS = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth"


@dataclass(frozen=True)
class Pod:
    """A pod with a port of its own."""

    namespace: str
    uid: str
    labels: Mapping[str, str]
    marks: Mapping[str, str]
    """Those of its annotations that say a bandwidth."""

    @property
    def port(self) -> str:
        """Its port as exporters call it."""
        return f"{self.uid}/eth0"


def pod(item: Any) -> Pod | None:
    """Return what is kept of a pod, whole or only its metadata; None for one without a port."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if spec.get("hostNetwork") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    meta = item["metadata"]
    said = meta.get("annotations") or {}
    marks = {k: str(said[k]) for k in (EGRESS, INGRESS) if k in said}
    return Pod(str(meta["namespace"]), str(meta["uid"]), dict(meta.get("labels") or {}), marks)


def selector(spec: Mapping[str, Any]) -> Callable[[Mapping[str, str]], bool]:
    """Return what says whether labels are selected. Raises ValueError."""
    wanted = dict(spec.get("matchLabels") or {})
    checks = [_check(one) for one in spec.get("matchExpressions") or ()]

    def selects(labels: Mapping[str, str]) -> bool:
        return all(labels.get(k) == v for k, v in wanted.items()) and all(c(labels) for c in checks)

    return selects


def _check(one: Mapping[str, Any]) -> Callable[[Mapping[str, str]], bool]:
    key, values = str(one["key"]), frozenset(one.get("values") or ())
    match one["operator"]:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":  # also of those that have no such label
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
    raise ValueError(
        f"podSelector has the operator {str(one['operator'])[:40]!r}; write In, NotIn, Exists, DoesNotExist"
    )
