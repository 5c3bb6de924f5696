"""exporter.yaml: configuration of a node's vigia-exporter."""

from __future__ import annotations

from collections.abc import Mapping

from vigia.lab import naming, openflow
from vigia.lab.files import ports
from vigia.lab.model import Lab, Node

__all__ = ["content"]


def content(lab: Lab, node: Node) -> Mapping[str, object]:
    """Return where the node's ports are, and who the tenants are."""
    tenants = [{"id": naming.INFRA, "name": "operator"}]
    tenants += [{"id": tenant.name, "name": tenant.name} for tenant in lab.tenants()]
    content: dict[str, object] = {**ports.source(lab, node), "tenants": tenants}
    owners = {e.key: e.tenant for e in node.endpoints if e.mode == "openflow"}
    if owners:  # the cookie of a rule is the key of its network
        cookies = [
            {"bridge": openflow.BRIDGE, "cookie": str(key), "tenant": tenant}
            for key, tenant in owners.items()
        ]
        content["openflow"] = {"cookies": cookies}
    return content
