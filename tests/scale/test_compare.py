"""Two vigia-compare and a Prometheus that scrapes them: one verdict for each pair, at every second."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from scalekit import HTTP, Host, Machines, Program, block, free_ports, instant

from vigia_testing import eventually

pytestmark = [pytest.mark.long, pytest.mark.scale]

SHIPPED = Path(__file__).resolve().parents[2] / "deploy/compare/compare.yaml"
PAIRS = "count by (metric, placement, probe, a, b) (vigia_compare_verdict)"
TAKEOVER = "30s"
"""Longer than a replica that works gets no processor, or is not scraped."""
PATIENCE = 300.0
STEP, RUN, PERIOD = 15, 300, 7200
"""Seconds between samples, of one bulk test, and of all that is compared."""


def _backfill(data: Path) -> None:
    """Write two hours of two paths' throughput: one of them carries a tenth more."""
    begin = int(time.time()) // STEP * STEP - PERIOD
    labels = 'src="n1",dst="n2",tenant="_infra",probe="bulk-tcp",protocol="tcp"'
    lines = ["# TYPE vigia_bulk_goodput_bytes_per_second gauge"]
    for path, usual in (("ovs-gre", 1.1e7), ("ovs-vxlan", 1.0e7)):
        for second in range(0, PERIOD, STEP):
            wobble = 1 + (second // RUN * 37 % 11) / 1000
            lines.append(
                f'vigia_bulk_goodput_bytes_per_second{{{labels},path="{path}"}} {usual * wobble:.9g} {begin + second}'
            )
    page = data.parent / "throughput.txt"
    page.write_text("\n".join(lines) + "\n# EOF\n")
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", page, data], check=True, capture_output=True
    )


def compare(machines: Machines, name: str, prometheus: str, listen: str) -> Program:
    """Start a replica as the page has it, but in a hurry."""
    shipped = block("compare")
    assert set(shipped) == {"replica", "takeover"}
    host = machines.host(f"compare-{name}", {})
    config: dict[str, Any] = yaml.safe_load(SHIPPED.read_text()) | shipped
    config |= {
        "replica": name,
        "listen": listen,
        "prometheus": prometheus,
        "takeover": TAKEOVER,
        "every": "2s",
    }
    file = host.folder / "etc/compare.yaml"
    file.write_text(yaml.safe_dump(config | {"metrics": ["tcp_throughput"]}))
    program = Path(sys.executable).with_name("vigia-compare")
    made = Program(
        name,
        [str(program), "--config", str(file), "run"],
        {},
        host.folder / "log",
        f"http://{listen}/-/ready",
        host.folder,
    )
    host.programs.append(made)
    return made.start()


def prometheus(machines: Machines, targets: list[str]) -> tuple[Host, str]:
    """Start a Prometheus that has the past and scrapes replicas every second."""
    (port,) = free_ports(1)
    host = machines.host("site", {"127.0.0.1:9090": f"127.0.0.1:{port}"})
    _backfill(host.folder / "lib/receiver")
    job = {"job_name": "vigia-compare", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
    verdicts = job | {"job_name": "vigia-compare-verdicts", "metrics_path": "/metrics/verdicts"}
    (host.folder / "etc/prometheus").mkdir()
    (host.folder / "etc/prometheus/receiver.yml").write_text(
        yaml.safe_dump({"scrape_configs": [job, verdicts]})
    )
    host.start("receiver", f"http://127.0.0.1:{port}/-/ready")
    return host, f"http://127.0.0.1:{port}"


def leaders(listeners: dict[str, str]) -> list[str]:
    pages = {name: HTTP.get(f"http://{listen}/metrics").text for name, listen in listeners.items()}
    return [name for name, text in pages.items() if f'vigia_compare_leader{{replica="{name}"}} 1.0' in text]


def test_one_verdict_for_each_pair_over_a_takeover(machines: Machines) -> None:
    listeners = dict(zip("ab", (f"127.0.0.1:{port}" for port in free_ports(2)), strict=True))
    _, url = prometheus(machines, list(listeners.values()))
    programs = {name: compare(machines, name, url, listen) for name, listen in listeners.items()}
    verdict = 'vigia_compare_verdict{a="ovs-gre",b="ovs-vxlan"}'
    (found,) = eventually(lambda: instant(url, verdict), "a verdict", PATIENCE)
    (first,) = leaders(listeners)
    assert found["metric"]["instance"] == listeners[first]

    programs[first].kill()
    other = "b" if first == "a" else "a"
    eventually(
        lambda: [f["metric"]["instance"] for f in instant(url, verdict)] == [listeners[other]],
        "the other one's verdict",
        PATIENCE,
    )
    programs[first].start()
    eventually(
        lambda: instant(url, f'vigia_compare_leader{{replica="{first}"}} == 0'), "the first one to stand by"
    )
    eventually(
        lambda: "stands by" in HTTP.get(f"http://{listeners[first]}/v1/comparisons").text, "it to say so"
    )
    assert leaders(listeners) == [other]
    (most,) = instant(url, f"max(max_over_time(({PAIRS})[10m:1s]))")
    assert most["value"][1] == "1", "never two verdicts of one pair"
