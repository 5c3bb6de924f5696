"""The isolation agent and the limits of a lab's cluster, as an operator asks for them."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from kubekit import Cluster

from vigia_testing import eventually

__all__ = ["LIVES", "Agent", "Silence", "audit", "begun", "ended", "is_kept", "limit_of"]

PATIENCE = 300.0


class Agent:
    """The isolation agent's API, as an operator uses it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._token = cluster.secret("vigia-api-token")

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        url = f"http://{self._cluster.address('vigia-isolation-agent')}{path}"
        said = self._cluster.http(url, token=self._token, method=method, body=body)
        return json.loads(said) if said else None


def limit_of(cluster: Cluster, port: str, token: str = "") -> dict[str, Any]:
    """The limit that the first node's enforcer has at a port; empty without one, or while nobody answers."""
    url = f"http://{cluster.nodes[0].address}:9873/v1/state"
    said = cluster.http(url, token=token or cluster.secret("vigia-enforcer-token"))
    ports = json.loads(said)["ports"] if said else []
    found: list[dict[str, Any]] = [p["limit"] for p in ports if p["port"] == port and p.get("limit")]
    return found[0] if found else {}


def is_kept(cluster: Cluster, port: str, token: str) -> None:
    """Wait until the isolation agent extends the limit at a port: it has longer to live than it had."""
    least = [float("inf")]

    def extended() -> bool:
        left_over = limit_of(cluster, port, token).get("expires_in_seconds")
        if left_over is None:
            return False
        least[0] = min(least[0], left_over)
        return bool(left_over > least[0])

    eventually(extended, "the limit to be extended", PATIENCE)


class Silence(threading.Thread):
    """Asks the agent again and again, and knows for how long it did not answer."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        self._agent = agent
        self._over = threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        heard = time.monotonic()
        while not self._over.wait(0.5):
            answered = self._agent.ask("/v1/audit?from=1&limit=1") is not None
            self.longest = max(self.longest, time.monotonic() - heard)
            if answered:
                heard = time.monotonic()

    def __enter__(self) -> Silence:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        eventually(lambda: self._agent.ask("/v1/audit?from=1&limit=1"), "the agent", PATIENCE)
        self._over.set()
        self.join()


LIVES = 60.0
"""Seconds that an ordered limit lives without the agent, which extends it when a third of them is over."""


def audit(agent: Agent) -> list[Any]:
    page = agent.ask("/v1/audit?from=1&limit=1000")
    return list(page["records"]) if page else []


def begun(cluster: Cluster, agent: Agent, order: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Begin an action; return it, and its limit."""
    action = eventually(
        lambda: agent.ask("/v1/actions", "POST", order), "the agent to begin an action", PATIENCE
    )
    return action, eventually(lambda: limit_of(cluster, order["port"]), "the limit", PATIENCE)


def ended(agent: Agent, action: dict[str, Any]) -> dict[str, Any]:
    """Return an action that is over; empty while it is not."""
    found: dict[str, Any] = agent.ask(f"/v1/actions/{action['id']}") or {}
    return found if found.get("ended_at") else {}
