"""Configuration of the stack: what deploy/ ships, with this lab's addresses and fresh secrets."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import Any

import yaml

from vigia.lab.model import Lab
from vigia.stack import places
from vigia.stack.places import PORTS, Places

__all__ = ["write"]

_SHIPPED_WEBHOOK = "http://127.0.0.1:9874/"  # the isolation agent in deploy/alertmanager/alertmanager.yml


def write(lab: Lab, where: Places) -> None:
    """Write every file that the stack reads; what is there is replaced."""
    root = places.source_root()
    where.logs.mkdir(parents=True, exist_ok=True)
    for part in ("prometheus", "alertmanager", "isolation-agent"):
        folder = where.data / part
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    for token in (where.webhook_token, where.api_token):
        _secret(token)
    _prometheus(lab, where, root)
    _alertmanager(lab, where, root)
    _isolation_agent(lab, where, root)
    _compare(lab, where)


def _secret(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(secrets.token_urlsafe(32) + "\n")


def _prometheus(lab: Lab, where: Places, root: Path) -> None:
    shutil.copy(root / "deploy/prometheus/prometheus.yml", where.directory / "prometheus.yml")
    rules = where.directory / "rules"
    shutil.rmtree(rules, ignore_errors=True)
    rules.mkdir()
    for file in sorted((root / "alert-rules").glob("*.rules.yml")):
        shutil.copy(file, rules)
    targets = where.directory / "targets"
    targets.mkdir(exist_ok=True)
    for part in PORTS:
        groups = [
            {"targets": [places.agent_address(lab, n.name, part)], "labels": {"node": n.name}}
            for n in lab.nodes
        ]
        _json(targets / f"{part}.json", groups)
    site = {
        "isolation-agent": 9874,
        "vigia-compare": 9875,
        "node": 9100,
        "prometheus": 9090,
        "alertmanager": 9093,
    }
    for name, port in site.items():
        _json(targets / f"{name}.json", [{"targets": [places.stack_address(lab, port)], "labels": {}}])


def _alertmanager(lab: Lab, where: Places, root: Path) -> None:
    shipped = (root / "deploy/alertmanager/alertmanager.yml").read_text()
    ours = shipped.replace(_SHIPPED_WEBHOOK, f"http://{places.stack_address(lab, 9874)}/")
    (where.directory / "alertmanager.yml").write_text(ours)


def _isolation_agent(lab: Lab, where: Places, root: Path) -> None:
    shutil.copy(root / "deploy/isolation-agent/policies.yaml", where.directory / "policies.yaml")
    data = where.data / "isolation-agent"
    config = {
        "listen": places.stack_address(lab, 9874),
        "database": f"sqlite:///{data / 'agent.db'}",
        "audit_log": str(data / "audit.jsonl"),
        "auth": {"webhook_token_file": where.webhook_token.name, "api_token_file": where.api_token.name},
        "policies": "policies.yaml",
        "hosts": [
            {
                "node": n.name,
                "url": f"http://{places.agent_address(lab, n.name, 'vigia-enforcer')}",
                "token_file": str(where.layout.token_file),
            }
            for n in lab.nodes
        ],
    }
    (where.directory / "isolation-agent.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def _compare(lab: Lab, where: Places) -> None:
    """Short windows: a demo lasts minutes, and Prometheus scrapes it every second."""
    config = {
        "listen": places.stack_address(lab, 9875),
        "prometheus": f"http://{places.stack_address(lab, 9090)}",
        "window": "5s",
        "period": "15m",
        "attribution_window": "2s",
        "attribution_period": "5m",
        "every": "10s",
    }
    (where.directory / "compare.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
