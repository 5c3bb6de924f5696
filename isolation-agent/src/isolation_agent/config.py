"""The agent's configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from isolation_agent.errors import AgentError
from isolation_agent.policy import Name, PolicySet, load_policies
from isolation_agent.tokens import Token, read_token
from vigia_config import Seconds, Strict, fault, load

__all__ = ["Config", "Host", "Limits", "Loop", "Settings", "load_settings"]


def _address(value: object) -> str:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise PydanticCustomError("vigia", "is not an address; write HOST:PORT, for example 127.0.0.1:9874")
    return str(value)


def _base_url(value: str) -> str:
    parts = urlsplit(value)
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise PydanticCustomError(
            "vigia", "is not the base URL of an enforcer; write for example http://127.0.0.1:9873"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _database(value: str) -> str:
    try:
        url = make_url(value)
    except ArgumentError:
        url = None
    if url is None or url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        raise PydanticCustomError(
            "vigia",
            "is not a database this version can use; write sqlite:////absolute/path.db or sqlite:///relative.db",
        )
    return value


def _positive(value: float) -> float:
    if value <= 0:
        raise PydanticCustomError("vigia", "must be more than zero; write for example 1s")
    return value


Address = Annotated[str, BeforeValidator(_address)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
DatabaseUrl = Annotated[str, AfterValidator(_database)]
Duration = Annotated[Seconds, AfterValidator(_positive)]


class Auth(Strict):
    """Where the two bearer tokens are."""

    webhook_token_file: Path
    api_token_file: Path


class Host(Strict):
    """One node's enforcer."""

    node: Name
    url: BaseUrl
    token_file: Path


class Limits(Strict):
    """Bounds on what clients may send and on what is kept."""

    body_bytes: int = Field(default=16 << 20, ge=1024, le=64 << 20)
    alerts: int = Field(default=20_000, ge=1, le=100_000)
    inbox_messages: int = Field(default=1000, ge=1)
    inbox_bytes: int = Field(default=256 << 20, ge=1024)
    request_time: Duration = 10.0
    threads: int = Field(default=8, ge=1, le=64)
    kept_actions: int = Field(default=10_000, ge=1)


class Loop(Strict):
    """Timing of the controller loop."""

    tick: Duration = 1.0
    reconcile: Duration = 15.0
    enforcer_timeout: Duration = 2.0
    attempts: int = Field(default=8, ge=1, le=100)
    backoff: Duration = 0.5
    backoff_max: Duration = 15.0
    max_alert_age: Duration = 300.0
    episode_timeout: Duration = 18_000.0


class Config(Strict):
    """The whole file."""

    listen: Address = "127.0.0.1:9874"
    database: DatabaseUrl = "sqlite:////var/lib/vigia/isolation-agent.db"
    audit_log: Path = Path("/var/lib/vigia/isolation-audit.jsonl")
    auth: Auth
    policies: Path
    hosts: list[Host] = Field(min_length=1)
    dry_run: bool = False
    limits: Limits = Limits()
    controller: Loop = Loop()

    @model_validator(mode="after")
    def _hosts_differ(self) -> Self:
        nodes: set[str] = set()
        for i, host in enumerate(self.hosts):
            if host.node in nodes:
                raise fault(("hosts", i, "node"), f'"{host.node}" appears twice', "keep one host per node")
            nodes.add(host.node)
        return self

    @property
    def bind(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


@dataclass(frozen=True)
class Settings:
    """A configuration with everything it points to, read and checked."""

    path: Path
    config: Config
    policies: PolicySet
    webhook_token: Token
    api_token: Token
    host_tokens: Mapping[str, Token]

    def resolve(self, path: Path) -> Path:
        """Return path, relative ones being relative to the configuration file."""
        return _below(self.path, path)

    @property
    def audit_path(self) -> Path:
        """Absolute path of the audit log."""
        return self.resolve(self.config.audit_log)

    @property
    def database_path(self) -> Path:
        """Absolute path of the SQLite database."""
        return self.resolve(Path(make_url(self.config.database).database or ""))

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL with an absolute path."""
        url = make_url(self.config.database).set(database=str(self.database_path))
        return url.render_as_string(hide_password=False)


def load_settings(path: Path) -> Settings:
    """Read the configuration, the policies and the tokens. Raises ConfigError or AgentError."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 (resolve() would follow links)
    config = load(path, Config)
    policies = load_policies(_below(path, config.policies))
    _check_ttl(config, policies)
    webhook = read_token(_below(path, config.auth.webhook_token_file), "auth.webhook_token_file")
    api = read_token(_below(path, config.auth.api_token_file), "auth.api_token_file")
    if webhook == api:
        raise AgentError(
            f"{path}: auth: both token files hold the same token; "
            "use two, so that what may send alerts may not change actions"
        )
    hosts = {
        host.node: read_token(_below(path, host.token_file), f"hosts[{i}].token_file")
        for i, host in enumerate(config.hosts)
    }
    return Settings(path, config, policies, webhook, api, hosts)


def _check_ttl(config: Config, policies: PolicySet) -> None:
    """A limit is extended at two thirds of its TTL and held for half of it: a sixth is left for a tick."""
    for policy in policies.policies:
        if policy.ttl < 6 * config.controller.tick:
            raise AgentError(
                f"{config.policies}: policy {policy.name}: ttl {policy.ttl:g}s is shorter than six ticks of "
                f"{config.controller.tick:g}s, so limits could end between two looks; write a longer ttl"
            )


def _below(config_path: Path, path: Path) -> Path:
    return config_path.parent / path
