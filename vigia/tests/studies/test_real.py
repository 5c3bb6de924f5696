"""Campaigns on real labs: OpenFlow rules, IPsec, macvlan, host benchmarks, traffic; interrupted, resumed, reported."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labkit import Ran, invoke_vigia, run_vigia

from vigia.campaign import folder
from vigia.campaign.folder import Folder
from vigia.host import netns
from vigia.studies import catalogue
from vigia_testing import eventually

pytestmark = pytest.mark.netns

FACTORS: dict[str, list[dict[str, list[Any]]]] = {
    "e1": [
        {
            "path": ["linuxbridge-vxlan"],
            "placement": ["same-node", "cross-node"],
            "machines": [4],
            "protocol": ["udp"],
            "direction": ["both-ways"],
            "rate": ["20Mbit"],
            "datagram": ["fits"],
        }
    ],
    "e2": [
        {"path": ["direct"], "match": ["none"], "size": [64], "rules": ["none"], "rewrite": ["none"]},
        {
            "path": ["ovs-openflow"],
            "match": ["in_port", "mac", "ip", "udp_port", "exact", "normal"],
            "size": [64],
            "rules": ["one"],
            "rewrite": ["none"],
        },
        {
            "path": ["ovs-openflow"],
            "match": ["exact"],
            "size": [64],
            "rules": [1000, "full"],
            "rewrite": ["none"],
        },
        {
            "path": ["ovs-openflow"],
            "match": ["udp_port"],
            "size": [64],
            "rules": ["one"],
            "rewrite": ["mac", "ip", "vlan_priority", "ip_tos", "udp_port"],
        },
    ],
    "e3": [{"path": ["direct", "ovs-vxlan", "macvlan", "ipsec-ovs-vxlan", "ipsec-macvlan"]}],
    "e4": [
        {
            "site": ["direct", "linuxbridge-vxlan"],
            "benchmark": [
                "network",
                "stream",
                "stream-c",
                "hpcc",
                "linpack",
                "disk",
                "disk-direct",
                "disk-fsync",
            ],
        }
    ],
}
SETTINGS = {
    "duration": "1s", "warm_up": "0s", "threads": 2, "message": 1000, "probes": 10, "interval": "20ms",
    "benchmark": 200, "file": 2, "table": 4000,
}  # fmt: skip
SOME = 3
"""Of ten packets: on a busy machine many come after their deadline, and a userspace switch drops fragments."""

LEAST = {
    "network": 1e7,
    "linpack": 0.1,
    "stream_copy": 100,
    "stream_triad": 100,
    "disk_write": 1,
    "disk_reread": 1,
    "stream_c_triad": 1,
    "hpcc_fft": 1,
    "hpcc_random": 1,
    "direct_write": 0.1,
    "direct_read": 0.1,
    "fsync_rewrite": 0.1,
}
"""What any machine has: bit/s, MFLOPS, MB/s."""

STUDIES = {c.name: c for c in catalogue.shipped()}


def tiny(directory: Path, name: str, repetitions: int = 1) -> Path:
    """A shipped study with few packets, on a lab of the tests' own."""
    lab = f"t{name}"
    text = catalogue.topology_text(STUDIES[name].topology, None)
    text = re.sub(rf"^name: {name}$", f"name: {lab}", text, flags=re.MULTILINE)
    text = re.sub(r"127\.(\d+)\.0\.", lambda m: f"127.{int(m[1]) + 20}.0.", text)
    (directory / f"{lab}.yaml").write_text(text)
    file = directory / f"{name}-campaign.yaml"
    file.write_text(
        json.dumps(
            {
                "version": 1,
                "name": f"tiny-{name}",
                "title": "Tiny",
                "question": "Does it work?",
                "study": STUDIES[name].study,
                "topology": f"{lab}.yaml",
                "smoke": {
                    "designs": [{"factors": f} for f in FACTORS[name]],
                    "stop": {"repetitions": repetitions},
                    "settings": SETTINGS,
                },
            }
        )
    )
    return file


@pytest.fixture
def measured(root: None, tmp_path: Path) -> Callable[[str], tuple[Folder, Ran]]:
    """Run a tiny campaign to its end."""

    def run(name: str) -> tuple[Folder, Ran]:
        done = invoke_vigia(
            "campaign",
            "run",
            str(tiny(tmp_path, name)),
            "--size",
            "smoke",
            "--directory",
            str(tmp_path / "c"),
        )
        assert done.status == 0, done.stderr
        f = folder.latest(tmp_path / "c", f"tiny-{name}")
        failed = [(dict(r.factors), r.reason) for r in f.records if r.status == "failed"]
        assert not failed
        assert netns.names(f"vigia-t{name}-") == [], "the lab is removed"
        return f, done

    return run


def values(f: Folder, metric: str, **factors: object) -> list[float]:
    rows = f.samples().to_pylist()
    return [
        r["value"]
        for r in rows
        if r["metric"] == metric and all(r[f"factor_{k}"] == str(v) for k, v in factors.items())
    ]


def answered(values: list[float | None]) -> int:
    return sum(v is not None and v > 0 for v in values)


def report(f: Folder) -> str:
    done = invoke_vigia("campaign", "report", str(f.path), "--no-pdf")
    assert done.status == 0, done.stderr
    return (f.path / "report.html").read_text()


def test_openflow(measured: Callable[[str], tuple[Folder, Ran]]) -> None:
    f, _ = measured("e2")
    for match in ("in_port", "mac", "ip", "udp_port", "exact", "normal"):
        found = values(f, "rtt_application", match=match, rules="one", rewrite="none")
        assert len(found) == 10, match
        assert answered(found) >= SOME, f"packets pass under {match}"
    for rewrite in ("mac", "ip", "vlan_priority", "ip_tos", "udp_port"):
        assert values(f, "supported", rewrite=rewrite) == [1.0], rewrite
        assert answered(values(f, "rtt_application", rewrite=rewrite)) >= SOME, (
            f"answers come back under {rewrite}"
        )
    assert values(f, "rules") == [4000.0]
    page = report(f)
    assert "4000 rules were held in a full table; the search ended there" in page
    assert "This was a smoke run" in page
    assert "Where the switch forwards" in page
    assert "open-vswitch-2.3" in page


def test_ipsec_and_macvlan(measured: Callable[[str], tuple[Folder, Ran]]) -> None:
    f, _ = measured("e3")
    for path in FACTORS["e3"][0]["path"]:
        assert answered(values(f, "rtt_small", path=path)) >= SOME, path
        # The largest echoes are 45 fragments each.
        assert answered(values(f, "rtt_saturated", path=path)) >= SOME, path
        assert values(f, "bandwidth", path=path)[0] > 0, path
        assert values(f, "small_packets", path=path)[0] > 0, path
    page = report(f)
    assert "Cost of one element" in page
    assert "macvlan" in page
    assert "Does bypassing the switch mask what IPsec costs?" in page
    assert ">sriov − direct<" not in page, "what was not measured is not in the tables"


def test_host_benchmarks(measured: Callable[[str], tuple[Folder, Ran]]) -> None:
    f, _ = measured("e4")
    for site in ("direct", "linuxbridge-vxlan"):
        for metric, least in LEAST.items():
            assert values(f, metric, site=site)[0] > least, (site, metric)
    manifest = json.loads((f.path / "manifest.json").read_text())
    assert manifest["state"] == "done"
    assert manifest["environment"]["kernel"]
    assert not any("failed to load" in v for v in manifest["environment"]["versions"].values())
    assert manifest["bed"]["name"] == "te4"


def test_interrupted_and_killed_it_goes_on(root: None, tmp_path: Path) -> None:
    file, out = tiny(tmp_path, "e1", repetitions=2), tmp_path / "c"
    argv = [
        str(Path(sys.executable).with_name("vigia")),
        "campaign",
        "run",
        str(file),
        "--size",
        "smoke",
        "--directory",
        str(out),
    ]
    for number in (signal.SIGINT, signal.SIGKILL):
        before = len(list(out.glob("*/runs/*.json")))
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        eventually(lambda n=before: len(list(out.glob("*/runs/*.json"))) > n, "a repetition is recorded", 120)
        child.send_signal(number)
        text = child.communicate(timeout=120)[0]
        if number == signal.SIGINT:
            assert child.returncode == 1
            assert "go on with: vigia campaign resume tiny-e1-" in text
            assert netns.names("vigia-te1-") == []
        argv = [argv[0], "campaign", "resume", "tiny-e1", "--directory", str(out)]
    done = run_vigia("campaign", "resume", "tiny-e1", "--directory", str(out), timeout=300)
    assert done.status == 0, done.stderr
    f = folder.latest(out, "tiny-e1")
    assert [r.status for r in f.records] == ["done"] * 4
    # 2 connections, each with 50 probes measured twice, throughput both ways, and the loss.
    assert f.samples().num_rows == 4 * 2 * (2 * 50 + 3)
    assert netns.names("vigia-te1-") == []
    again = run_vigia("campaign", "resume", "tiny-e1", "--directory", str(out))
    assert "is complete: 4 repetitions" in again.stdout
