"""What is compared: one number per path, pair of hosts and window, as PromQL about what the rules record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vigia_compare.counters import grown

__all__ = ["LOST", "MEASURES", "SENT", "Measure"]

_BY = "by (src, dst, path, probe)"


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
    """Counts events that many windows lack: judged by counts of probes, not by window."""
    fine: str = ""
    """The same of raw series in windows of a few seconds, for the first minutes of a path."""


def _recorded(record: str) -> str:
    return f'avg {_BY} (avg_over_time({record}{{tenant="TENANT"}}[$within]))'


def _counted(counter: str, more: str = "") -> str:
    counted = f'{counter}{{tenant="TENANT"{more}}}'
    return f"sum {_BY} ({grown(counted)})"


LOST = _counted("vigia_probe_lost_total", ',cause!~"send_error|local_overflow|reflector_overflow"')
"""Probes of a window that the network lost; what sockets dropped is not the network's."""

SENT = _counted("vigia_probe_sent_total")
"""Probes of a window."""


def _run(gauge: str, protocol: str) -> str:
    """The last run; rates of UDP and numbers of machines apart, since another one is another question."""
    selector = f'{{tenant="TENANT",protocol="{protocol}"}}[$within]'
    return f"avg by (src, dst, path, probe, rate, machines) (last_over_time({gauge}{selector}))"


_GOODPUT = "vigia_bulk_goodput_bytes_per_second"


def _raw(quantile: str, metric: str, more: str = "") -> str:
    rate = f'rate({metric}{{tenant="TENANT"{more}}}[$twice])'
    return f"histogram_quantile({quantile}, sum {_BY} ({rate}))"


_RTT, _VARIATION = "vigia_probe_rtt_seconds", "vigia_probe_delay_variation_seconds"
_TAX = _recorded("path:vigia_probe_overlay_tax_seconds:p50_rate1m")
_SPREAD = _recorded(f"path:{_VARIATION}:iqr_rate1m")
"""Width of the middle half of the delay variation: jitter that does not depend on order."""
_FINE_SPREAD = " - ".join(_raw(q, _VARIATION, ',direction="roundtrip"') for q in ("0.75", "0.25"))

MEASURES: Mapping[str, Measure] = {
    m.name: m
    for m in (
        Measure("rtt", "seconds", "lower", _recorded(f"path:{_RTT}:p50_rate1m"), twins=_TAX,
                fine=_raw("0.5", _RTT)),
        Measure("rtt_p99", "seconds", "lower", _recorded(f"path:{_RTT}:p99_rate1m"),
                fine=_raw("0.99", _RTT)),
        Measure("jitter", "seconds", "lower", _SPREAD, fine=_FINE_SPREAD),
        Measure("loss", "ratio", "lower", f"({LOST} or 0 * {SENT}) / ({SENT} > 0)", rare=True),
        Measure("tcp_throughput", "bytes_per_second", "higher", _run(_GOODPUT, "tcp"), runs=True),
        Measure("udp_throughput", "bytes_per_second", "higher", _run(_GOODPUT, "udp"), runs=True),
        Measure("tcp_rtt", "seconds", "lower", _run("vigia_bulk_rtt_seconds", "tcp"), runs=True),
        Measure("udp_jitter", "seconds", "lower", _run("vigia_bulk_jitter_seconds", "udp"), runs=True),
    )
}  # fmt: skip
