"""People approve by annotations, through servers that answer as an API server and as the isolation agent do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from vigia_config import ConfigError, load
from vigia_identity.config import Config
from vigia_identity.guarantees.approvals import BY, COMMENT, VERDICT
from vigia_identity.guarantees.keeper import AWAITS
from vigia_identity.looker import Looker

Cloud = Any  # of conftest.py

HERE = "/apis/vigia.internal/v1alpha1/namespaces/vigia/isolationactions"
TENANTS = "/apis/vigia.internal/v1alpha1/namespaces/red/isolationactions"
ALL = "/apis/vigia.internal/v1alpha1/isolationactions"
EVENTS = "/api/v1/namespaces/vigia/events"
ID = "7d444840-9dc0-41d1-b245-5ffdce74fad2"
OTHER = "11111111-2222-4333-8444-555555555555"
TOKEN = "approver-token-of-the-agent"


def action(name: str = ID, **extra: Any) -> dict[str, Any]:
    """An action as the agent's API shows it."""
    limit = {"protocol": "udp", "rate_bytes_per_second": 5_000_000, "ttl_seconds": 15.0}
    return {
        "id": name,
        "node": "node1",
        "port": "u-web/eth0",
        "tenant": "red",
        "level": "L2",
        "reason": "cap all but TCP; policy udp asks for a person's approval",
        "created_at": "2026-01-31T12:00:00Z",
        "limit": limit,
        "revert_requested_by": None,
        **extra,
    }


class Agent:
    """What the isolation agent's API does with verdicts: each key is answered once and again alike."""

    def __init__(self) -> None:
        self.waiting: dict[str, dict[str, Any]] = {}
        self.token = TOKEN
        self.verdicts: list[tuple[str, str, dict[str, str]]] = []
        """What it took: action, verdict and what was said."""
        self.answered: dict[str, tuple[int, Any]] = {}
        self.requests: list[str] = []
        self.raw: tuple[int, bytes] | None = None
        """Answered to everything."""
        self.url = ""

    def decide(self, path: str, key: str, body: dict[str, str]) -> tuple[int, Any]:
        if key in self.answered:
            return self.answered[key]
        name, _, verdict = path.rpartition("/")[2].partition(":")
        if name in self.waiting:
            self.verdicts.append((name, verdict, body))
            answer: tuple[int, Any] = 202, self.waiting.pop(name)
        else:
            said = {"code": "not_possible", "message": "the action does not wait for approval; it is active"}
            answer = 409, {"error": said}
        self.answered[key] = answer
        return answer


def handler(agent: Agent) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

        def say(self, status: int, body: Any) -> None:
            raw = json.dumps(body).encode()
            if agent.raw is not None:
                status, raw = agent.raw
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def lets_in(self) -> bool:
            agent.requests.append(f"{self.command} {self.path}")
            if self.headers["Authorization"] == f"Bearer {agent.token}":
                return True
            self.say(401, {"error": {"code": "unauthorized", "message": "no"}})
            return False

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            if self.lets_in():
                assert query == {"state": ["pending_approval"], "open": ["true"], "limit": ["1000"]}
                self.say(200, {"actions": list(agent.waiting.values()), "next_before": None})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.lets_in():
                self.say(*agent.decide(self.path, self.headers["Idempotency-Key"], body))

    return Handler


@pytest.fixture
def agent() -> Iterator[Agent]:
    known = Agent()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(known))
    server.daemon_threads = True
    known.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield known
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def config(cloud: Cloud, agent: Agent, tmp_path: Path) -> Path:
    cloud.namespaces = [{"metadata": {"name": "red", "annotations": None}}]
    cloud.page = 500
    pod = {"metadata": {"name": "web", "namespace": "red", "uid": "u-web"}}
    cloud.objects = {HERE: [], "/api/v1/namespaces/red/pods": [pod]}
    (tmp_path / "token").write_text(cloud.namespace_token)
    (tmp_path / "approver").write_text(f"{TOKEN}\n")
    approvals = {"agent": agent.url, "token_file": str(tmp_path / "approver")}
    site = {
        "namespace": "vigia",
        "services": ["enforcer"],
        "config_map": "vigia-site",
        "approvals": approvals,
    }
    kubernetes = {"url": cloud.url, "token_file": str(tmp_path / "token"), "ca_file": None, "site": site}
    path = tmp_path / "identity.yaml"
    path.write_text(
        yaml.safe_dump({"tenants_file": str(tmp_path / "tenants.yaml"), "kubernetes": kubernetes})
    )
    return path


@pytest.fixture
def looker(config: Path) -> Looker:
    return Looker(load(config, Config))


def shown(name: str = ID, **annotations: str) -> dict[str, Any]:
    """The object of an action that waits, as vigia-identity made it and somebody annotated it."""
    meta = {"name": name, "namespace": "vigia", "uid": f"uid-{name}", "resourceVersion": "42"}
    meta |= {"labels": {AWAITS: "approval"}, "annotations": annotations or None}
    return {"metadata": meta, "spec": {"pod": "web"}}


def said(verdict: str = "approve", by: str = "alice@example.org", comment: str = "seen") -> dict[str, str]:
    return {VERDICT: verdict, BY: by, COMMENT: comment}


def removed(cloud: Cloud) -> list[str]:
    return [path for method, path, _ in cloud.changed if method == "DELETE"]


def events(cloud: Cloud) -> list[tuple[str, str]]:
    return [(b["reason"], b["message"]) for _, path, b in cloud.changed if path == EVENTS]


def test_what_waits_is_an_object_of_vigias_own_namespace(looker: Looker, cloud: Cloud, agent: Agent) -> None:
    agent.waiting = {ID: action()}
    assert looker.once()
    ((method, path, made),) = cloud.changed
    assert (method, path) == ("POST", HERE), "and not of the tenant's, who would annotate it"
    assert made["metadata"] == {"name": ID, "namespace": "vigia", "labels": {AWAITS: "approval"}}
    assert made["spec"] == {
        "tenant": "red",
        "pod": "web",
        "port": "u-web/eth0",
        "node": "node1",
        "since": "2026-01-31T12:00:00Z",
        "level": "L2",
        "reason": "cap all but TCP; policy udp asks for a person's approval",
        "bitsPerSecond": 40_000_000,
    }
    cloud.objects[HERE] = [shown()]
    assert looker.once()
    assert len(cloud.changed) == 1, "it is shown once"
    assert agent.verdicts == []


@pytest.mark.parametrize(("verdict", "reason"), [("approve", "Approved"), ("reject", "Rejected")])
def test_a_verdict_is_passed_on_with_who_gave_it(
    looker: Looker, cloud: Cloud, agent: Agent, verdict: str, reason: str
) -> None:
    agent.waiting = {ID: action(), OTHER: action(OTHER)}
    cloud.objects[HERE] = [shown(**said(verdict)), shown(OTHER)]
    assert looker.once()
    comment = f"seen (annotation of IsolationAction vigia/{ID}, version 42)"
    assert agent.verdicts == [(ID, verdict, {"decided_by": "alice@example.org", "comment": comment})]
    assert events(cloud) == [(reason, "by alice@example.org, which the isolation agent has taken")]
    assert removed(cloud) == [f"{HERE}/{ID}"]


def test_a_verdict_counts_once_over_restarts(config: Path, cloud: Cloud, agent: Agent) -> None:
    """Whatever fails between the agent's answer and the end of the object."""
    agent.waiting = {ID: action()}
    cloud.objects[HERE] = [shown(**said())]
    cloud.forbidden = {f"POST {EVENTS}"}
    assert not Looker(load(config, Config)).once()
    assert len(agent.verdicts) == 1 and removed(cloud) == []
    cloud.forbidden = {f"DELETE {HERE}/{ID}"}
    assert not Looker(load(config, Config)).once()
    cloud.forbidden.clear()
    assert Looker(load(config, Config)).once()
    assert len(agent.verdicts) == 1
    assert {reason for reason, _ in events(cloud)} == {"Approved"}, "it is no verdict that comes too late"
    assert removed(cloud)[-1] == f"{HERE}/{ID}"


def test_a_verdict_of_before_is_none_of_what_waits_again(looker: Looker, cloud: Cloud, agent: Agent) -> None:
    """A guard may have suppressed what was approved: then a person has to look again."""
    agent.waiting = {ID: action()}
    cloud.objects[HERE] = [shown(**said())]
    assert looker.once()
    agent.waiting = {ID: action()}
    assert looker.once(), "the object could not be taken away yet"
    assert len(agent.verdicts) == 1
    cloud.objects[HERE], cloud.changed = [], []
    assert looker.once()
    assert [(m, p) for m, p, _ in cloud.changed] == [("POST", HERE)]
    fresh = shown(**said())
    fresh["metadata"]["uid"] = "uid-of-the-second"
    cloud.objects[HERE] = [fresh]
    assert looker.once()
    assert len(agent.verdicts) == 2


def test_a_verdict_that_comes_too_late_says_so(looker: Looker, cloud: Cloud, agent: Agent) -> None:
    cloud.objects[HERE] = [shown(**said())]
    assert looker.once()
    ((reason, message),) = events(cloud)
    assert reason == "TooLate" and message.endswith("the action does not wait for approval; it is active")
    assert removed(cloud) == [f"{HERE}/{ID}"]


def test_what_waits_no_more_goes(looker: Looker, cloud: Cloud, agent: Agent) -> None:
    cloud.objects[HERE] = [shown(), shown(OTHER)]
    agent.waiting = {OTHER: action(OTHER)}
    assert looker.once()
    assert removed(cloud) == [f"{HERE}/{ID}"] and events(cloud) == []


def test_what_somebody_else_has_rejected_waits_no_more(looker: Looker, cloud: Cloud, agent: Agent) -> None:
    """It is over a moment later."""
    agent.waiting = {ID: action(revert_requested_by="api@10.0.0.1")}
    assert looker.once()
    assert cloud.changed == []


def test_a_tenant_approves_nothing_in_its_own_namespace(looker: Looker, cloud: Cloud, agent: Agent) -> None:
    agent.waiting = {ID: action()}
    cloud.objects[HERE] = [shown()]
    forged = shown(**said())
    forged["metadata"]["namespace"] = "red"
    cloud.objects |= {TENANTS: [forged], ALL: [forged]}
    assert looker.once()
    assert agent.verdicts == [] and cloud.changed == []
    gets = [a for a in cloud.asked if a.startswith("GET ")]
    asked = [q for path, q in zip(gets, cloud.queries, strict=True) if path == f"GET {HERE}"]
    assert [q["labelSelector"] for q in asked] == [[f"{AWAITS}=approval"]]


@pytest.mark.parametrize("by", ["", " \t", None])
def test_a_verdict_of_nobody_is_none(
    looker: Looker, cloud: Cloud, agent: Agent, by: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    marks = {VERDICT: "approve"} | ({BY: by} if by is not None else {})
    agent.waiting = {ID: action(), OTHER: action(OTHER)}
    cloud.objects[HERE] = [shown(**marks), shown(OTHER, **said())]
    assert not looker.once()
    assert [name for name, _, _ in agent.verdicts] == [OTHER], "others are not held up"
    (warning,) = (r for r in caplog.records if r.levelname == "WARNING")
    assert "install the chart's ValidatingAdmissionPolicy" in warning.err  # type: ignore[attr-defined]


@pytest.mark.parametrize("verdict", ["", "yes", "APPROVE", "revert", "approve\n"])
def test_what_is_no_verdict_decides_nothing(looker: Looker, cloud: Cloud, agent: Agent, verdict: str) -> None:
    agent.waiting = {ID: action()}
    cloud.objects[HERE] = [shown(**said(verdict))]
    assert looker.once()
    assert agent.verdicts == [] and cloud.changed == []


def test_what_people_write_is_bounded(looker: Looker, cloud: Cloud, agent: Agent) -> None:
    agent.waiting = {ID: action(reason="r" * 5000)}
    cloud.objects[HERE] = [shown(**said(by="b\n" * 9999, comment="\x00c" * 9999))]
    assert looker.once()
    ((_, _, body),) = agent.verdicts
    assert body["decided_by"] == "b" * 180
    assert body["comment"].startswith("c" * 200 + " (") and len(body["comment"]) <= 500
    agent.waiting, cloud.objects[HERE] = {ID: action(reason="r" * 5000)}, []
    assert looker.once()
    assert cloud.changed[-1][2]["spec"]["reason"] == "r" * 1000


@pytest.mark.parametrize(
    ("tenant", "port"), [("red", "tap0"), ("red", "u-gone/eth0"), ("../blue", "u/eth0"), ("red", "a/b/c")]
)
def test_a_port_that_is_no_pods_is_shown_as_it_is(
    looker: Looker, cloud: Cloud, agent: Agent, tenant: str, port: str
) -> None:
    agent.waiting = {ID: action(tenant=tenant, port=port, limit=None)}
    assert looker.once()
    spec = cloud.changed[-1][2]["spec"]
    assert (spec["pod"], spec["port"], "bitsPerSecond" in spec) == (port, port, False)
    assert not any("blue" in path for path in cloud.asked)


def test_names_that_are_no_ids_are_no_objects(looker: Looker, cloud: Cloud, agent: Agent) -> None:
    agent.waiting = {"x": action("../../secrets"), "y": action("X" * 36)}
    assert looker.once()
    assert cloud.changed == []


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ((503, b"{}"), "503"),
        ((403, b"{}"), "auth.users with the role approver"),
        ((200, b"{"), "not as documented"),
        ((200, b'{"actions": [{}]}'), "not as documented"),
        ((200, b'{"actions": 7}'), "not as documented"),
    ],
)
def test_an_agent_that_fails_stops_nothing_else(
    looker: Looker,
    cloud: Cloud,
    agent: Agent,
    caplog: pytest.LogCaptureFixture,
    raw: tuple[int, bytes],
    says: str,
) -> None:
    agent.raw = raw
    cloud.objects[HERE] = [shown(**said())]
    assert not looker.once()
    assert cloud.config_map["data"]["tenants.yaml"], "the rest is written"
    assert removed(cloud) == [] and agent.verdicts == []
    (record,) = [r for r in caplog.records if r.message == "cannot pass on what people approve"]
    assert says in record.err  # type: ignore[attr-defined]
    agent.raw, agent.waiting = None, {ID: action()}
    assert looker.once()
    assert len(agent.verdicts) == 1


def test_a_wrong_token_is_said_with_its_fix_and_not_shown(
    looker: Looker, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    agent.token = "another"
    assert not looker.once()
    (record,) = [r for r in caplog.records if r.message == "cannot pass on what people approve"]
    assert "401" in record.err and "role approver" in record.err  # type: ignore[attr-defined]
    assert TOKEN not in caplog.text + str([r.__dict__ for r in caplog.records])


@pytest.mark.parametrize("url", ["", "vigia:9874", "http://a:b@vigia", "ftp://vigia"])
def test_a_wrong_url_is_refused(config: Path, url: str) -> None:
    content = yaml.safe_load(config.read_text())
    content["kubernetes"]["site"]["approvals"]["agent"] = url
    config.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"approvals\.agent.*http://vigia-isolation-agent:9874"):
        load(config, Config)
