"""What the parts of a site are told of each other: addresses, tokens, certificates.

Shared by the native stack and by the containers: the files of deploy/ are the
source, and only what differs from site to site is put into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vigia.stack.passwords import basic_auth

__all__ = [
    "AGENT_PORTS",
    "PORTS",
    "Site",
    "alertmanager",
    "compare",
    "isolation_agent",
    "prometheus",
    "targets",
]

AGENT_PORTS = {"vigia-probe": 9871, "vigia-exporter": 9872, "vigia-enforcer": 9873}
"""Agents of a node and their ports."""

PORTS = {
    "isolation-agent": 9874,
    "vigia-compare": 9875,
    "node": 9100,
    "prometheus": 9090,
    "alertmanager": 9093,
}
"""Jobs of which there is one per site, and their ports."""


@dataclass(frozen=True)
class Site:
    """Where everything listens, and whether that is TLS."""

    address: str
    nodes: Mapping[str, str]
    """Address of each node's agents."""
    alertmanager_password: Path
    """What Prometheus shows Alertmanager, which lets nobody else post alerts."""
    tls: Mapping[str, Path] | None = None
    """Each part's folder with ca.crt, PART.crt and PART.key; None: plain HTTP."""

    @property
    def scheme(self) -> str:
        """http or https."""
        return "https" if self.tls else "http"

    def url(self, job: str) -> str:
        """Return the base URL of a part of which there is one per site."""
        return f"{self.scheme}://{self.address}:{PORTS[job]}"

    def credentials(self, part: str) -> dict[str, str]:
        """Return a part's files, by the names that Prometheus and Alertmanager give them."""
        if self.tls is None:
            return {}
        folder = self.tls[part]
        return {
            "ca_file": str(folder / "ca.crt"),
            "cert_file": str(folder / f"{part}.crt"),
            "key_file": str(folder / f"{part}.key"),
        }


def targets(site: Site) -> dict[str, list[dict[str, Any]]]:
    """Return the content of each file of targets for Prometheus, by job."""
    found: dict[str, list[dict[str, Any]]] = {
        part: [
            {"targets": [f"{address}:{port}"], "labels": {"node": node}}
            for node, address in site.nodes.items()
        ]
        for part, port in AGENT_PORTS.items()
    }
    found |= {job: [{"targets": [f"{site.address}:{port}"], "labels": {}}] for job, port in PORTS.items()}
    return found


def prometheus(shipped: str, site: Site) -> str:
    """Return prometheus.yml: the shipped one with the site's password of Alertmanager, and its TLS."""
    content = yaml.safe_load(shipped)
    posts, scrapes = content["alerting"]["alertmanagers"], content["scrape_configs"]
    if site.tls is not None:
        for client in (*scrapes, *posts):
            client.update({"scheme": "https", "tls_config": site.credentials("prometheus")})
    for client in (*posts, *(job for job in scrapes if job["job_name"] == "alertmanager")):
        client.update(basic_auth(site.alertmanager_password))
    return yaml.safe_dump(content, sort_keys=False)


def alertmanager(shipped: str, site: Site) -> str:
    """Return alertmanager.yml: the shipped one, which knows the isolation agent of this site."""
    content = shipped.replace("http://127.0.0.1:9874", site.url("isolation-agent"))
    if site.tls is None:
        return content
    parsed = yaml.safe_load(content)
    for receiver in parsed["receivers"]:
        for webhook in receiver.get("webhook_configs", ()):
            webhook["http_config"]["tls_config"] = site.credentials("alertmanager")
    return yaml.safe_dump(parsed, sort_keys=False)


def isolation_agent(site: Site, data: Path, token_files: Mapping[str, Path]) -> str:
    """Return isolation-agent.yaml; token_files has the secret of each node's enforcer."""
    content: dict[str, Any] = {
        "listen": f"{site.address}:{PORTS['isolation-agent']}",
        "database": f"sqlite:///{data / 'agent.db'}",
        "audit_log": str(data / "audit.jsonl"),
        "auth": {"webhook_token_file": "webhook.token", "api_token_file": "api.token"},
        "policies": "policies.yaml",
        "hosts": [
            {
                "node": node,
                "url": f"{site.scheme}://{address}:{AGENT_PORTS['vigia-enforcer']}",
                "token_file": str(token_files[node]),
            }
            for node, address in site.nodes.items()
        ],
    }
    if site.tls is not None:
        content["tls"] = site.credentials("isolation-agent")
    return yaml.safe_dump(content, sort_keys=False)


def compare(site: Site, timing: Mapping[str, object]) -> str:
    """Return compare.yaml; timing has the keys that differ from the defaults."""
    content: dict[str, Any] = {
        "listen": f"{site.address}:{PORTS['vigia-compare']}",
        "prometheus": site.url("prometheus"),
        **timing,
    }
    if site.tls is not None:
        content["tls"] = site.credentials("vigia-compare")
    return yaml.safe_dump(content, sort_keys=False)
