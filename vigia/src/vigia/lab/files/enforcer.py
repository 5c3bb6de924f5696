"""enforcer.yaml: configuration of a node's vigia-enforcer."""

from __future__ import annotations

from collections.abc import Mapping

from vigia.lab.files import ports
from vigia.lab.model import Lab, Node

__all__ = ["content"]


def content(lab: Lab, node: Node) -> Mapping[str, object]:
    """Return where the node's ports are, and what the tenants bought."""
    return {
        **ports.source(lab, node),
        "token_file": str(lab.layout.token_file),
        "contracts": [
            {"tenant": t.name, "guarantee": _rate(t.guarantee), "ceiling": _rate(t.ceiling)}
            for t in lab.tenants()
        ],
    }


def _rate(bytes_per_second: int) -> str:
    bits = bytes_per_second * 8
    for unit, factor in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if bits % factor == 0:
            return f"{bits // factor}{unit}bit"
    return f"{bits}bit"
