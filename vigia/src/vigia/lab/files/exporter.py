"""exporter.yaml: configuration of a node's vigia-exporter."""

from __future__ import annotations

from collections.abc import Mapping

from vigia.lab import naming
from vigia.lab.files import ports
from vigia.lab.model import Lab, Node

__all__ = ["content"]


def content(lab: Lab, node: Node) -> Mapping[str, object]:
    """Return where the node's ports are, and who the tenants are."""
    tenants = [{"id": naming.INFRA, "name": "operator"}]
    tenants += [{"id": tenant.name, "name": tenant.name} for tenant in lab.tenants()]
    return {**ports.source(lab, node), "tenants": tenants}
