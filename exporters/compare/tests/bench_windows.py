"""Benchmark of what the comparison asks of Prometheus, run by make bench-compare: recorded windows, raw series.

Two real servers with the same two hours of 40 paths. One has what it is asked of since windows are recorded: native
histograms and counters by 15 s, and what the rules make of them; the rules are asked as they are shipped. The other is
the measure beside it: everything by the second, asked as a whole at each evaluation, in windows of the same length.
Seconds are Prometheus's own count of what it took to evaluate.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path

import yaml
from portkit import free_port
from prometheuskit import Family, Native, answering, encode

from vigia_compare.config import Config
from vigia_compare.evaluation import Ledger, evaluate, terms
from vigia_compare.source import Memory, Source
from vigia_prometheus import Prometheus, PrometheusError

from .costs import Cost, counting

ROOT = Path(__file__).parents[3]
PERIOD = 7200.0
PHASE = 17.25
PATHS = [
    {"src": "a", "dst": "b", "path": f"path-{i:02}", "tenant": t, "probe": "stamp-64"}
    for i, t in enumerate(["_infra"] * 30 + ["red", "blue"] * 5)
]
PORTS = [
    {"port": f"{t}-{i}", "tenant": t, "direction": d}
    for t in ("red", "blue", "green")
    for i in range(4)
    for d in ("from_tenant", "to_tenant")
]
RTT = {0.00004: 3, 0.00005: 10, 0.00006: 20, 0.00008: 12, 0.0001: 3, 0.0003: 1, 0.002: 1}
"""Round trips per second, as many as a target has at the default rate."""
RAW_WINDOWS = 5.0
"""Of the attribution, over ten minutes, before."""

_BY = "by (path, probe)"
_CAUSES = 'cause!~"send_error|local_overflow|reflector_overflow"'


def _quantile(q: float, metric: str, more: str = "", by: str = _BY, who: str = 'tenant="_infra"') -> str:
    return f"histogram_quantile({q}, sum {by} (rate({metric}{{{who}{more}}}[$window])))"


def _raw() -> Iterator[tuple[str, float, float]]:
    """What was asked of raw series at each evaluation: expressions, their windows and periods, seconds."""
    variation, way = "vigia_probe_delay_variation_seconds", ',direction="roundtrip"'
    lost = f'sum {_BY} (increase(vigia_probe_lost_total{{tenant="_infra",{_CAUSES}}}[$window]))'
    sent = f'sum {_BY} (increase(vigia_probe_sent_total{{tenant="_infra"}}[$window]))'
    for expression in (
        _quantile(0.5, "vigia_probe_rtt_seconds"),
        _quantile(0.5, "vigia_probe_overlay_tax_seconds"),
        _quantile(0.99, "vigia_probe_rtt_seconds"),
        f"{_quantile(0.75, variation, way)} - {_quantile(0.25, variation, way)}",
        f"({lost} or 0 * {sent}) / ({sent} > 0)",
        sent,
    ):
        yield expression, 60.0, PERIOD
    others, by = 'tenant!~"_.*"', "by (src, tenant)"
    grown = f"sum {by} (increase(vigia_probe_%s_total{{{others}%s}}[$window]))"
    for expression in (
        f"{grown % ('lost', f',{_CAUSES}')} / ({grown % ('sent', '')} > 0)",
        _quantile(0.99, "vigia_probe_rtt_seconds", by=by, who=others),
        'sum by (node, tenant) (rate(vigia_port_bytes_total{direction="from_tenant",tenant!~"_.*"}[$window]))',
        'sum by (node, tenant) (rate(vigia_port_bytes_total{direction="to_tenant",tenant!~"_.*"}[$window]))',
        f"sum by (src, dst, path, tenant) (increase(vigia_probe_lost_total{{{_CAUSES}}}[$window]))",
    ):
        yield expression, RAW_WINDOWS, 600.0


def measured(passed: int) -> Iterator[Family]:
    """What nodes have counted after so many seconds."""
    rtt = Native({v: n * passed for v, n in RTT.items()})
    variation = Native({math.copysign(v, 0.00006 - v): n * passed for v, n in RTT.items()})
    for name, value, more in (
        ("vigia_probe_rtt_seconds", rtt, {}),
        ("vigia_probe_delay_variation_seconds", variation, {"direction": "roundtrip"}),
        ("vigia_probe_overlay_tax_seconds", rtt, {}),
    ):
        yield Family(name, "histogram", [({**p, **more}, value) for p in PATHS])
    yield Family("vigia_probe_sent_total", "counter", [(p, 50.0 * passed) for p in PATHS])
    lost = [({**p, "cause": "unknown"}, float(passed // 7)) for p in PATHS]
    yield Family("vigia_probe_lost_total", "counter", list(lost))
    yield Family("vigia_port_bytes_total", "counter", [(p, 1e6 * passed) for p in PORTS])
    info = [{"path": p["path"], "placement": "remote", "layer": "overlay"} for p in PATHS]
    yield Family("vigia_path_info", "gauge", [(i, 1.0) for i in info])


def recorded(minute: int) -> Iterator[Family]:
    """What the rules have recorded then."""
    for i, name in enumerate(
        (
            "rtt_seconds:p50_rate1m",
            "rtt_seconds:p99_rate1m",
            "delay_variation_seconds:iqr_rate1m",
            "overlay_tax_seconds:p50_rate1m",
        )
    ):
        values = [(p, 6e-5 * (1.0 + (minute * 7 + k + i) % 11 / 100)) for k, p in enumerate(PATHS)]
        yield Family(f"path:vigia_probe_{name}", "gauge", list(values))


def rates() -> Iterator[Family]:
    """What the rules record of probes sent and lost."""
    yield Family("path:vigia_probe_sent:rate1m", "gauge", [(p, 50.0) for p in PATHS])
    yield Family("path:vigia_probe_lost:rate1m", "gauge", [(p, 1 / 7) for p in PATHS])


def pages(end: float, every: int, records: bool) -> Iterator[bytes]:
    """Two hours and a bit until ``end``, as pages of at most 600 instants."""
    span, length = int(PERIOD) + 900, 600 * every
    for first in range(0, span, length):
        page = []
        for passed in range(first + every, min(first + length, span) + 1, every):
            at = end - span + passed
            page += [encode(f, at) for f in measured(passed)]
            if records:
                page += [encode(f, at) for f in rates()]
                page += [encode(f, at) for f in recorded(passed // 60) if passed % 60 == 0]
        yield b"".join(page)


@contextmanager
def server(end: float, every: int, records: bool) -> Iterator[str]:
    """A Prometheus that has scraped all the pages."""
    waiting = list(pages(end, every, records))
    with (
        tempfile.TemporaryDirectory() as name,
        ThreadingHTTPServer(
            ("127.0.0.1", 0), answering(lambda _: waiting.pop(0) if waiting else b"")
        ) as target,
    ):
        folder = Path(name)
        threading.Thread(target=target.serve_forever, args=(0.05,), daemon=True).start()
        address = f"127.0.0.1:{free_port()}"
        job = {
            "job_name": "past",
            "scrape_interval": "5s",
            "scrape_timeout": "5s",
            "static_configs": [{"targets": [f"127.0.0.1:{target.server_port}"], "labels": {"node": "a"}}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
        words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        words += [f"--web.listen-address={address}", "--enable-feature=native-histograms"]
        # What has happened may be told for half of a block's length.
        words += ["--storage.tsdb.min-block-duration=1d", "--storage.tsdb.max-block-duration=1d"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(["prometheus", *words], stdout=log, stderr=log)
        try:
            _await(f"http://{address}", process, folder / "log", end)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(timeout=60)
            target.shutdown()


def _await(url: str, process: subprocess.Popen[bytes], log: Path, end: float) -> None:
    """Wait until the last sample is there."""
    deadline = time.monotonic() + 600.0
    with Prometheus(url, 60.0) as prometheus:
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"cannot load the data: {log.read_text(errors='replace')[-1000:]}")
            try:
                newest = prometheus.instant("max(timestamp(vigia_probe_sent_total))", end)
                if newest and newest[0].value >= end - 0.5:
                    return
            except PrometheusError:
                pass
            time.sleep(0.5)


@dataclass(frozen=True)
class Result:
    """What a way costs."""

    what: str
    questions: float
    samples: float
    seconds: float
    """Each by evaluation, of which there is one a minute."""


def before(url: str, end: float, turns: int) -> Result:
    """Ask raw series as a whole."""
    with counting(url) as (prometheus, cost):
        for turn in range(turns):
            now = end - 60.0 * (turns - 1 - turn)
            prometheus.instant(f"last_over_time(vigia_path_info[{PERIOD:.0f}s])", now)
            for expression, window, period in _raw():
                text = expression.replace("$window", f"{window:.0f}s")
                prometheus.range(text, now - period + window, now, window)
        return _result("raw series", cost, turns)


def after(url: str, end: float, turns: int) -> tuple[Result, Result]:
    """Evaluate as the service does: the first time, and each further time."""
    config = Config(prometheus=url)
    with counting(url) as (prometheus, cost):
        source, ledger = Source(prometheus, Memory()), Ledger(terms(config))
        evaluate(source, config, end - 60.0 * turns + 20.0, ledger)
        first = _result("recorded windows, the first time", cost, 1)
        cost.clear()
        for turn in range(turns):
            evaluate(source, config, end - 60.0 * (turns - 1 - turn) + 20.0, ledger)
        return first, _result("recorded windows", cost, turns)


def rules(url: str, end: float, turns: int) -> Result:
    """Evaluate what the shipped rules record once a minute."""
    groups = yaml.safe_load((ROOT / "alert-rules/paths.rules.yml").read_text())["groups"]
    (group,) = [g for g in groups if g["name"] == "vigia-windows"]
    with counting(url) as (prometheus, cost):
        for turn in range(turns):
            for rule in group["rules"]:
                prometheus.instant(rule["expr"], end - 60.0 * turn)
        return _result("the rules that record them", cost, turns)


def _result(what: str, cost: Cost, turns: int) -> Result:
    return Result(what, cost.questions / turns, cost.samples / turns, cost.seconds / turns)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, and the ratio of the two ways."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5, help="Evaluations of each kind.")
    parser.add_argument("--json", action="store_true", help="Print data.")
    asked = parser.parse_args(arguments)
    end = (time.time() - PHASE) // 60 * 60 + PHASE
    with server(end, 15, records=True) as url:
        first, later = after(url, end, asked.turns)
        made = rules(url, end, asked.turns)
    with server(end, 1, records=False) as url:
        raw = before(url, end, asked.turns)
    ratio = raw.seconds / (later.seconds + made.seconds)
    if asked.json:
        found = [vars(r) for r in (raw, first, later, made)]
        sys.stdout.write(json.dumps({"evaluations": found, "ratio": ratio}) + "\n")
        return os.EX_OK
    print(f"{len(PATHS)} paths, {PERIOD / 3600:g} h in windows of a minute, one evaluation a minute")  # noqa: T201
    print(f"{'':34} {'questions':>9} {'samples':>11} {'ms':>9} {'query-seconds/s':>16}")  # noqa: T201
    for r in (raw, first, later, made):
        print(  # noqa: T201
            f"{r.what:34} {r.questions:9.0f} {r.samples:11.0f} {1e3 * r.seconds:9.1f} {r.seconds / 60:16.6f}"
        )
    print(f"raw series take {ratio:.0f} times as long as windows and the rules that record them")  # noqa: T201
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
