"""Telling the cluster what became of guarantees, and which pods are limited."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from vigia_identity.api_server import ApiServer
from vigia_identity.clouds import bounded
from vigia_identity.guarantees.contracts import GROUP, MAX_PODS, Bought, Guarantee
from vigia_identity.guarantees.events import Word, say, stamp
from vigia_identity.guarantees.nodes import InForce, Limit
from vigia_identity.guarantees.quantities import shown

__all__ = ["ACTIONS", "AWAITS", "pod_of", "tell_guarantees", "tell_limits"]

ACTIONS = f"/apis/{GROUP}/isolationactions"
AWAITS = "vigia.internal/awaits"
"""Label of an IsolationAction that is no limit yet: it waits for a person, see approvals."""

POD, GUARANTEE = ("v1", "Pod"), (GROUP, "NetworkGuarantee")
CLOSE = 0.01
"""Part by which a guarantee that was read back may differ: it is a whole number of bytes there."""


def tell_guarantees(server: ApiServer, bought: Bought, inforce: InForce, now: datetime) -> int:
    """Write the status of every guarantee that has changed, and an event; return how many changed."""
    changed = 0
    for guarantee in bought.guarantees:
        before = guarantee.item.get("status") or {}
        status = _status(guarantee, inforce)
        conditions = [_since(c, before, now) for c in status["conditions"]]
        status["conditions"] = conditions
        if {k: before.get(k) for k in status} == status:
            continue
        changed += 1
        path = f"/apis/{GROUP}/namespaces/{guarantee.namespace}/networkguarantees/{guarantee.name}/status"
        server.merge(path, {"status": status})
        was = {c["type"]: c["status"] for c in before.get("conditions") or ()}
        for c in conditions:
            if was.get(c["type"]) != c["status"] and c["status"] != "Unknown":
                kind = "Normal" if c["status"] == "True" else "Warning"
                word = Word(kind, c["reason"], c["message"])
                say(server, GUARANTEE, guarantee.item["metadata"], word, now)
    return changed


def _status(guarantee: Guarantee, inforce: InForce) -> dict[str, Any]:
    meta = guarantee.item["metadata"]
    wanted = {c.port: c for c in guarantee.contracts}
    if "" in wanted:
        contract = wanted[""]
        own = {p: rates for (tenant, p), rates in inforce.guarantees.items() if tenant == guarantee.namespace}
        ports = [
            p for p, rates in own.items() if _same(rates, contract.send.guarantee, contract.receive.guarantee)
        ]
        selected = len(ports)
    else:
        selected = len(wanted)
        ports = [
            p
            for p, c in wanted.items()
            if _same(inforce.guarantees.get((c.tenant, p), {}), c.send.guarantee, c.receive.guarantee)
        ]
    accepted = _condition(
        "Accepted",
        not guarantee.problem,
        guarantee.reason,
        guarantee.problem or "the enforcers are told of it",
    )
    done = bool(ports) and len(ports) == selected
    said = (
        f"in force at {len(ports)} ports" if "" in wanted else f"in force at {len(ports)} of {selected} pods"
    )
    applied = _condition("Applied", done, "InForce" if done else "NotInForce", said)
    if not inforce.nodes:
        applied = {**applied, "status": "Unknown", "reason": "NoEnforcer", "message": "no enforcer answers"}
    return {
        "observedGeneration": meta.get("generation", 0),
        "selected": selected,
        "applied": len(ports),
        "conditions": [accepted, applied],
    }


def _same(rates: Mapping[str, float], send: int, receive: int) -> bool:
    pairs = ((rates.get("from_tenant"), send), (rates.get("to_tenant"), receive))
    return all(has is not None and abs(has - wanted) <= CLOSE * wanted for has, wanted in pairs)


def _condition(kind: str, holds: bool, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def _since(condition: dict[str, Any], before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Add when a condition last changed."""
    for old in before.get("conditions") or ():
        if old["type"] == condition["type"] and old["status"] == condition["status"]:
            return {**condition, "lastTransitionTime": old["lastTransitionTime"]}
    return {**condition, "lastTransitionTime": stamp(now)}


def tell_limits(server: ApiServer, inforce: InForce, now: datetime) -> int:
    """Make an IsolationAction of each limit of a pod, end those that are over; return how many changed."""
    there = {
        (i["metadata"]["namespace"], i["spec"]["port"]): i
        for i in bounded(server.items(ACTIONS, labelSelector=f"!{AWAITS}"), MAX_PODS, "IsolationActions")
    }
    limits = {(one.tenant, one.port): one for one in inforce.limits if one.port.count("/") == 1}
    changed = 0
    for key in sorted(set(there) - set(limits)):  # first: a pod of the same name may have come after it
        if there[key]["spec"]["node"] in inforce.nodes:  # else nobody knows
            _end(server, there[key], now)
            changed += 1
    for key in sorted(set(limits) - set(there)):
        changed += _begin(server, limits[key], now)
    for key in sorted(set(there) & set(limits)):
        changed += _go_on(server, there[key], limits[key], now)
    return changed


def _begin(server: ApiServer, limit: Limit, now: datetime) -> int:
    meta = pod_of(server, limit.tenant, limit.port)
    if meta is None:
        return 0  # it is going, and its port with it
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    body: dict[str, Any] = {
        "apiVersion": GROUP,
        "kind": "IsolationAction",
        "metadata": {"name": meta["name"], "namespace": limit.tenant, "ownerReferences": [owner]},
        "spec": {
            "pod": meta["name"],
            "port": limit.port,
            "node": limit.node,
            "since": stamp(now),
            **_limit(limit, now),
        },
    }
    if not server.create(f"/apis/{GROUP}/namespaces/{limit.tenant}/isolationactions", body):
        return 0  # the one of a pod that had this name is still there
    until = f" until {body['spec']['expires']}" if "expires" in body["spec"] else ""
    message = f"{limit.protocol} limited to {shown(limit.bits)} on {limit.node} by Vigia's isolation{until}"
    say(server, POD, meta, Word("Warning", "NetworkLimited", message), now)
    return 1


def pod_of(server: ApiServer, namespace: str, port: str) -> dict[str, Any] | None:
    """Return the metadata of the pod whose port it is; None if there is none. Raises CloudError."""
    uid = port.partition("/")[0]
    for pod in bounded(server.items(f"/api/v1/namespaces/{namespace}/pods"), MAX_PODS, "pods"):
        if pod["metadata"]["uid"] == uid:
            found: dict[str, Any] = pod["metadata"]
            return found
    return None


def _limit(limit: Limit, now: datetime) -> dict[str, Any]:
    out: dict[str, Any] = {"protocol": limit.protocol, "bitsPerSecond": int(limit.bits)}
    if limit.expires > 0:
        out["expires"] = stamp(now + timedelta(seconds=limit.expires))
    return out


def _go_on(server: ApiServer, item: Any, limit: Limit, now: datetime) -> int:
    """Write what has changed of a limit: another rate, or a later end."""
    spec, new = item["spec"], _limit(limit, now)
    same = all(spec.get(k) == new.get(k) for k in ("protocol", "bitsPerSecond"))
    end = spec.get("expires")
    if same and end is not None and end > stamp(now + timedelta(seconds=limit.expires / 2)):
        return 0
    if same and end is None and "expires" not in new:
        return 0
    meta = item["metadata"]
    server.merge(
        f"/apis/{GROUP}/namespaces/{meta['namespace']}/isolationactions/{meta['name']}", {"spec": new}
    )
    return 1


def _end(server: ApiServer, item: Any, now: datetime) -> None:
    meta = item["metadata"]
    server.remove(f"/apis/{GROUP}/namespaces/{meta['namespace']}/isolationactions/{meta['name']}")
    for owner in meta.get("ownerReferences") or ():
        pod = {"name": owner["name"], "namespace": meta["namespace"], "uid": owner["uid"]}
        say(server, POD, pod, Word("Normal", "NetworkReleased", "limited no longer"), now)
