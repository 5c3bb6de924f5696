"""The studies that there are: a row here and a folder of that name in vigia/studies make one."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["STUDIES"]

STUDIES: Mapping[str, str] = {
    "overlays": "throughput beside delay",
    "openflow": "delay under rules",
    "isolation": "ICMP and bandwidth",
    "managers": "host benchmarks",
    "guarantees": "link shares",
    "shuffle": "a job among competitors",
}
"""Name of each study, as campaign files have it, and what it measures."""
