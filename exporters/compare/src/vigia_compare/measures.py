"""What is compared: one number per path and window, as PromQL about what the group vigia-windows records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["LOST", "MEASURES", "SENT", "Measure"]

_BY = "by (path, probe)"


@dataclass(frozen=True)
class Measure:
    """A metric of paths. TENANT in expressions is replaced, and what Grid.question replaces."""

    name: str
    unit: str
    """seconds, ratio or bytes_per_second: the suffix of the exported series."""
    better: Literal["lower", "higher"]
    """Which way is better."""
    expression: str
    runs: bool = False
    """The value is that of the last run and stays until the next: equal neighbours are one run."""
    twins: str = ""
    """Differences between probes of a path and their twins, sent on the underlay at the same moment."""
    rare: bool = False
    """Counts events that many windows lack: windows are merged before ranking."""


def _recorded(record: str) -> str:
    """The mean over all pairs of nodes: each counts alike, so that one bad pair shows."""
    return f'avg {_BY} (avg_over_time({record}{{tenant="TENANT"}}[$within]))'


def _rate(record: str) -> str:
    return f'sum {_BY} (avg_over_time({record}{{tenant="TENANT"}}[$within]))'


LOST = _rate("path:vigia_probe_lost:rate1m")
"""Probes per second that the network lost, by path and class; what sockets dropped is not the network's."""

SENT = _rate("path:vigia_probe_sent:rate1m")
"""Probes per second, by path and class."""


def _goodput(protocol: str) -> str:
    selector = f'{{tenant="TENANT",protocol="{protocol}"}}[$within]'
    return f"avg {_BY} (last_over_time(vigia_bulk_goodput_bytes_per_second{selector}))"


_RTT, _RTT_P99 = (_recorded(f"path:vigia_probe_rtt_seconds:{q}_rate1m") for q in ("p50", "p99"))
_TAX = _recorded("path:vigia_probe_overlay_tax_seconds:p50_rate1m")
_SPREAD = _recorded("path:vigia_probe_delay_variation_seconds:iqr_rate1m")
"""Width of the middle half of the delay variation: jitter that does not depend on order."""

MEASURES: Mapping[str, Measure] = {
    m.name: m
    for m in (
        Measure("rtt", "seconds", "lower", _RTT, twins=_TAX),
        Measure("rtt_p99", "seconds", "lower", _RTT_P99),
        Measure("jitter", "seconds", "lower", _SPREAD),
        Measure("loss", "ratio", "lower", f"({LOST} or 0 * {SENT}) / ({SENT} > 0)", rare=True),
        Measure("tcp_throughput", "bytes_per_second", "higher", _goodput("tcp"), runs=True),
        Measure("udp_throughput", "bytes_per_second", "higher", _goodput("udp"), runs=True),
    )
}
