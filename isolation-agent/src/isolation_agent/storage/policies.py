"""Policies that are put through the API, where the configuration says that they are: every version is kept.

The policy file is what is in force until the first one is put, and always where
`policies_by` is `file`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, inspect, select
from sqlalchemy.orm import Session

import vigia_config
from isolation_agent.config import Settings, check_ttl
from isolation_agent.errors import AgentError
from isolation_agent.policy import MAX_TTL, PolicyFile, PolicySet, policy_set
from isolation_agent.storage.journal import Journal
from isolation_agent.storage.store import Store
from isolation_agent.storage.tables import PolicyVersion
from vigia_config import ConfigError

__all__ = ["Conflict", "Draft", "changes", "content_of", "in_force", "newest_id", "on_record", "put_policies"]

_SHOWN = 50


class Conflict(ValueError):
    """The policies cannot be put as things stand."""


def newest_id(store: Store) -> int:
    """Return the number of the newest version that was put; 0 if none was."""
    with store.read() as session:
        return session.scalar(select(func.max(PolicyVersion.id))) or 0


def in_force(store: Store, settings: Settings) -> Settings:
    """Return settings with the policies that are in force. Raises AgentError."""
    if settings.config.policies_by == "file":
        return settings
    with store.read() as session:
        row = _newest(session)
        return settings if row is None else replace(settings, policies=_read(row))


def on_record(settings: Settings) -> Settings:
    """Do what in_force does for a command beside the running agent: the database is only read."""
    path = settings.database_path
    if settings.config.policies_by == "file" or (path is not None and not path.exists()):
        return settings
    with closing(Store(settings.database_url, read_only=True)) as store:
        with store.read() as session:
            if not inspect(session.connection()).has_table(PolicyVersion.__tablename__):
                return settings
        return in_force(store, settings)


@dataclass(frozen=True)
class Draft:
    """Policies that somebody wants in force."""

    content: dict[str, Any]
    """as a policy file has them"""
    expected: str | None
    """the version that they replace; None for whichever is in force"""
    reason: str


def put_policies(journal: Journal, settings: Settings, draft: Draft, actor: str) -> PolicySet:
    """Check and keep a version, on record with who put it. Raises ConfigError or Conflict."""
    if settings.config.policies_by == "file":
        raise Conflict("policies are changed in the policy file; to change them here, set policies_by: api")
    file = vigia_config.parse("policies", json.dumps(draft.content), PolicyFile)
    new = policy_set(file)
    try:
        check_ttl("policies", settings.config, new)
    except AgentError as e:
        raise ConfigError(str(e)) from e
    with journal.store.write() as session:
        row = _newest(session)
        before = settings.policies.version if row is None else row.version
        if draft.expected not in (None, before):
            raise Conflict(
                f"version {before} is in force, not the one that was expected; look at it and try again"
            )
        session.add(
            PolicyVersion(
                version=new.version,
                content=file.model_dump_json(),
                reason=draft.reason,
                changed_by=actor,
                changed_at=journal.clock.now(),
            )
        )
        session.flush()
        journal.note(
            "policies.replaced", actor, policy_version=new.version, before=before, reason=draft.reason
        )
    return new


def changes(store: Store) -> Sequence[PolicyVersion]:
    """Return the newest versions that were put, newest first."""
    with store.read() as session:
        return session.scalars(select(PolicyVersion).order_by(PolicyVersion.id.desc()).limit(_SHOWN)).all()


def content_of(store: Store, version: str) -> PolicySet | None:
    """Return a version that was put, None if there is none of that name."""
    with store.read() as session:
        row = session.scalar(
            select(PolicyVersion)
            .where(PolicyVersion.version == version)
            .order_by(PolicyVersion.id.desc())
            .limit(1)
        )
        return None if row is None else _read(row)


def _newest(session: Session) -> PolicyVersion | None:
    return session.scalar(select(PolicyVersion).order_by(PolicyVersion.id.desc()).limit(1))


def _read(row: PolicyVersion) -> PolicySet:
    """Read a version; limits that an earlier agent let last longer last as long as they may."""
    content = json.loads(row.content)
    for policy in content["policies"]:
        if _at_most(policy, "ttl", MAX_TTL):
            _at_most(policy["release"], "hold", MAX_TTL / 2)
        _at_most(policy, "ttl_max", MAX_TTL)
    try:
        source = f"policies of version {row.version}"
        found = policy_set(vigia_config.parse(source, json.dumps(content), PolicyFile))
        return replace(found, version=row.version)
    except ConfigError as e:
        raise AgentError(f"database: {e}; put policies that this version of the agent knows") from e


def _at_most(values: dict[str, Any], name: str, most: float) -> bool:
    """Bound a duration, as a version that was put has it: in seconds. Tell whether it was longer."""
    longer = float(values[name].removesuffix("s")) > most
    if longer:
        values[name] = f"{most}s"
    return longer
