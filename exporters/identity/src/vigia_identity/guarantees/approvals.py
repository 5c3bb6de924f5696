"""Actions that wait for a person, as objects of the cluster: whoever may annotate one decides.

They are IsolationActions of Vigia's own namespace, where no tenant has a right, whatever it may do in its
own. The chart's ValidatingAdmissionPolicy lets nobody write another name than the own into BY, so that the
API server vouches for who decided; managedFields name a program, and nobody vouches for that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

import vigia_http
import vigia_json
from vigia_identity.api_server import ApiServer
from vigia_identity.clouds import CloudError, bounded, printable
from vigia_identity.config import Approvals
from vigia_identity.guarantees.contracts import GROUP
from vigia_identity.guarantees.events import Word, say
from vigia_identity.guarantees.keeper import AWAITS, pod_of

__all__ = ["BY", "COMMENT", "MAX_WAITING", "VERDICT", "pass_on"]

_log = logging.getLogger(__name__)

VERDICT, BY, COMMENT = "vigia.internal/verdict", "vigia.internal/verdict-by", "vigia.internal/comment"
"""Annotations: approve or reject, the user who says so, and why."""
MAX_WAITING = 1000
"""Actions that wait at once; the isolation agent shows no more on one page."""
MAX_ANSWER = 16 << 20
MAX_BY, MAX_COMMENT, MAX_REASON = 180, 200, 1000
"""Bytes: what the isolation agent takes of BY, what it takes of COMMENT beside where that was written."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PAST = {"approve": "approved", "reject": "rejected"}
_KIND = (GROUP, "IsolationAction")
_OVER = (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT)


class _Agent:
    """The isolation agent, asked as an account that may approve and reject, and nothing else."""

    def __init__(self, client: httpx.Client, timeout: float) -> None:
        self._client, self._timeout = client, timeout

    def waiting(self) -> dict[str, Any]:
        """Return the actions that wait for a person, by id."""
        query = {"state": "pending_approval", "open": "true", "limit": str(MAX_WAITING)}
        with self._client.stream("GET", "/v1/actions", params=query) as response:
            response.raise_for_status()
            body = vigia_http.read(response, MAX_ANSWER, self._timeout)
        found = vigia_json.loads(body, max_size=MAX_ANSWER)["actions"]
        return {a["id"]: a for a in found if _ID.fullmatch(a["id"]) and not a["revert_requested_by"]}

    def decide(self, action: str, verdict: str, body: Mapping[str, str], key: str) -> str:
        """Pass a verdict on; return why the action does not wait for it any more, if so.

        The same key again is answered as the first time, and nothing happens twice.
        """
        path = f"/v1/actions/{action}:{verdict}"
        with self._client.stream("POST", path, json=body, headers={"Idempotency-Key": key}) as response:
            raw = vigia_http.read(response, MAX_ANSWER, self._timeout)
            if response.status_code not in _OVER:
                response.raise_for_status()
                return ""
        return printable(vigia_json.loads(raw, max_size=MAX_ANSWER)["error"]["message"], MAX_COMMENT)


@contextmanager
def _agent(config: Approvals, timeout: float) -> Iterator[_Agent]:
    """Connect to the isolation agent. What goes wrong meanwhile becomes a CloudError."""
    where = f"isolation agent, {config.agent}"
    try:
        token = config.token_file.read_text().strip()
        headers = {"Authorization": f"Bearer {token}", **vigia_http.IDENTITY}
        with httpx.Client(base_url=config.agent, timeout=timeout, headers=headers, trust_env=False) as client:
            yield _Agent(client, timeout)
    except httpx.HTTPStatusError as e:
        raise CloudError(f"{where}: {_said(e, config)}") from e
    except (httpx.HTTPError, vigia_http.AnswerError, OSError) as e:
        raise CloudError(f"{where}: {e or type(e).__name__}") from e
    except (LookupError, TypeError, AttributeError, ValueError) as e:
        raise CloudError(f"{where}: the answer is not as documented") from e


def _said(e: httpx.HTTPStatusError, config: Approvals) -> str:
    if e.response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return (
            f"{e.response.status_code}: it does not take the token of {config.token_file} for approvals; "
            "give it to an account of auth.users with the role approver"
        )
    return str(e)


@dataclass(frozen=True)
class _Site:
    """Where the objects are, and when it is."""

    server: ApiServer
    namespace: str
    now: datetime

    @property
    def path(self) -> str:
        return f"/apis/{GROUP}/namespaces/{self.namespace}/isolationactions"


def pass_on(config: Approvals, server: ApiServer, namespace: str, now: datetime, timeout: float) -> int:
    """Show what waits for a person and pass on what people said; return how much of it changed.

    An object goes once its verdict was taken or comes too late, never before: over a restart of any part the
    verdict is passed on again, by the object's uid as key. Raises CloudError.
    """
    site = _Site(server, namespace, now)
    listed = server.items(site.path, labelSelector=f"{AWAITS}=approval")
    there = {i["metadata"]["name"]: i for i in bounded(listed, 2 * MAX_WAITING, "IsolationActions that wait")}
    changed = 0
    with _agent(config, timeout) as agent:
        waiting = agent.waiting()
        for name in sorted(there):
            changed += _settle(site, agent, there[name], waits=name in waiting)
    for name in sorted(set(waiting) - set(there)):
        changed += _show(site, waiting[name])
    if unvouched := _unvouched(there.values()):
        raise CloudError(
            f"IsolationAction {namespace}/{unvouched[0]} has {VERDICT} without {BY}, and so nobody said it; "
            "install the chart's ValidatingAdmissionPolicy, which lets nobody write that"
        )
    return changed


def _settle(site: _Site, agent: _Agent, item: Any, *, waits: bool) -> int:
    """Pass on what was said of an object, and take it away if it has no more to wait for."""
    meta = item["metadata"]
    said = meta.get("annotations") or {}
    verdict, by = said.get(VERDICT), printable(said.get(BY), MAX_BY)
    if verdict in _PAST and by:
        where = f"IsolationAction {meta['namespace']}/{meta['name']}, version {meta['resourceVersion']}"
        comment = f"{printable(said.get(COMMENT), MAX_COMMENT)} (annotation of {where})".strip()
        body = {"decided_by": by, "comment": comment}
        late = agent.decide(meta["name"], verdict, body, f"{meta['uid']}:{verdict}")
        word = Word("Normal", _PAST[verdict].capitalize(), f"by {by}, which the isolation agent has taken")
        if late:
            word = Word("Warning", "TooLate", f"{_PAST[verdict]} by {by}, which comes too late: {late}")
        extra = {"action": meta["name"], "verdict": verdict, "by": by, "late": late}
        _log.info("passed on what was said of an action", extra=extra)
        say(site.server, _KIND, meta, word, site.now)
    elif waits:
        return 0
    site.server.remove(f"{site.path}/{meta['name']}")
    return 1


def _unvouched(items: Iterable[Any]) -> list[str]:
    """Return the names of objects with a verdict of nobody's."""
    said = {i["metadata"]["name"]: i["metadata"].get("annotations") or {} for i in items}
    return sorted(name for name, marks in said.items() if marks.get(VERDICT) and not printable(marks.get(BY)))


def _show(site: _Site, action: Any) -> int:
    """Make the object of an action that waits."""
    tenant, port = str(action["tenant"]), str(action["port"])
    pod = pod_of(site.server, tenant, port) if port.count("/") == 1 and _NAMESPACE.fullmatch(tenant) else None
    spec = {
        "tenant": tenant,
        "pod": pod["name"] if pod else port,
        "port": port,
        "node": str(action["node"]),
        "since": action["created_at"],
        "level": str(action["level"]),
        "reason": str(action["reason"])[:MAX_REASON],
    }
    if action.get("limit"):
        spec["bitsPerSecond"] = 8 * int(action["limit"]["rate_bytes_per_second"])
    meta = {"name": action["id"], "namespace": site.namespace, "labels": {AWAITS: "approval"}}
    item = {"apiVersion": GROUP, "kind": "IsolationAction", "metadata": meta, "spec": spec}
    return int(site.server.create(site.path, item))
