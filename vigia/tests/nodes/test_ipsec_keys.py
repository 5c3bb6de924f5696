"""IPsec that is keyed again is marked in campaigns across nodes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from labkit import ROOT, VIGIA, run_vigia

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab.naming import Layout
from vigia.nodes.client import RemoteHost
from vigia.nodes.testbed import NodesTestbed, connect
from vigia.nodes.topology import NodesTopology
from vigia_testing import DEADLINE, eventually

PROBE = ROOT / "bin" / "vigia-probe"

IPSEC = """
version: 1
name: LAB
agents: 127.88.0.0/24
tenants: []
links:
  - {name: lb, nodes: [lb1, lb2]}
nodes:
  - {name: lb1, switch: linuxbridge, underlay: 10.99.1.1/24}
  - {name: lb2, switch: linuxbridge, underlay: 10.99.1.2/24}
paths:
  - {name: direct, kind: direct}
  - {name: ipsec, kind: ipsec, over: direct, subnet: 10.1.1.0/24}
"""


def test_ipsec_that_is_keyed_again_is_marked(tmp_path: Path) -> None:
    """A node whose strongSwan is real, and so are its new keys; one that has none says nothing."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if commands.find("charon-systemd") is None:
        pytest.skip("strongSwan is not installed")
    name = "tkeys"
    file = tmp_path / "lab.yaml"
    file.write_text(IPSEC.replace("LAB", name))
    run_vigia("lab", "down", "--lab", name)
    up = run_vigia("lab", "up", "--topology", str(file), timeout=300)
    assert up.status == 0, up.stderr
    children: list[subprocess.Popen[bytes]] = []
    try:
        directory = Layout(name).node("lb1") / "ipsec"
        nodes = []
        for number, (node, vici) in enumerate(
            {"keyed": directory / "vici", "plain": tmp_path / "none"}.items(), 1
        ):
            listen = f"127.88.1.{number}"
            config = tmp_path / f"{node}.yaml"
            served = {"listen": listen, "networks": ["127.0.0.0/8"], "vici": [str(vici)], "probe": str(PROBE)}
            config.write_text(json.dumps(served))
            argv = [str(VIGIA), "node", "serve", "--config", str(config)]
            children.append(commands.start(argv, log=tmp_path / f"{node}.log"))
            nodes.append({"name": node, "agent": f"http://{listen}:9877"})
        ends = [{"node": "keyed", "address": "10.1.1.1"}, {"node": "plain", "address": "10.1.1.2"}]
        path = {"name": "ipsec", "ends": ends}
        there = NodesTopology.model_validate(
            {"version": 1, "kind": "nodes", "name": "keys", "nodes": nodes, "paths": [path]}
        )
        with connect(there) as hosts:
            eventually(lambda: all(answers(h) for h in hosts.values()), "the agents answer")
            testbed = NodesTestbed(there, hosts)
            assert testbed.marks() == [], "nothing is known yet"
            assert testbed.marks() == []
            env = {"STRONGSWAN_CONF": str(directory / "strongswan.conf")}
            uri = f"unix://{directory}/vici"
            commands.run(["swanctl", "--rekey", "--child", "net", "--uri", uri], env=env)
            found: list[dict[str, Any]] = []
            eventually(lambda: found.extend(testbed.marks()) or found, "the new keys are seen")
            assert {m["what"] for m in found} == {"IPsec of keyed was rekeyed"}
            assert all(abs(m["at"] - time.time()) < 120 for m in found)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(DEADLINE)
        assert run_vigia("lab", "down", "--lab", name).status == 0


def answers(host: RemoteHost) -> bool:
    try:
        return bool(host.environment())
    except VigiaError:
        return False
