"""What is known, in a ConfigMap: the kubelet brings it to every node, and no node asks the API server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from vigia_identity.api_server import api_server
from vigia_identity.clouds import CloudError, Endpoint, Identity
from vigia_identity.config import Kubernetes, Site
from vigia_identity.files import tenants_text

__all__ = ["publish", "put"]

MOST = 1_000_000
"""Bytes of all values together; the API server takes 1 MiB of a whole object."""


def publish(config: Kubernetes, site: Site, identity: Identity, *, timeout: float) -> list[str]:
    """Put what is known into the ConfigMap and return the keys that changed. Raises CloudError."""
    wanted = {f"{name}.json": _groups(pods) for name, pods in identity.services.items()}
    return put(
        config, site, site.config_map, wanted | {"tenants.yaml": tenants_text(identity)}, timeout=timeout
    )


def put(config: Kubernetes, site: Site, name: str, wanted: Mapping[str, str], *, timeout: float) -> list[str]:
    """Put texts into a ConfigMap by their keys and return those that changed. Raises CloudError."""
    size = sum(len(text.encode()) for text in wanted.values())
    if size > MOST:
        raise CloudError(f"ConfigMap {name}: {size} bytes do not fit, at most {MOST} do")
    path = f"/api/v1/namespaces/{site.namespace}/configmaps/{name}"
    with api_server(config, timeout) as server:
        there = server.get(path).get("data") or {}
        changed = {key: text for key, text in wanted.items() if there.get(key) != text}
        if changed:
            server.merge(path, {"data": changed})
    return sorted(changed)


def _groups(pods: Iterable[Endpoint]) -> str:
    """Return targets as Prometheus's file_sd has them, a line for each."""
    groups = [
        {
            "targets": [p.address],
            "labels": {k: v for k, v in (("node", p.node), ("zone", p.zone), ("rack", p.rack)) if v}
            | {f"at_{name}": address for name, address in p.others},
        }
        for p in pods
    ]
    return "[" + ",\n ".join(json.dumps(g) for g in groups) + "]\n"
