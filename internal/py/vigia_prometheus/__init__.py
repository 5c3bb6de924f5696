"""A client of the Prometheus HTTP API: Prometheus, VictoriaMetrics and what else speaks it.

Answers are hostile input: bounded in size and time, read strictly, and every
defect is one typed error. No error shows a credential.
"""

from __future__ import annotations

from vigia_prometheus.answers import Alert, Bucket, Histogram, Labels, Sample, Series
from vigia_prometheus.client import Access, Prometheus
from vigia_prometheus.errors import BadAnswer, PrometheusError, Refused, TooLarge, Unavailable

__all__ = [
    "Access",
    "Alert",
    "BadAnswer",
    "Bucket",
    "Histogram",
    "Labels",
    "Prometheus",
    "PrometheusError",
    "Refused",
    "Sample",
    "Series",
    "TooLarge",
    "Unavailable",
]
