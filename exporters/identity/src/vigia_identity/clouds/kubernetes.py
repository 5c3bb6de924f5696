"""Kubernetes: namespaces are tenants, and Vigia's own pods are found by their services."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vigia_identity.api_server import ApiServer, api_server
from vigia_identity.clouds import (
    HOST,
    ID,
    MAX_NODES,
    MAX_TENANTS,
    Endpoint,
    Identity,
    bounded,
    printable,
)
from vigia_identity.config import Kubernetes, Site

__all__ = ["ask"]

ZONE_LABEL = "topology.kubernetes.io/zone"
SERVICE_LABEL = "kubernetes.io/service-name"


def ask(config: Kubernetes, *, timeout: float) -> Identity:
    """Ask the API server for namespaces and, with a site, for Vigia's pods. Raises CloudError."""
    out = Identity()
    with api_server(config, timeout) as server:
        for item in bounded(server.items("/api/v1/namespaces"), MAX_TENANTS, "namespaces"):
            name = _shown(item["metadata"], config.name_annotation)
            if ID.fullmatch(item["metadata"]["name"]):
                out.names[item["metadata"]["name"]] = name or printable(item["metadata"]["name"])
        if config.site is not None:
            nodes = bounded(server.items("/api/v1/nodes"), MAX_NODES, "nodes")
            labels = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in nodes}
            for service in config.site.services:
                out.services[service], unwell = _endpoints(server, config.site, service, labels)
                out.unwell += unwell
            for part in config.site.parts:
                out.unwell += _endpoints(server, config.site, part, labels)[1]
            _add_others(server, config.site, out.services)
    return out


def _shown(meta: Any, key: str) -> str:
    """Return what an annotation, else a label, calls the tenant; empty if there is none."""
    marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    return printable(marks.get(key)) if key else ""


def _endpoints(
    server: ApiServer, site: Site, service: str, labels: Mapping[str, Mapping[str, str]]
) -> tuple[list[Endpoint], list[str]]:
    """Return where a service's pods are, one for each node: IPv4 before IPv6, ready ones first.

    Then the names of those that do not serve, though they are published.
    """
    path = f"/apis/discovery.k8s.io/v1/namespaces/{site.namespace}/endpointslices"
    slices = server.items(path, labelSelector=f"{SERVICE_LABEL}={service}")
    found: dict[str, tuple[bool, bool, str]] = {}
    unwell = []
    for part in bounded(slices, MAX_NODES, "EndpointSlices"):
        port = int((part.get("ports") or [{}])[0].get("port") or 0)
        for pod in part.get("endpoints") or ():
            conditions, node = pod.get("conditions") or {}, pod.get("nodeName") or ""
            if conditions.get("terminating") or node not in labels or not HOST.fullmatch(node):
                continue
            if not conditions.get("serving", conditions.get("ready", True)):
                unwell.append(str((pod.get("targetRef") or {}).get("name") or ""))
            address = ipaddress.ip_address(pod["addresses"][0])
            shown = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
            rank = address.version == 6, not conditions.get("ready", True), shown
            found[node] = min(found.get(node, rank), rank)
    pods = (
        Endpoint(node, shown, _mark(labels[node], ZONE_LABEL), _mark(labels[node], site.rack_label))
        for node, (_, _, shown) in found.items()
    )
    return sorted(pods), sorted({name for name in unwell if HOST.fullmatch(name)})


def _add_others(server: ApiServer, site: Site, services: dict[str, list[Endpoint]]) -> None:
    """Give endpoints the further addresses of their nodes."""
    at = {service: {p.node: p.address for p in pods} for service, pods in services.items()}
    for service in {*site.addresses, *site.cluster_addresses}:
        others = site.addresses.get(service, {})
        cluster, on_nodes = "", 0
        if service in site.cluster_addresses:
            cluster, on_nodes = _cluster_address(server, site.namespace, site.cluster_addresses[service])
        found = []
        for pod in services[service]:
            own = {name: at[other].get(pod.node, "") for name, other in others.items()}
            own["service"] = own.get("service") or cluster
            if on_nodes:
                own["nodeport"] = f"{pod.address.rpartition(':')[0]}:{on_nodes}"
            found.append(replace(pod, others=tuple(sorted((k, v) for k, v in own.items() if v))))
        services[service] = found


def _cluster_address(server: ApiServer, namespace: str, name: str) -> tuple[str, int]:
    """Return the address of a service, HOST:PORT, and its port on nodes; empty and 0 without them."""
    spec = server.get(f"/api/v1/namespaces/{namespace}/services/{name}")["spec"]
    port = (spec.get("ports") or [{}])[0]
    if spec.get("clusterIP") in (None, "", "None"):
        return "", 0
    address, number = ipaddress.ip_address(spec["clusterIP"]), int(port["port"])
    shown = f"[{address}]:{number}" if address.version == 6 else f"{address}:{number}"
    return shown, int(port.get("nodePort") or 0)


def _mark(labels: Mapping[str, str], key: str) -> str:
    value = labels.get(key, "")
    return value if ID.fullmatch(value) else ""
