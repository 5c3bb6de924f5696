"""Everything a test of the agent needs: files, tokens, a clock, enforcers, and the agent itself."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from flask.testing import FlaskClient
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select
from werkzeug.test import TestResponse

from isolation_agent.config import Settings, load_settings
from isolation_agent.service.agent import Agent
from isolation_agent.storage import inbox
from isolation_agent.storage.audit import Verification, read_from, verify
from isolation_agent.storage.tables import Action
from isolation_agent.web.app import create_app
from vigia_testing import DEADLINE

from .fake_enforcer import TOKEN, Clock, FakeEnforcer

WEBHOOK_TOKEN = "webhook-token-0123456789abcdef"
API_TOKEN = "api-token-0123456789abcdefghij"

GUARANTEE = 5_000_000
PORT = "lb1-red-110"


class FakeClock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
        self.mono = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def advance(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.mono += seconds


def secret(path: Path, value: str) -> Path:
    """Write a token file as it should be."""
    path.write_text(value + "\n")
    path.chmod(0o600)
    return path


def policy(name: str = "udp-flood", **extra: Any) -> dict[str, Any]:
    return {
        "name": name,
        "match": {"alertname": "VigiaUdpFlood", "isolate": "auto"},
        "level": "L2",
        "ttl": "30s",
        "release": {"hold": "10s", "probe": "0s", "offered_below": 0.8},
        "cooldown": "20s",
        **extra,
    }


def instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def alert(at: datetime, port: str = PORT, tenant: str = "red", **extra: Any) -> dict[str, Any]:
    """An alert as Alertmanager posts it. Its fingerprint is a function of its labels."""
    labels = {
        "alertname": "VigiaUdpFlood",
        "isolate": "auto",
        "policy": "udp-flood",
        "severity": "critical",
        "node": "lb1",
        "port": port,
        "tenant": tenant,
    } | extra.pop("labels", {})
    labels = {k: v for k, v in labels.items() if v is not None}
    fingerprint = hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "status": "firing",
        "labels": labels,
        "annotations": {"summary": "A tenant floods with UDP"},
        "startsAt": instant(at),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": fingerprint,
    } | extra


def payload(*alerts: dict[str, Any], **extra: Any) -> dict[str, Any]:
    """A webhook message, with fields that the agent does not know."""
    return {
        "version": "4",
        "groupKey": "{}:{alertname=...}",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "isolation-agent",
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "alerts": list(alerts),
        "fieldOfTheFuture": {"nested": [1, 2, 3]},
    } | extra


class World:
    """An agent with its surroundings, one turn at a time."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        """clock is the enforcers' if it is not the one that tests move."""
        self.dir = directory
        self.clock = FakeClock()
        self.peers_clock: Clock = clock or self.clock
        self.enforcers = {"lb1": FakeEnforcer(self.peers_clock, "lb1")}
        self.enforcer.add(PORT, "red", guarantee=GUARANTEE)
        self.enforcer.add("lb1-blue-120", "blue", guarantee=GUARANTEE)
        self.enforcer.add("lb1-infra-1", "_infra", guarantee=GUARANTEE)
        secret(directory / "webhook.token", WEBHOOK_TOKEN)
        secret(directory / "api.token", API_TOKEN)
        secret(directory / "enforcer.token", TOKEN)
        self.policies: list[dict[str, Any]] = [policy()]
        self.guards: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}
        self.users: list[dict[str, Any]] = []
        self._agent: Agent | None = None
        self._client: FlaskClient | None = None

    @property
    def enforcer(self) -> FakeEnforcer:
        return self.enforcers["lb1"]

    def add_user(self, role: str, name: str = "eve") -> str:
        """Give somebody a token, before the agent is started; returns it."""
        token = f"{name}-token-0123456789abcdefgh"
        secret(self.dir / f"{name}.token", token)
        tenant = {"tenant": "red"} if role == "tenant" else {}
        user = {"name": name, "role": role, "token_file": f"{name}.token", **tenant}
        self.users.append(user)
        return token

    def add_node(self, node: str, **options: Any) -> FakeEnforcer:
        self.enforcers[node] = FakeEnforcer(self.peers_clock, node, **options)
        return self.enforcers[node]

    # Files

    @property
    def config_path(self) -> Path:
        return self.dir / "agent.yaml"

    @property
    def audit_path(self) -> Path:
        return self.dir / "audit.jsonl"

    def write_files(self) -> Path:
        """Write configuration and policies as they are wanted now."""
        config: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "database": "sqlite:///agent.db",
            "audit_log": "audit.jsonl",
            "auth": {
                "webhook_token_file": "webhook.token",
                "api_token_file": "api.token",
                **({"users": self.users} if self.users else {}),
            },
            "policies": "policies.yaml",
            "hosts": [
                {"node": node, "url": e.url, "token_file": "enforcer.token"}
                for node, e in self.enforcers.items()
            ],
        } | self.extra
        # Only a test's fault keeps an enforcer from answering, and a busy machine does not.
        config["controller"] = {"enforcer_timeout": "60s"} | config.get("controller", {})
        self.config_path.write_text(yaml.safe_dump(config, sort_keys=False))
        policies = {"version": 1, "policies": self.policies, "guards": self.guards}
        (self.dir / "policies.yaml").write_text(yaml.safe_dump(policies, sort_keys=False))
        return self.config_path

    def settings(self) -> Settings:
        return load_settings(self.write_files())

    # The agent

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            self._agent = Agent(self.settings(), self.clock)
            self._client = create_app(self._agent).test_client()
        return self._agent

    @property
    def client(self) -> FlaskClient:
        _ = self.agent
        assert self._client is not None
        return self._client

    def crash(self) -> None:
        """End the agent as SIGKILL does: what is not on disk is gone, and its lease stays behind.

        The database and the audit log are closed, as the kernel does with what a killed process had open.
        """
        if self._agent is not None:
            self._agent.lease.term = 0  # it gives nothing up
        self.stop()

    def stop(self) -> None:
        """End the agent as SIGTERM does."""
        if self._agent is not None:
            self._agent._stop.set()
            self._agent.notify()
            if self._agent._thread.ident is not None:
                self._agent._thread.join(DEADLINE)  # it may need longer than stop waits for it
            self._agent.stop()
        self._agent = self._client = None

    def close(self) -> None:
        self.stop()
        for enforcer in self.enforcers.values():
            enforcer.stop()

    def reload(self) -> None:
        self.write_files()
        self.agent.reload("test")

    def step(self, seconds: float = 0.0) -> None:
        """Let time pass, then take turns until there is nothing left to do at once."""
        self.clock.advance(seconds)
        while self.agent.controller.step():
            pass

    def run(self, seconds: float, each: float = 1.0) -> None:
        """Take a turn every so many seconds."""
        for _ in range(round(seconds / each)):
            self.step(each)

    # Its interfaces

    def post(self, *alerts: dict[str, Any], **extra: Any) -> TestResponse:
        return self.client.post(
            "/v1/webhook/alertmanager",
            json=payload(*alerts, **extra),
            headers={"Authorization": f"Bearer {WEBHOOK_TOKEN}"},
        )

    def post_raw(self, body: bytes, **headers: str) -> TestResponse:
        headers = {"Authorization": f"Bearer {WEBHOOK_TOKEN}", "Content-Type": "application/json"} | headers
        return self.client.post("/v1/webhook/alertmanager", data=body, headers=headers)

    def api(self, method: str, path: str, **options: Any) -> TestResponse:
        headers = {"Authorization": f"Bearer {API_TOKEN}"} | options.pop("headers", {})
        return self.client.open(path, method=method, headers=headers, **options)

    def alert(self, port: str = PORT, tenant: str = "red", **extra: Any) -> dict[str, Any]:
        return alert(self.clock.now(), port, tenant, **extra)

    def flood(self, **extra: Any) -> dict[str, Any]:
        """The usual beginning: a flood, its alert, one turn. Returns the action."""
        self.enforcer.flood(PORT)
        assert self.post(self.alert(**extra)).status_code == 200
        self.step()
        return self.only_action()

    def flood_more(self, port: str, tenant: str = "red") -> None:
        """A flood at a new port, its alert, one turn."""
        self.enforcer.add(port, tenant)
        self.enforcer.flood(port)
        assert self.post(self.alert(port, tenant)).status_code == 200
        self.step()

    def actions(self, **query: str) -> list[dict[str, Any]]:
        response = self.api("GET", "/v1/actions", query_string=query)
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.get_json()["actions"]
        return found

    def action(self, action_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api("GET", f"/v1/actions/{action_id}").get_json()
        return found

    def only_action(self) -> dict[str, Any]:
        actions = self.actions()
        assert len(actions) == 1, actions
        return self.action(actions[0]["id"])

    def rows(self) -> list[Action]:
        with self.agent.store.read() as session:
            return list(session.scalars(select(Action).order_by(Action.seq)))

    def inbox_depth(self) -> int:
        """The number of messages that are stored and not yet handled."""
        with self.agent.store.read() as session:
            return inbox.depth(session)

    def metric(self, name: str, **labels: str) -> float:
        """The value of a series; 0 if there is none."""
        text = generate_latest(self.agent.metrics.registry).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return 0.0

    def audit_events(self) -> list[str]:
        return [r["event"] for r in self.audit_records()]

    def audit_records(self) -> list[dict[str, Any]]:
        return read_from(self.audit_path, 1, 100_000)

    def verify_audit(self) -> Verification:
        return verify(self.audit_path)


def events(action: dict[str, Any]) -> list[str]:
    """The events of an action's timeline, in order."""
    return [t["event"] for t in action["timeline"]]
