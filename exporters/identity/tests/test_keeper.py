"""What the cluster is told of guarantees and limits, object by object."""

from __future__ import annotations

import queue
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from vigia_identity import looker
from vigia_identity.guarantees.contracts import Bandwidth, Bought, Contract, Guarantee, contracts_text
from vigia_identity.guarantees.keeper import ACTIONS, AWAITS, tell_guarantees, tell_limits
from vigia_identity.guarantees.nodes import InForce, Limit
from vigia_testing import DEADLINE

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
STAMP = "2026-01-31T12:00:00Z"


@dataclass
class Server:
    """An API server's lists, and what is done to its objects."""

    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    done: list[tuple[str, str, Any]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    """Names of objects that are there and not listed."""

    def items(self, path: str, **query: str) -> Iterator[Any]:
        waits = query.get("labelSelector") == f"!{AWAITS}"
        for item in self.lists.get(path, []):
            if not (waits and AWAITS in (item["metadata"].get("labels") or {})):
                yield item

    def merge(self, path: str, change: Any) -> None:
        self.done.append(("merge", path, change))

    def create(self, path: str, item: Any) -> bool:
        name = item["metadata"].get("name")
        if name in self.taken:
            return False
        self.done.append(("create", path, item))
        return True

    def remove(self, path: str) -> None:
        self.done.append(("remove", path, None))

    def events(self) -> list[tuple[str, str]]:
        return [
            (b["type"], b["reason"]) for verb, p, b in self.done if verb == "create" and p.endswith("/events")
        ]


def of(port: str = "", rate: int = 8_000_000) -> Contract:
    return Contract("red", port, Bandwidth(rate, rate), Bandwidth(2 * rate, 2 * rate))


def guarantee(*contracts: Contract, status: Any = None, generation: int = 1, problem: str = "") -> Guarantee:
    meta = {"name": "web", "namespace": "red", "uid": "u", "generation": generation}
    item = {"metadata": meta, "spec": {}, "status": status}
    reason = "Conflict" if problem else "Accepted"
    return Guarantee(item, problem, reason, list(contracts))


def having(*ports: str, rate: float = 8e6) -> InForce:
    rates = {"from_tenant": rate, "to_tenant": 2 * rate}
    return InForce(nodes={"n1"}, guarantees={("red", p): rates for p in ports})


def tell(one: Guarantee, inforce: InForce, now: datetime = NOW) -> Server:
    server = Server()
    tell_guarantees(server, Bought([one]), inforce, now)  # type: ignore[arg-type]
    return server


def status_of(server: Server) -> dict[str, Any]:
    (status,) = [b["status"] for verb, _, b in server.done if verb == "merge"]
    return dict(status)


def test_a_condition_keeps_its_time_while_it_stays() -> None:
    first = status_of(tell(guarantee(of("a/eth0")), having("a/eth0")))
    assert [c["lastTransitionTime"] for c in first["conditions"]] == [STAMP, STAMP]
    later = NOW + timedelta(hours=1)
    server = tell(guarantee(of("a/eth0"), status=first), having(), later)
    second = status_of(server)
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert times == {"Accepted": STAMP, "Applied": "2026-01-31T13:00:00Z"}
    assert server.events() == [("Warning", "NotInForce")], "only what has changed"


def test_nothing_is_written_that_is_there_already() -> None:
    first = status_of(tell(guarantee(of("a/eth0")), having("a/eth0")))
    assert tell(guarantee(of("a/eth0"), status=first), having("a/eth0"), NOW + timedelta(days=1)).done == []
    again = tell(guarantee(of("a/eth0"), status=first, generation=2), having("a/eth0"))
    assert status_of(again)["observedGeneration"] == 2 and again.events() == []


@pytest.mark.parametrize(
    ("rate", "applied"), [(8e6, 1), (8e6 - 7, 1), (8.07e6, 1), (8.2e6, 0), (7.9e6, 0), (0.0, 0)]
)
def test_a_guarantee_that_was_rounded_is_the_same(rate: float, applied: int) -> None:
    assert status_of(tell(guarantee(of("a/eth0")), having("a/eth0", rate=rate)))["applied"] == applied


def test_one_direction_alone_is_not_in_force() -> None:
    half = InForce(nodes={"n1"}, guarantees={("red", "a/eth0"): {"from_tenant": 8e6}})
    assert status_of(tell(guarantee(of("a/eth0")), half))["applied"] == 0


def test_of_a_whole_namespace_those_count_that_have_it() -> None:
    inforce = having("a/eth0", "b/eth0")
    inforce.guarantees["red", "own/eth0"] = {"from_tenant": 1.0, "to_tenant": 1.0}
    inforce.guarantees["blue", "c/eth0"] = {"from_tenant": 8e6, "to_tenant": 16e6}
    status = status_of(tell(guarantee(of()), inforce))
    assert (status["selected"], status["applied"]) == (2, 2)
    assert status["conditions"][1]["message"] == "in force at 2 ports"


def test_without_pods_it_is_in_force_nowhere() -> None:
    status = status_of(tell(guarantee(), having()))
    assert (status["selected"], status["applied"], status["conditions"][1]["status"]) == (0, 0, "False")


def test_what_is_not_accepted_says_why() -> None:
    server = tell(guarantee(problem="another is older"), having())
    accepted = status_of(server)["conditions"][0]
    assert (accepted["status"], accepted["reason"], accepted["message"]) == (
        "False",
        "Conflict",
        "another is older",
    )
    assert ("Warning", "Conflict") in server.events()


def test_nobody_is_told_of_what_nobody_knows() -> None:
    server = tell(guarantee(of("a/eth0")), InForce())
    assert status_of(server)["conditions"][1]["status"] == "Unknown"
    assert server.events() == [("Normal", "Accepted")]


# Limits


def limit(port: str = "u-web/eth0", bits: float = 8e6, expires: float = 30.0, tenant: str = "red") -> Limit:
    return Limit("n1", port, tenant, "udp", bits, expires)


def action(
    bits: int = 8_000_000, expires: str | None = "2026-01-31T12:00:30Z", node: str = "n1"
) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u-web"}
    spec = {
        "pod": "web",
        "port": "u-web/eth0",
        "node": node,
        "since": STAMP,
        "protocol": "udp",
        "bitsPerSecond": bits,
    }
    if expires:
        spec["expires"] = expires
    return {"metadata": {"name": "web", "namespace": "red", "ownerReferences": [owner]}, "spec": spec}


def limits(server: Server, *found: Limit, now: datetime = NOW) -> int:
    return tell_limits(server, InForce(nodes={"n1"}, limits=list(found)), now)  # type: ignore[arg-type]


def pods(namespace: str, *names: str) -> dict[str, list[dict[str, Any]]]:
    listed = [{"metadata": {"name": n, "namespace": namespace, "uid": f"u-{n}"}} for n in names]
    return {f"/api/v1/namespaces/{namespace}/pods": listed}


def test_pods_of_one_name_in_two_namespaces_are_two_actions() -> None:
    server = Server(pods("red", "web", "db") | pods("blue", "web"))
    assert limits(server, limit(), limit(tenant="blue")) == 2
    made = [p for verb, p, _ in server.done if verb == "create" and p.endswith("isolationactions")]
    assert made == [
        "/apis/vigia.internal/v1alpha1/namespaces/blue/isolationactions",
        "/apis/vigia.internal/v1alpha1/namespaces/red/isolationactions",
    ]


@pytest.mark.parametrize("port", ["p-red", "a/b/c", ""])
def test_ports_that_are_no_pods_are_no_actions(port: str) -> None:
    server = Server(pods("red", "web"))
    assert limits(server, limit(port)) == 0 and server.done == []


def test_a_limit_without_an_end_says_none() -> None:
    server = Server(pods("red", "web"))
    limits(server, limit(expires=0.0))
    spec = server.done[0][2]["spec"]
    assert "expires" not in spec
    assert "until" not in server.done[1][2]["message"]
    server = Server({ACTIONS: [action(expires=None)]})
    assert limits(server, limit(expires=0.0)) == 0


@pytest.mark.parametrize(
    ("after", "changed"), [(0, 0), (14, 0), (16, 1), (300, 1)], ids=["now", "soon", "half over", "long over"]
)
def test_a_later_end_is_written_when_half_of_the_time_is_over(after: int, changed: int) -> None:
    server = Server({ACTIONS: [action()]})
    now = NOW + timedelta(seconds=after)
    assert limits(server, limit(), now=now) == changed
    if changed:
        ((verb, _, body),) = server.done
        ends = datetime.strptime(body["spec"]["expires"], "%Y-%m-%dT%H:%M:%S%z")
        assert verb == "merge" and ends == now + timedelta(seconds=30)


def test_an_action_of_a_node_that_does_not_answer_stays() -> None:
    server = Server({ACTIONS: [action(node="n2")]})
    assert limits(server) == 0 and server.done == []


def test_what_waits_for_a_person_is_no_limit_that_is_over() -> None:
    waiting = action()
    waiting["metadata"]["labels"] = {AWAITS: "approval"}
    server = Server({ACTIONS: [waiting]})
    assert limits(server) == 0 and server.done == []


def test_an_action_that_is_over_is_taken_away_and_the_pod_told() -> None:
    server = Server({ACTIONS: [action()]})
    assert limits(server) == 1
    assert server.done[0][:2] == (
        "remove",
        "/apis/vigia.internal/v1alpha1/namespaces/red/isolationactions/web",
    )
    assert server.events() == [("Normal", "NetworkReleased")]


def test_a_pod_that_came_back_under_its_name_gets_an_action_when_the_old_one_is_gone() -> None:
    server = Server({ACTIONS: [action()], **pods("red", "web")})
    server.lists[ACTIONS][0]["spec"]["port"] = "u-old/eth0"
    assert limits(server, limit()) == 2
    assert [verb for verb, p, _ in server.done if "isolationactions" in p] == ["remove", "create"]
    server = Server(pods("red", "web"), taken={"web"})
    assert limits(server, limit()) == 0
    assert server.done == [], "nobody is told of what is not there yet"


# The rest


def test_contracts_are_as_enforcers_read_them() -> None:
    text = contracts_text([Contract("red", "", Bandwidth(1000, 2000, 7), Bandwidth(3000, 3000), 9)])
    assert yaml.safe_load(text) == {
        "version": 1,
        "contracts": [
            {
                "tenant": "red",
                "guarantee": "1000bit",
                "ceiling": "2000bit",
                "packets_per_second": 7,
                "receive": {"guarantee": "3000bit", "ceiling": "3000bit"},
                "new_flows_per_second": 9,
            }
        ],
    }


@pytest.mark.parametrize(
    ("waiting", "found"),
    [
        ([], looker.CHANGED),
        ([looker.CHANGED] * 3, looker.CHANGED),
        ([looker.CHANGED, signal.SIGHUP, looker.CHANGED], signal.SIGHUP),
        ([looker.CHANGED, signal.SIGTERM], signal.SIGTERM),
    ],
)
def test_a_signal_does_not_wait_for_enforcers(waiting: list[int], found: int) -> None:
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in waiting:
        signals.put(number)
    # Without a signal all of the time is waited for.
    assert looker._applied(signals, 0.05 if found == looker.CHANGED else DEADLINE) == found
