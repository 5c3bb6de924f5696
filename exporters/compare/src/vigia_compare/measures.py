"""What is compared: one number per path and window, as PromQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["LOST", "MEASURES", "SENT", "Measure"]

_BY = "by (path, probe)"


@dataclass(frozen=True)
class Measure:
    """A metric of paths. TENANT and WINDOW in expressions are replaced before they are asked."""

    name: str
    unit: str
    """seconds, ratio or bytes_per_second: the suffix of the exported series."""
    better: Literal["lower", "higher"]
    """Which way is better."""
    expression: str
    classic: str = ""
    """Asked where the first has no answer: a store without native histograms."""
    runs: bool = False
    """The value is that of the last run and stays until the next: equal neighbours are one run."""
    twins: tuple[str, str] | None = None
    """Native and classic differences between probes of a path and their twins, sent on the underlay at the
    same moment."""
    rare: bool = False
    """Counts events that many windows lack: windows are merged before ranking."""


def _quantile(q: str, metric: str, only: str = "") -> tuple[str, str]:
    """Quantile of a histogram, native and classic."""
    selector = f'{{tenant="TENANT"{only}}}[WINDOW]'
    return (
        f"histogram_quantile({q}, sum {_BY} (rate({metric}{selector})))",
        f"histogram_quantile({q}, sum by (le, path, probe) (rate({metric}_bucket{selector})))",
    )


def _spread() -> tuple[str, str]:
    """Width of the middle half of the delay variation: jitter that does not depend on order."""
    high = _quantile("0.75", "vigia_probe_delay_variation_seconds", ',direction="roundtrip"')
    low = _quantile("0.25", "vigia_probe_delay_variation_seconds", ',direction="roundtrip"')
    return f"{high[0]} - {low[0]}", f"{high[1]} - {low[1]}"


LOST = (
    f"sum {_BY} (increase(vigia_probe_lost_total"
    '{tenant="TENANT",cause!~"send_error|local_overflow|reflector_overflow"}[WINDOW]))'
)
"""Probes that the network lost, by path and class; what sockets dropped is not the network's."""

SENT = f'sum {_BY} (increase(vigia_probe_sent_total{{tenant="TENANT"}}[WINDOW]))'
"""Probes sent, by path and class."""


def _goodput(protocol: str) -> str:
    selector = f'{{tenant="TENANT",protocol="{protocol}"}}[WINDOW]'
    return f"avg {_BY} (last_over_time(vigia_bulk_goodput_bytes_per_second{selector}))"


_TAX = _quantile("0.5", "vigia_probe_overlay_tax_seconds")

MEASURES: Mapping[str, Measure] = {
    m.name: m
    for m in (
        Measure("rtt", "seconds", "lower", *_quantile("0.5", "vigia_probe_rtt_seconds"), twins=_TAX),
        Measure("rtt_p99", "seconds", "lower", *_quantile("0.99", "vigia_probe_rtt_seconds")),
        Measure("jitter", "seconds", "lower", *_spread()),
        Measure("loss", "ratio", "lower", f"({LOST} or 0 * {SENT}) / ({SENT} > 0)", rare=True),
        Measure("tcp_throughput", "bytes_per_second", "higher", _goodput("tcp"), runs=True),
        Measure("udp_throughput", "bytes_per_second", "higher", _goodput("udp"), runs=True),
    )
}
