"""Configuration of the stack: what deploy/ ships, with this lab's addresses and fresh secrets."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from vigia.errors import VigiaError
from vigia.lab.model import Lab
from vigia.stack import passwords, places
from vigia.stack import site as sites
from vigia.stack.places import Places
from vigia.stack.site import Site

__all__ = ["SHORT", "write", "write_password", "write_secret", "write_targets"]


SHORT: Mapping[str, object] = {
    "period": "30m",
    "every": "15s",
}
"""The comparison of a demo, which lasts minutes."""


def write(lab: Lab, where: Places) -> None:
    """Write every file that the stack reads; what is there is replaced."""
    root = places.source_root()
    where.logs.mkdir(parents=True, exist_ok=True)
    for part in ("prometheus", "alertmanager", "isolation-agent", "vigia-compare"):
        folder = where.data / part
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    for secret in (where.webhook_token, where.api_token, where.alertmanager_password):
        write_secret(secret)
    password = where.alertmanager_password
    nodes = {n.name: str(n.agent) for n in lab.nodes}
    site = Site(str(lab.topology.stack_address), nodes, password)
    _prometheus(site, where, root)
    shipped = (root / "deploy/alertmanager/alertmanager.yml").read_text()
    (where.directory / "alertmanager.yml").write_text(sites.alertmanager(shipped, site))
    (where.directory / "alertmanager.web.yml").write_text(passwords.web_config(password))
    shutil.copy(root / "deploy/isolation-agent/policies.yaml", where.directory / "policies.yaml")
    tokens = dict.fromkeys(site.nodes, lab.layout.token_file)
    agent = sites.isolation_agent(site, where.data / "isolation-agent", tokens)
    (where.directory / "isolation-agent.yaml").write_text(agent)
    state = {"state": str(where.data / "vigia-compare/state.json")}
    (where.directory / "compare.yaml").write_text(sites.compare(site, {**SHORT, **state}))


def write_secret(path: Path) -> None:
    """Write a fresh secret."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(secrets.token_urlsafe(32) + "\n")


def write_password(folder: Path) -> Path:
    """Make a password of Alertmanager in a folder, unless one is there, and a configuration that asks for it.

    What else the web configuration in the folder has stays. Returns the password's file. Raises VigiaError.
    """
    password, config = folder / passwords.PASSWORD, folder / passwords.WEB_CONFIG
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not password.exists():
            write_secret(password)
        asking = passwords.web_config(password, config.read_text() if config.exists() else "{}")
        new = folder / f".{passwords.WEB_CONFIG}.new"
        new.write_text(asking)
        new.replace(config)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as e:
        raise VigiaError(f"cannot write {config}, which asks for the password in {password.name}: {e}") from e
    return password


def _prometheus(site: Site, where: Places, root: Path) -> None:
    shipped = (root / "deploy/prometheus/prometheus.yml").read_text()
    (where.directory / "prometheus.yml").write_text(sites.prometheus(shipped, site))
    rules = where.directory / "rules"
    shutil.rmtree(rules, ignore_errors=True)
    rules.mkdir()
    for file in sorted((root / "alert-rules").glob("*.rules.yml")):
        shutil.copy(file, rules)
    write_targets(site, where.directory / "targets")


def write_targets(site: Site, folder: Path) -> None:
    """Write what Prometheus scrapes; it reads the files again when they change."""
    folder.mkdir(exist_ok=True)
    for job, groups in sites.targets(site).items():
        new = folder / f".{job}.new"
        new.write_text(json.dumps(groups, indent=1) + "\n")
        new.replace(folder / f"{job}.json")
