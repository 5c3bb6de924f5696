"""docs/how-to/scale.md: each of its blocks is run by a test, and its files scrape what prometheus.yml does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from scalekit import PAGE, ROOT, Host, block, blocks, free_ports

TESTS = [*(ROOT / "tests/scale").glob("*.py"), *(ROOT / "isolation-agent/tests/scale").glob("*.py")]
TESTS.append(ROOT / "tests/scalekit.py")


def test_every_block_of_the_page_is_used_by_a_test() -> None:
    source = "\n".join(file.read_text() for file in TESTS)
    used = set(re.findall(r'(?:\.start|\.run|block)\(\s*"([\w-]+)"', source))
    assert used == set(blocks())
    fences = re.findall(r"^```\w+$", PAGE.read_text(), re.MULTILINE)
    assert len(fences) == len(blocks()), "a block without the name of its test"


def jobs(name: str) -> Any:
    return yaml.safe_load((ROOT / f"deploy/prometheus/{name}.yml").read_text())["scrape_configs"]


@pytest.mark.parametrize("name", ["agent", "replica"])
def test_every_prometheus_scrapes_the_same(name: str) -> None:
    assert jobs(name) == jobs("prometheus"), "run make generate"


def test_replicas_differ_in_nothing_that_others_see() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/replica.yml").read_text())
    dropped = {"action": "labeldrop", "regex": "replica"}
    assert dropped in config["alerting"]["alert_relabel_configs"]
    assert all(dropped in store["write_relabel_configs"] for store in config["remote_write"])
    _, command = blocks()["replica"]
    assert all(f"{v[2:-1]}=" in command for v in config["global"]["external_labels"].values())


def test_what_the_page_says_of_replicas_of_the_agent_and_of_the_comparison() -> None:
    assert set(block("isolation-agent")) == {"replica", "database"}
    assert len(block("receivers")["webhook_configs"]) == 3
    assert set(block("compare")) == {"replica", "takeover"}


def test_a_machine_of_the_page_has_its_own_folders_addresses_and_times(tmp_path: Path) -> None:
    host = Host(tmp_path / "h", {"127.0.0.1:9090": "127.0.0.1:1", "/var/lib/vigia/x": "/x", "=6h": "=6s"})
    said = host.here(
        "-c /etc/vigia/a.yml -d /var/lib/vigia/d -x /var/lib/vigia/x/y 127.0.0.1:90901 127.0.0.1:9090 -t=6h"
    )
    assert said == (
        f"-c {tmp_path}/h/etc/a.yml -d {tmp_path}/h/lib/d -x /x/y 127.0.0.1:90901 127.0.0.1:1 -t=6s"
    )
    with pytest.raises(AssertionError, match="has no nothing like it"):
        host.put("deploy/prometheus/agent.yml", {"nothing like it": ""})
    ports = free_ports(20)
    assert len(set(ports)) == 20 and not set(ports) & set(free_ports(5))
