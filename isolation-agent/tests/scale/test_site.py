"""A site without a single point of failure, as docs/how-to/scale.md has it: one flood, one limit, whoever dies.

Two Prometheus replicas, three Alertmanagers, three isolation agents on PostgreSQL, the real exporter and the real
enforcer on a port that floods.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from scalekit import HTTP, ROOT, Host, Machines, Program, Replica, block, free_ports, instant

from isolation_agent.clock import SystemClock
from isolation_agent.config import load_settings
from vigia_testing import eventually

from ..support.postgres import running
from ..support.process import AgentProcess
from ..support.real_enforcer import RealEnforcer
from ..support.world import GUARANTEE, WEBHOOK_TOKEN, World, policy, secret

pytestmark = [pytest.mark.long, pytest.mark.scale, pytest.mark.netns]

TTL = 12
ALERT = 'ALERTS{alertname="VigiaUdpFlood",alertstate="firing"}'


class Agents:
    """Three replicas of the agent on one database; the page says what differs between them."""

    def __init__(self, world: World, database: str) -> None:
        shipped = block("isolation-agent")
        assert set(shipped) == {"replica", "database"}
        self.running: dict[str, AgentProcess] = {}
        self._folder = world.dir
        for name in ("agent-1", "agent-2", "agent-3"):
            world.extra |= {**shipped, "replica": name, "database": database, "audit_log": f"{name}.jsonl"}
            file = world.dir / f"{name}.yaml"
            world.write_files().rename(file)
            self.running[name] = AgentProcess(file).wait_until_ready()
        (world.dir / "page.yaml").write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | shipped))
        load_settings(world.dir / "page.yaml")

    def addresses(self) -> list[str]:
        return [f"{a.address[0]}:{a.address[1]}" for a in self.running.values()]

    def metric(self, name: str, line: str) -> float:
        """Return a metric of a replica."""
        for text in self.running[name].get("/metrics").text.splitlines():
            if text.startswith(f"{line} "):
                return float(text.split()[1])
        return 0.0

    def leaders(self) -> list[str]:
        return [name for name in self.running if self.metric(name, "vigia_agent_leader") == 1]

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def actions(self) -> list[dict[str, Any]]:
        """Return what all replicas say there is, which is the same."""
        seen = [a.actions() for a in self.running.values()]
        assert all([x["id"] for x in s] == [x["id"] for x in seen[0]] for s in seen)
        return seen[0]

    def close(self) -> None:
        for agent in self.running.values():
            agent.kill()


def alertmanagers(machines: Machines, agents: list[str]) -> list[tuple[Host, Program, str]]:
    """Start three of them in a cluster; each notifies all agents.

    Returns machine, program and address of each, the address with user and password.
    """
    web, gossip = free_ports(3), free_ports(3)
    made = []
    for i in range(3):
        others = [gossip[j] for j in range(3) if j != i]
        texts = {
            "127.0.0.1:9093": f"127.0.0.1:{web[i]}",
            "127.0.0.1:9094": f"127.0.0.1:{gossip[i]}",
            "127.0.0.1:9194": f"127.0.0.1:{others[0]}",
            "127.0.0.1:9294": f"127.0.0.1:{others[1]}",
            **dict(zip(("127.0.0.1:9874", "127.0.0.1:9974", "127.0.0.1:10074"), agents, strict=True)),
        }
        host = machines.host(f"alertmanager-{i}", texts)
        config = yaml.safe_load((ROOT / "deploy/alertmanager/alertmanager.yml").read_text())
        (receiver,) = [r for r in config["receivers"] if r["name"] == "isolation-agent"]
        receiver.update(block("receivers"))
        folder = host.folder / "etc/alertmanager"
        folder.mkdir()
        (folder / "alertmanager.yml").write_text(host.here(yaml.safe_dump(config)))
        secret(folder / "webhook.token", WEBHOOK_TOKEN)
        if made:
            for name in ("alertmanager.password", "alertmanager.web.yml"):
                shutil.copy(made[0][0].folder / "etc/alertmanager" / name, folder)
        else:
            host.run("password")
        shown = (folder / "alertmanager.password").read_text().strip()
        program = host.start("alertmanager", f"http://vigia:{shown}@127.0.0.1:9093/-/ready")
        made.append((host, program, f"vigia:{shown}@127.0.0.1:{web[i]}"))
    return made


def status(address: str) -> dict[str, Any]:
    found: dict[str, Any] = HTTP.get(f"http://{address}/api/v2/status").json()["cluster"]
    return found


def told(cluster: list[tuple[Host, Program, str]], agents: Agents) -> str:
    """Return what became of alerts on their way, for a failure."""
    words = [
        line
        for _, _, address in cluster
        for line in HTTP.get(f"http://{address}/metrics").text.splitlines()
        if line.startswith(("alertmanager_alerts{", 'alertmanager_notifications_total{integration="webhook'))
    ]
    for agent in agents.running.values():
        words += [
            x for x in agent.get("/metrics").text.splitlines() if x.startswith("vigia_agent_alerts_total")
        ]
    return "\n".join([*words, cluster[0][1].said(), next(iter(agents.running.values())).log[-2000:]])


@pytest.fixture
def agents(tmp_path: Path, real: RealEnforcer) -> Iterator[Agents]:
    world = World(tmp_path, SystemClock())
    world.enforcer.stop()
    world.enforcers = {"lb1": real}  # type: ignore[dict-item]
    world.policies = [policy(ttl=f"{TTL}s", release={"hold": "5s", "probe": "0s", "offered_below": 0.8})]
    world.extra = {"controller": {"tick": "200ms", "reconcile": "1s"}}
    with running() as cluster:
        made = Agents(world, cluster.create("vigia"))
        yield made
        made.close()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path / "machines")
    yield made
    made.close()


def replicas(machines: Machines, exporter: str, addresses: list[str]) -> list[Replica]:
    made = [Replica(machines, name, exporter, {}) for name in "ab"]
    for replica in made:
        replica.host.targets(alertmanager=[{"targets": [a.partition("@")[2] for a in addresses]}])
        shown = addresses[0].partition("@")[0].removeprefix("vigia:")
        secret(replica.host.folder / "etc/prometheus/alertmanager.password", shown)
        rules = replica.host.folder / "etc/prometheus/rules"
        rules.mkdir()
        for file in (ROOT / "alert-rules").glob("*.rules.yml"):
            shutil.copy(file, rules)
        replica.start()
    return made


def test_one_flood_is_one_limit_whoever_dies(machines: Machines, real: RealEnforcer, agents: Agents) -> None:
    cluster = alertmanagers(machines, agents.addresses())
    addresses = [address for _, _, address in cluster]
    eventually(lambda: all(len(status(a).get("peers", [])) == 3 for a in addresses), "a cluster of three")
    eventually(lambda: all(status(a)["status"] == "ready" for a in addresses), "the cluster to have settled")
    both = replicas(machines, real.export(), addresses)
    eventually(
        lambda: all(instant(r.url, "vigia_exporter_flood_watched_ports > 0") for r in both),
        "ports watched for floods in both replicas",
    )
    eventually(lambda: len(agents.leaders()) == 1, "one agent to lead")

    # The Alertmanager that would notify dies as the flood begins.
    sender = real.flood(burst=200)
    first = min(range(3), key=lambda i: status(addresses[i])["name"])
    cluster.pop(first)[1].kill()
    addresses.pop(first)
    eventually(lambda: all(instant(r.url, ALERT) for r in both), "the alert in both replicas")
    limit = eventually(real.limit, lambda: f"a limit in the kernel: {told(cluster, agents)}")
    assert limit["rate_bytes_per_second"] == GUARANTEE
    eventually(lambda: [a["state"] for a in agents.actions()] == ["active"], "one action that is active")
    (action,) = agents.actions()
    eventually(
        lambda: all(HTTP.get(f"http://{a}/api/v2/alerts").json() for a in addresses),
        "the alert in both Alertmanagers",
    )

    # The agent that leads dies as well: the next one keeps the limit up.
    (leader,) = agents.leaders()
    agents.kill(leader)
    (successor,) = eventually(agents.leaders, "another agent to lead")
    assert agents.metric(successor, "vigia_agent_term") == 2
    eventually(
        lambda: agents.metric(successor, "vigia_agent_extensions_total") > 0, "the limit to be extended"
    )
    limit_now = real.limit()
    assert limit_now is not None and limit_now["id"] == limit["id"] == action["id"]
    assert [a["id"] for a in agents.actions()] == [action["id"]]

    sender.kill()
    eventually(lambda: agents.actions()[0]["state"] == "reverted", "the limit to be released")
    assert real.limit() is None
    assert len(agents.actions()) == 1, "one flood, one limit"
