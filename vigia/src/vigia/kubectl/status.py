"""Is the release well, are guarantees in force, and who is limited?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vigia.errors import VigiaError
from vigia.kubectl.release import Release
from vigia_prometheus import PrometheusError
from vigia_prometheus.client import Prometheus

__all__ = ["Status", "look"]

WORKLOADS = "daemonsets,deployments,statefulsets"
GUARANTEES, ACTIONS = "networkguarantees.vigia.internal", "isolationactions.vigia.internal"


@dataclass
class Status:
    """What there is to say."""

    parts: list[tuple[str, int, int]] = field(default_factory=list)
    """Each part, how many of its pods are ready, and how many there are to be."""
    unmet: list[str] = field(default_factory=list)
    """Guarantees that are not in force, and why."""
    limited: list[str] = field(default_factory=list)
    firing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """What could not be asked."""

    @property
    def well(self) -> bool:
        return (
            bool(self.parts) and all(ready >= wanted for _, ready, wanted in self.parts) and not self.firing
        )

    def lines(self) -> list[str]:
        """Return it for people: what is wrong after what is there."""
        out = [f"{name}: {ready} of {wanted} ready" for name, ready, wanted in self.parts]
        out += [f"not in force: {one}" for one in self.unmet]
        out += [f"limited: {one}" for one in self.limited]
        out += [f"firing: {one}" for one in self.firing]
        return out + [f"not known: {one}" for one in self.unknown]


def look(release: Release) -> Status:
    """Ask the cluster. Raises VigiaError if it does not answer at all."""
    status = Status(parts=sorted(_part(i) for i in release.own(WORKLOADS)))
    if not status.parts:
        raise VigiaError(
            f"there is no release of the chart vigia in namespace {release.namespace}; "
            "name another one: --namespace NAMESPACE"
        )
    for kind, into, shown in (
        (GUARANTEES, status.unmet, _unmet),
        (ACTIONS, status.limited, _limited),
    ):
        try:
            into.extend(filter(None, map(shown, release.objects(kind, "--all-namespaces"))))
        except VigiaError as e:
            status.unknown.append(f"{kind}: {e}")
    try:
        with release.forwarded(release.service("prometheus"), 9090) as url, Prometheus(url) as server:
            status.firing = _firing(a.labels for a in server.alerts() if a.firing)
    except (VigiaError, PrometheusError) as e:
        status.unknown.append(f"alerts: {e}")
    return status


def _part(item: Mapping[str, Any]) -> tuple[str, int, int]:
    status = item.get("status") or {}
    if item["kind"] == "DaemonSet":
        ready, wanted = status.get("numberReady", 0), status.get("desiredNumberScheduled", 0)
    else:
        ready, wanted = status.get("readyReplicas", 0), item["spec"].get("replicas", 1)
    return item["metadata"]["name"], int(ready), int(wanted)


def _unmet(item: Mapping[str, Any]) -> str:
    for condition in (item.get("status") or {}).get("conditions") or ():
        if condition["status"] != "True":
            meta = item["metadata"]
            return f"{meta['namespace']}/{meta['name']}: {condition['message']}"
    return ""


def _limited(item: Mapping[str, Any]) -> str:
    spec, namespace = item["spec"], item["metadata"]["namespace"]
    until = f" until {spec['expires']}" if spec.get("expires") else ""
    rate = spec["bitsPerSecond"] / 1e6
    return f"{namespace}/{spec['pod']} on {spec['node']}: {spec['protocol']} to {rate:.3g} Mbit/s{until}"


def _firing(alerts: Iterable[Mapping[str, str]]) -> list[str]:
    found = set()
    for labels in alerts:
        where = {k: labels[k] for k in ("node", "src", "dst", "path", "tenant") if labels.get(k)}
        found.add(" ".join([labels.get("alertname", ""), *(f"{k}={v}" for k, v in where.items())]))
    return sorted(found)
