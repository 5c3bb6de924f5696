"""The agent's configuration file."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from isolation_agent.errors import AgentError
from isolation_agent.found import Stamp, read_hosts, stamp
from isolation_agent.policy import Name, PolicySet, load_policies
from vigia_config import Seconds, Strict, fault, load
from vigia_config.tls import Tls
from vigia_config.urls import base_url
from vigia_service.tokens import Token, read_token

__all__ = [
    "Account",
    "Auth",
    "Config",
    "Host",
    "HostsFile",
    "Limits",
    "Loop",
    "Settings",
    "User",
    "check_ttl",
    "load_settings",
]

API_ACCOUNT = "api"
"""Name of the account whose token is in auth.api_token_file."""


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


def _pages(value: str) -> str:
    try:
        return f"{base_url(value, 'pages', 'http://127.0.0.1:9875')}/"
    except ValueError as e:
        raise PydanticCustomError("vigia", "{problem}", {"problem": str(e)}) from e


def _positive(value: float) -> float:
    if value <= 0:
        raise PydanticCustomError("vigia", "must be more than zero; write for example 1s")
    return value


def _database_url(value: str) -> SplitResult:
    """Return the parts of a database's URL; its scheme is SQLite's or PostgreSQL's. Raises ValueError."""
    url = urlsplit(value, allow_fragments=False)
    url = url._replace(scheme=url.scheme.partition("+")[0])
    _ = url.port
    if url.scheme not in ("sqlite", "postgresql") or "://" not in value:
        raise ValueError("is of another kind")
    if url.path in ("", "/", "/:memory:") or (url.scheme == "sqlite" and url.netloc):
        raise ValueError("names no database")
    return url


Address = Annotated[str, BeforeValidator(_address)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
Duration = Annotated[Seconds, AfterValidator(_positive)]


class User(Strict):
    """A person or a tool with a token of its own."""

    name: Name
    """Shown as the actor in the audit log."""
    role: Literal["viewer", "approver", "operator", "admin", "tenant"]
    """What it may do."""
    token_file: Path
    """Its bearer token; a file that everybody may read is refused."""
    tenant: Name | None = None
    """Whose limits it sees, with the role `tenant` alone."""

    @model_validator(mode="after")
    def _tenant_if_tenant(self) -> Self:
        if (self.role == "tenant") != (self.tenant is not None):
            raise fault(("tenant",), "goes with role: tenant and with no other", "add or remove it")
        return self


class Auth(Strict):
    """Where the bearer tokens are, and how long a session in the console lasts."""

    webhook_token_file: Path
    """Bearer token of Alertmanager."""
    api_token_file: Path
    """Bearer token of the account `api`, an admin; another one than that of the webhook."""
    users: list[User] = []
    """Further accounts."""
    session: Duration = 8 * 3600.0
    """How long a session in the console lasts."""

    @model_validator(mode="after")
    def _users_differ(self) -> Self:
        names = {API_ACCOUNT}
        for i, user in enumerate(self.users):
            if user.name in names:
                raise fault(("users", i, "name"), f'"{user.name}" is taken', "choose another name")
            names.add(user.name)
        return self


class Host(Strict):
    """One node's enforcer."""

    node: Name
    """The node's name, as its alerts have it."""
    url: BaseUrl
    """Where its enforcer answers."""
    token_file: Path
    """The enforcer's bearer token."""


class HostsFile(Strict):
    """Enforcers that somebody else keeps a list of, in the format of Prometheus's file_sd."""

    path: Path
    """In the format of file_sd: a group for each enforcer, with the label `node`."""
    token_file: Path
    """Bearer token of all of them."""
    scheme: Literal["http", "https"] = "http"
    """How they are asked."""


class Limits(Strict):
    """Bounds on what clients may send and on what is kept."""

    body_bytes: int = Field(default=16 << 20, ge=1024, le=64 << 20)
    """Largest body of the webhook, also when it comes in chunks; compressed ones are refused."""
    alerts: int = Field(default=20_000, ge=1, le=100_000)
    """Most alerts in one message."""
    inbox_messages: int = Field(default=1000, ge=1)
    """Messages stored and not yet handled; beyond that the webhook answers 503."""
    inbox_bytes: int = Field(default=256 << 20, ge=1024)
    """Bytes of them."""
    request_time: Duration = 10.0
    """For the head of a request, and again for its body."""
    threads: int = Field(default=8, ge=1, le=64)
    """Requests to the API answered at the same time; the webhook has as many threads of its own, health
    checks have two."""
    kept_actions: int = Field(default=10_000, ge=1)
    """Actions that are over and still shown."""


class Loop(Strict):
    """Timing of the controller loop."""

    tick: Duration = 1.0
    """Between two turns; a webhook or a call of the API starts one at once."""
    reconcile: Duration = 15.0
    """How often every enforcer is compared with the record."""
    enforcer_timeout: Duration = 2.0
    """For connecting to an enforcer, and for its whole answer."""
    attempts: int = Field(default=8, ge=1, le=100)
    """Tries to apply a limit before the action fails."""
    backoff: Duration = 0.5
    """Pause after the first try; it doubles with each."""
    backoff_max: Duration = 15.0
    """Longest pause."""
    max_alert_age: Duration = 300.0
    """Age from which an alert alone is no longer enough."""
    episode_timeout: Duration = 18_000.0
    """After which an alert that nobody repeats is forgotten; keep it above Alertmanager's `repeat_interval`.
    """
    lease: Duration = 5.0
    """Without a sign of life after which another replica leads."""


class Config(Strict):
    """The whole file."""

    listen: Address = "127.0.0.1:9874"
    """Address of the API; anything but loopback needs `tls` or a proxy in front."""
    tls: Tls | None = None
    """Of the API, and towards the enforcers; plain HTTP without."""
    pages: Annotated[str, AfterValidator(_pages)] | None = None
    """Address of vigia-compare's pages, for the console's navigation; none: port 9875 of its own host."""
    replica: Name | None = None
    """Name of this process among those that share a database; the host's name without."""
    database: str = "sqlite:////var/lib/vigia/isolation-agent.db"
    """SQLite, in WAL mode with every commit on disk, or `postgresql://user@host/name?passfile=FILE` for
    several replicas (no password in the URL)."""
    audit_log: Path = Path("/var/lib/vigia/isolation-audit.jsonl")
    """JSON Lines with a hash chain; every replica has its own."""
    auth: Auth
    """Who may do what."""
    policies: Path
    """The policy file; relative to the file that this stands in, as all paths are."""
    policies_by: Literal["file", "api"] = "file"
    """Where policies are changed: in the file, or by `PUT /v1/policies`; then the file is in force until the
    first one is put."""
    hosts: list[Host] = []
    """The enforcers; required without `hosts_file`."""
    hosts_file: HostsFile | None = None
    """Further enforcers, read again when the file changes; `hosts` go before them."""
    dry_run: bool = False
    """Decide and record, limit nothing."""
    limits: Limits = Limits()
    """Bounds on what clients may send and on what is kept."""
    controller: Loop = Loop()
    """The controller's timing."""

    @model_validator(mode="after")
    def _usable_database(self) -> Self:
        # The value is not shown: it may hold a password.
        try:
            url = _database_url(self.database)
        except ValueError as e:
            raise fault(
                ("database",),
                "is not a database that can be used",
                "write sqlite:////absolute/path.db, sqlite:///relative.db or postgresql://user@host/name",
            ) from e
        if url.password is not None:
            raise fault(
                ("database",),
                "has a password in it",
                "write postgresql://user@host/name?passfile=/path, which names a file of libpq's format",
            )
        return self

    @model_validator(mode="after")
    def _hosts_differ(self) -> Self:
        if not self.hosts and self.hosts_file is None:
            raise fault(("hosts",), "is missing and so is hosts_file", "name the enforcers in one of the two")
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
class Account:
    """Somebody who may use the API, with the token that proves it."""

    name: str
    role: str
    token: Token
    tenant: str | None = None


@dataclass(frozen=True)
class Settings:
    """A configuration with everything it points to, read and checked."""

    path: Path
    config: Config
    policies: PolicySet
    webhook_token: Token
    accounts: tuple[Account, ...]
    host_tokens: Mapping[str, Token]
    tls_server: ssl.SSLContext | None = None
    """TLS of the listener."""
    tls_client: ssl.SSLContext | None = None
    """TLS towards the enforcers."""
    hosts_stamp: Stamp = None
    """What hosts_file was when it was read; None if it was not there."""

    @property
    def hosts_path(self) -> Path | None:
        """Absolute path of hosts_file; None without one."""
        found = self.config.hosts_file
        return self.resolve(found.path) if found is not None else None

    def resolve(self, path: Path) -> Path:
        """Return path, relative ones being relative to the configuration file."""
        return _below(self.path, path)

    @property
    def audit_path(self) -> Path:
        """Absolute path of the audit log."""
        return self.resolve(self.config.audit_log)

    @property
    def replica(self) -> str:
        """Name of this process among those that share the database."""
        return self.config.replica or socket.gethostname()

    @property
    def database_path(self) -> Path | None:
        """Absolute path of the SQLite database; None if the database is a server."""
        url = _database_url(self.config.database)
        return self.resolve(Path(url.path[1:])) if url.scheme == "sqlite" else None

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL with an absolute path, or with the driver that is installed."""
        path = self.database_path
        if path is None:
            return "postgresql+psycopg:" + self.config.database.partition(":")[2]
        query = _database_url(self.config.database).query
        return f"sqlite:///{path}" + (f"?{query}" if query else "")


def load_settings(path: Path) -> Settings:
    """Read the configuration, the hosts that were found, the policies and the tokens.

    Raises ConfigError or AgentError.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 (resolve() would follow links)
    config, seen = _with_hosts_found(path, load(path, Config))
    policies = load_policies(_below(path, config.policies))
    check_ttl(str(config.policies), config, policies)
    webhook = read_token(_below(path, config.auth.webhook_token_file), "auth.webhook_token_file")
    accounts = _accounts(path, config.auth, webhook)
    hosts = {
        host.node: read_token(_below(path, host.token_file), f"hosts[{i}].token_file")
        for i, host in enumerate(config.hosts)
    }
    server, client = (config.tls.server(), config.tls.client()) if config.tls else (None, None)
    return Settings(path, config, policies, webhook, accounts, hosts, server, client, seen)


def _with_hosts_found(path: Path, config: Config) -> tuple[Config, Stamp]:
    """Return the configuration with the hosts of hosts_file, and what that file was. Raises AgentError."""
    if config.hosts_file is None:
        return config, None
    file = _below(path, config.hosts_file.path)
    seen = stamp(file)  # before it is read: what changes meanwhile is read again
    named = {host.node for host in config.hosts}
    try:
        found = [
            Host(
                node=node,
                url=f"{config.hosts_file.scheme}://{address}",
                token_file=config.hosts_file.token_file,
            )
            for node, address in read_hosts(file).items()
            if node not in named
        ]
    except ValidationError as e:
        wrong = e.errors()[0]
        raise AgentError(f'hosts_file.path: {file}: "{wrong["input"]}": {wrong["msg"]}') from e
    except ValueError as e:
        raise AgentError(f"hosts_file.path: {file}: {e}; correct the file") from e
    return config.model_copy(update={"hosts": [*config.hosts, *found]}), seen


def _accounts(path: Path, auth: Auth, webhook: Token) -> tuple[Account, ...]:
    """Read everybody's token. Raises AgentError if two are the same."""
    api = read_token(_below(path, auth.api_token_file), "auth.api_token_file")
    accounts = [Account(API_ACCOUNT, "admin", api)]
    for i, user in enumerate(auth.users):
        token = read_token(_below(path, user.token_file), f"auth.users[{i}].token_file")
        accounts.append(Account(user.name, user.role, token, user.tenant))
    if webhook == api:
        raise AgentError(
            f"{path}: auth: both token files hold the same token; "
            "use two, so that what may send alerts may not change actions"
        )
    tokens = {webhook: "webhook_token_file"}
    for account in accounts:
        if account.token in tokens:
            raise AgentError(
                f"{path}: auth: {account.name} has the same token as {tokens[account.token]}; "
                "give everybody a token of their own"
            )
        tokens[account.token] = account.name
    return tuple(accounts)


def check_ttl(source: str, config: Config, policies: PolicySet) -> None:
    """Raise AgentError if a TTL is too short for the tick.

    A limit is extended at two thirds of its TTL and held for half of it: a sixth is left for a tick.
    """
    for policy in policies.policies:
        if policy.ttl < 6 * config.controller.tick:
            raise AgentError(
                f"{source}: policy {policy.name}: ttl {policy.ttl:g}s is shorter than six ticks of "
                f"{config.controller.tick:g}s, so limits could end between two looks; write a longer ttl"
            )


def _below(config_path: Path, path: Path) -> Path:
    return config_path.parent / path
