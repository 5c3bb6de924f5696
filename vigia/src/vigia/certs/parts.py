"""The parts that have certificates."""

from __future__ import annotations

__all__ = ["PARTS", "SOON"]

PARTS = (
    "vigia-probe",
    "vigia-exporter",
    "vigia-enforcer",
    "vigia-compare",
    "isolation-agent",
    "prometheus",
    "alertmanager",
    "node_exporter",
    "grafana",
    "victoria-metrics",
    "influxdb",
    "vigia-node",
    "vigia",
)
"""Parts that listen, connect, or both."""

SOON = 14
"""Days before its end from which on a certificate is a fault."""
