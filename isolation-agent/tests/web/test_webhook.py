"""The webhook against a hostile world, in process."""

from __future__ import annotations

import gzip
import json
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import EnvironBuilder, run_wsgi_app

from isolation_agent.storage.store import Store

from ..support.world import API_TOKEN, PORT, WEBHOOK_TOKEN, World, payload


def code(world: World, status: int) -> float:
    return world.metric("vigia_agent_webhook_requests_total", code=str(status))


def untouched(world: World) -> bool:
    return world.inbox_depth() == 0 and world.rows() == []


def test_stored_before_it_is_acknowledged(world: World) -> None:
    response = world.post(world.alert(), world.alert("lb1-blue-120", "blue"))
    assert (response.status_code, response.get_json()) == (
        200,
        {"stored": 2, "refused": [], "refused_total": 0},
    )
    with sqlite3.connect(world.dir / "agent.db") as db:  # another connection, as after a crash
        ((body, size),) = db.execute("SELECT body, size FROM inbox").fetchall()
    db.close()
    assert json.loads(body)["version"] == "4"
    assert size == len(body)
    assert code(world, 200) == 1
    world.step()
    assert world.metric("vigia_agent_inbox_depth") == 0


def test_empty_message_is_fine(world: World) -> None:
    assert world.post().status_code == 200
    world.step()
    assert untouched(world)


def test_unknown_fields_are_ignored_everywhere(world: World) -> None:
    message = world.alert() | {"silencedBy": ["x"], "nested": {"a": {"b": 1}}}
    assert world.post(message, newTopLevel=None).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {WEBHOOK_TOKEN}",
        WEBHOOK_TOKEN,
        f"Bearer {WEBHOOK_TOKEN}x",
        f"Bearer {WEBHOOK_TOKEN[:-1]}",
        f"Bearer {WEBHOOK_TOKEN} {WEBHOOK_TOKEN}",
        "Bearer " + "x" * 5000,
        "Bearer \xff\xfe",
    ],
)
def test_without_the_token_nothing_happens(world: World, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    response = world.client.post("/v1/webhook/alertmanager", json=payload(world.alert()), headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert response.get_json()["error"]["code"] == "unauthorized"
    assert untouched(world)
    assert code(world, 401) == 1
    assert "request.refused" in world.audit_events()


def test_api_token_may_not_send_alerts(world: World) -> None:
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    response = world.client.post("/v1/webhook/alertmanager", json=payload(world.alert()), headers=headers)
    assert response.status_code == 403
    assert untouched(world)
    assert code(world, 403) == 1


def test_refusals_do_not_fill_the_audit_log(world: World) -> None:
    for _ in range(50):
        world.client.post("/v1/webhook/alertmanager")
    records = [r for r in world.audit_records() if r["event"] == "request.refused"]
    assert [r["count"] for r in records] == [1]
    world.clock.advance(11)
    world.client.post("/v1/webhook/alertmanager")
    records = [r for r in world.audit_records() if r["event"] == "request.refused"]
    assert [r["count"] for r in records] == [1, 50], "those in between are counted"
    assert code(world, 401) == 51


def test_scheme_is_case_insensitive(world: World) -> None:
    assert (
        world.post_raw(json.dumps(payload()).encode(), Authorization=f"bearer {WEBHOOK_TOKEN}").status_code
        == 200
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"\xff\xfe\x00",
        b'{"version": "4"}',
        b'{"version": "3", "alerts": []}',
        b'{"version": 4, "alerts": []}',
        b'{"version": "4", "alerts": {}}',
        b'{"version": "4", "version": "4", "alerts": []}',
        b'{"version": "4", "alerts": [{"labels": {"port": "a", "port": "b"}}]}',
        b'{"version": "4", "alerts": [], "truncatedAlerts": "many"}',
        b'{"version": "4", "alerts": [], "truncatedAlerts": -1}',
        b'{"version": "4", "alerts": [], "x": NaN}',
        b'{"version": "4", "alerts": [], "x": Infinity}',
        b'{"version": "4", "alerts": [], "x": "\\ud800"}',
        b'{"version": "4", "alerts": [], "x": ' + b"9" * 5000 + b"}",
        b'{"version": "4", "alerts": []} trailing',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"[" * 1_000_000,
    ],
    ids=lambda b: repr(b[:40]),
)
def test_what_is_no_payload_is_refused_whole(world: World, body: bytes) -> None:
    response = world.post_raw(body)
    assert response.status_code == 400
    error = response.get_json()["error"]
    assert error["code"] == "bad_payload"
    assert "\n" not in error["message"]
    assert len(error["message"]) < 500
    assert untouched(world)
    assert code(world, 400) == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"status": "pending"}, "alerts[1].status"),
        ({"status": 1}, "alerts[1].status"),
        ({"labels": []}, "alerts[1].labels"),
        ({"labels": {"a": 1}}, "alerts[1].labels.a"),
        ({"labels": {"a": None}}, "alerts[1].labels.a"),
        ({"labels": {"": "x"}}, "alerts[1].labels"),
        ({"labels": {"a": "x" * 5000}}, "alerts[1].labels.a"),
        ({"labels": {f"l{i}": "x" for i in range(65)}}, "alerts[1].labels"),
        ({"annotations": {"a": {"b": 1}}}, "alerts[1].annotations.a"),
        ({"startsAt": 1767323045}, "alerts[1].startsAt"),
        ({"startsAt": "1767323045"}, "alerts[1].startsAt"),
        ({"startsAt": "yesterday"}, "alerts[1].startsAt"),
        ({"startsAt": "2026-01-02T03:04:05"}, "alerts[1].startsAt"),
        ({"startsAt": "2026-13-02T03:04:05Z"}, "alerts[1].startsAt"),
        ({"startsAt": None}, "alerts[1].startsAt"),
        ({"startsAt": "9999-12-31T23:59:59Z"}, "alerts[1].startsAt"),
        ({"startsAt": "9999-12-31T23:59:59-23:59"}, "alerts[1].startsAt"),
        ({"startsAt": "0001-01-01T00:00:00Z"}, "alerts[1].startsAt"),
        ({"startsAt": "0001-01-01T00:00:00+23:59"}, "alerts[1].startsAt"),
        ({"endsAt": "0001-01-01T00:00:00+23:59"}, "alerts[1].endsAt"),
        ({"endsAt": "9999-12-31T23:59:59Z"}, "alerts[1].endsAt"),
        ({"endsAt": 5}, "alerts[1].endsAt"),
        ({"fingerprint": ""}, "alerts[1].fingerprint"),
        ({"fingerprint": "../etc"}, "alerts[1].fingerprint"),
        ({"fingerprint": 12}, "alerts[1].fingerprint"),
        ({"fingerprint": "f" * 65}, "alerts[1].fingerprint"),
    ],
)
def test_an_alert_that_cannot_be_right_is_refused_alone_and_named(
    world: World, change: dict[str, Any], field: str
) -> None:
    bad = world.alert(**change) if "labels" not in change else world.alert() | change
    world.enforcer.flood(PORT)
    response = world.post(world.alert("lb1-blue-120", "blue"), bad, world.alert())
    assert response.status_code == 202
    answer = response.get_json()
    assert (answer["stored"], answer["refused_total"]) == (2, 1)
    (refused,) = answer["refused"]
    assert refused["position"] == 1
    assert refused["field"].startswith(field)
    assert refused["problem"].startswith(field)
    world.step()
    assert {a["port"] for a in world.actions()} == {PORT, "lb1-blue-120"}, "its neighbours are kept"
    assert world.metric("vigia_agent_alerts_quarantined_total") == 1
    (shown,) = world.api("GET", "/v1/quarantine").get_json()["alerts"]
    assert (shown["field"], shown["problem"], shown["position"]) == (
        refused["field"],
        refused["problem"],
        1,
    )
    assert world.api("GET", "/v1/overview").get_json()["quarantined"] == [shown]
    (record,) = [r for r in world.audit_records() if r["event"] == "alert.quarantined"]
    assert (record["count"], record["problems"]) == (1, [refused["problem"]])
    assert record["message"] == shown["message"]


@pytest.mark.parametrize("field", ["status", "labels", "startsAt", "fingerprint"])
def test_an_alert_without_a_field_is_refused_alone_and_named(world: World, field: str) -> None:
    message = world.alert()
    del message[field]
    response = world.post(message)
    assert response.status_code == 202
    assert response.get_json()["refused"][0]["field"] == f"alerts[0].{field}"
    world.step()
    assert world.rows() == []
    assert code(world, 202) == 1


@pytest.mark.parametrize("alert", [1, None, [], "alert"])
def test_what_is_no_alert_is_refused_alone(world: World, alert: Any) -> None:
    world.enforcer.flood(PORT)
    response = world.post(alert, world.alert())
    assert response.status_code == 202
    assert response.get_json()["refused"][0]["field"] == "alerts[0]"
    world.step()
    assert world.only_action()["state"] == "active"


def test_refused_alerts_are_kept_within_bounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isolation_agent.storage.quarantine.KEPT", 150)
    for _ in range(2):
        bad = [world.alert(startsAt="9999-01-01T00:00:00Z", generatorURL="x" * 5000)] * 300
        answer = world.post(*bad).get_json()
        assert (answer["stored"], answer["refused_total"], len(answer["refused"])) == (0, 300, 100)
        world.step(61)
    assert world.metric("vigia_agent_alerts_quarantined_total") == 600
    shown = world.api("GET", "/v1/quarantine?limit=1000").get_json()["alerts"]
    assert len(shown) == 150, "the newest"
    assert [a["position"] for a in shown[:2]] == [99, 98]
    assert {len(a["content"]) for a in shown} == {2000}
    assert world.inbox_depth() == 0


def test_hostile_names_in_a_refused_alert_stay_on_one_line(world: World) -> None:
    nasty = "a\x00\n\x1b[2J\u202e" + "x" * 200
    response = world.post(world.alert() | {"labels": {nasty: 1}})
    problem = response.get_json()["refused"][0]["problem"]
    assert problem.isascii()
    assert problem.isprintable()
    assert len(problem) < 300
    world.step()
    assert world.api("GET", "/v1/quarantine").get_json()["alerts"][0]["problem"] == problem


@pytest.mark.parametrize("many", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_million_labels(world: World, many: int) -> None:
    labels = {f"l{i}": "x" for i in range(many)}
    response = world.post_raw(json.dumps(payload(world.alert() | {"labels": labels})).encode())
    assert response.status_code in (202, 413)
    world.step()
    assert world.rows() == []


def test_million_alerts_are_refused_before_each_is_looked_at(world: World) -> None:
    body = b'{"version":"4","alerts":[' + b"1," * 999_999 + b"1]}"
    response = world.post_raw(body)
    assert response.status_code == 413
    assert response.get_json()["error"]["field"] == "alerts"
    assert code(world, 413) == 1


def test_body_over_the_limit(world: World) -> None:
    world.extra = {"limits": {"body_bytes": 2048}}
    response = world.post_raw(b" " * 2049)
    assert (response.status_code, response.get_json()["error"]["code"]) == (413, "too_large")
    assert code(world, 413) == 1
    small = json.dumps(payload()).encode()
    assert world.post_raw(small.ljust(2048)).status_code == 200


class Endless:
    """A chunked body that never ends; counts how much of it is read."""

    def __init__(self) -> None:
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        self.given += size if size > 0 else 65_536
        return b" " * (size if size > 0 else 65_536)

    def readline(self, size: int = -1) -> bytes:
        return self.read(size)


def chunked(world: World, stream: Any, headers: dict[str, str]) -> int:
    """Post a body of unknown length as the web server hands it on; returns the status."""
    builder = EnvironBuilder("/v1/webhook/alertmanager", method="POST", headers=headers)
    environ = builder.get_environ()
    builder.close()
    environ.pop("CONTENT_LENGTH", None)
    environ["HTTP_TRANSFER_ENCODING"] = "chunked"
    environ["wsgi.input_terminated"] = True
    environ["wsgi.input"] = stream
    _, status, _ = run_wsgi_app(world.client.application, environ, buffered=True)
    return int(status.split()[0])


def test_endless_chunked_body(world: World) -> None:
    world.extra = {"limits": {"body_bytes": 65_536}}
    stream = Endless()
    assert chunked(world, stream, {"Authorization": f"Bearer {WEBHOOK_TOKEN}"}) == 413
    assert stream.given < 1 << 20


def test_body_is_not_read_without_the_token(world: World) -> None:
    stream = Endless()
    assert chunked(world, stream, {}) == 401
    assert stream.given == 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "gzip, identity", "zstd"])
def test_compressed_bodies_are_refused(world: World, encoding: str) -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    response = world.post_raw(bomb, **{"Content-Encoding": encoding})
    assert response.status_code == 415
    assert "uncompressed" in response.get_json()["error"]["message"]
    assert untouched(world)


def test_identity_encoding_is_none(world: World) -> None:
    assert (
        world.post_raw(json.dumps(payload()).encode(), **{"Content-Encoding": "identity"}).status_code == 200
    )


def test_content_type_does_not_matter(world: World) -> None:
    body = json.dumps(payload()).encode()
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"):
        assert world.post_raw(body, **{"Content-Type": kind}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_methods(world: World, method: str) -> None:
    response = world.client.open("/v1/webhook/alertmanager", method=method)
    assert response.status_code == 405
    assert response.get_json()["error"]["code"] == "method_not_allowed"


# Nowhere to store


def test_full_inbox_is_503_and_comes_back(world: World) -> None:
    world.extra = {"limits": {"inbox_messages": 2}}
    assert [world.post(world.alert()).status_code for _ in range(3)] == [200, 200, 503]
    response = world.post(world.alert())
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    assert response.get_json()["error"]["code"] == "inbox_full"
    assert code(world, 503) == 2
    world.step()
    assert world.post(world.alert()).status_code == 200


def test_inbox_is_bounded_in_bytes(world: World) -> None:
    world.extra = {"limits": {"inbox_bytes": 4000}}
    big = world.alert(annotations={"text": "x" * 2500})
    assert [world.post(big).status_code for _ in range(2)] == [200, 503]


@pytest.fixture
def impatient(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose database waits a moment only for another writer."""
    opened = Store.__init__

    def brief(self: Store, url: str, **options: Any) -> None:
        opened(self, url, **{"busy_timeout": 0.05} | options)

    monkeypatch.setattr(Store, "__init__", brief)
    yield world


def test_database_that_cannot_be_written_is_503(impatient: World) -> None:
    world = impatient
    assert world.post().status_code == 200
    blocker = sqlite3.connect(world.dir / "agent.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    response = world.post(world.alert())
    assert response.status_code == 503
    assert response.get_json()["error"]["code"] == "storage"
    assert "locked" not in response.text, "how it fails is for the log"
    blocker.execute("ROLLBACK")
    blocker.close()
    assert world.post(world.alert()).status_code == 200
    assert code(world, 503) == 1


def test_full_disk_is_503_and_nothing_is_done(world: World) -> None:
    world.flood()
    with world.agent.store.write() as session:
        pages = session.connection().exec_driver_sql("PRAGMA page_count").scalar_one()
    for _ in range(6):  # every pooled connection has the limit of its own
        with world.agent.store.write() as session:
            session.connection().exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    response = world.post(world.alert("lb1-blue-120", "blue", annotations={"text": "x" * 4000}))
    assert response.status_code == 503
    assert response.headers["Retry-After"]
    assert len(world.actions()) == 1


def test_messages_at_once_are_all_stored(world: World) -> None:
    statuses: list[int] = []
    _ = world.agent

    def send() -> None:
        for _ in range(5):
            statuses.append(world.post(world.alert()).status_code)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 30
    assert world.inbox_depth() == 30
    world.step()
    assert len(world.only_action()["reasons"]) == 1
    assert world.metric("vigia_agent_alerts_total", outcome="duplicate", status="firing") == 29


def test_truncated_messages_are_taken_and_noted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert(), truncatedAlerts=7)
    world.step()
    assert any("truncated" in r.message for r in caplog.records)
    assert world.enforcer.limit_of(PORT) is not None
