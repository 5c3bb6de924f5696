"""Events of the cluster: what people are told of an object, where they look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vigia_identity.api_server import ApiServer

__all__ = ["Word", "say", "stamp"]


@dataclass(frozen=True)
class Word:
    """What people are told."""

    level: str
    """Normal or Warning."""
    reason: str
    """In one word, for programs."""
    message: str


def say(server: ApiServer, kind: tuple[str, str], meta: Mapping[str, Any], word: Word, now: datetime) -> None:
    """Make an event of an object of a kind (apiVersion and kind). Raises CloudError."""
    of = {"apiVersion": kind[0], "kind": kind[1]}
    of |= {k: meta[k] for k in ("name", "namespace", "uid") if meta.get(k)}
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name'][:200]}.", "namespace": meta["namespace"]},
        "involvedObject": of,
        "type": word.level,
        "reason": word.reason,
        "message": word.message[:1000],
        "source": {"component": "vigia-identity"},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
    }
    server.create(f"/api/v1/namespaces/{meta['namespace']}/events", body)


def stamp(at: datetime) -> str:
    """Return an instant as Kubernetes writes it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
