"""What people do: sign in, approve, reject, begin, revert all; and what a key or a forged page cannot do."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from isolation_agent.web.app import create_app
from isolation_agent.web.backoff import Backoff

from ..support.world import API_TOKEN, GUARANTEE, PORT, FakeClock, World, events, policy, secret

COOKIE = "vigia_session"


def browser(world: World) -> FlaskClient:
    return create_app(world.agent).test_client()


def sign_in(world: World, token: str = API_TOKEN) -> tuple[FlaskClient, dict[str, str]]:
    client = browser(world)
    answer = client.post("/v1/session", json={"token": token})
    assert answer.status_code == 201, answer.text
    return client, {"X-CSRF-Token": answer.get_json()["csrf"]}


def pending(world: World, **extra: Any) -> dict[str, Any]:
    world.policies = [policy(match={"alertname": "VigiaUdpFlood"})]
    action = world.flood(labels={"isolate": "approve"}, **extra)
    assert action["state"] == "pending_approval"
    assert world.enforcer.count("apply") == 0
    return action


# Approval


def decide(world: World, token: str, action: dict[str, Any], verb: str, **body: Any) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "object-1"}
    return world.client.post(f"/v1/actions/{action['id']}:{verb}", json=body, headers=headers)


@pytest.mark.parametrize(("verb", "verdict"), [("approve", "approved"), ("reject", "rejected")])
def test_who_passes_a_verdict_on_is_recorded_beside_who_gave_it(
    world: World, verb: str, verdict: str
) -> None:
    token = world.add_user("approver", "kubernetes")
    action = pending(world)
    body = {"decided_by": "alice@example.org", "comment": "seen"}
    assert decide(world, token, action, verb, **body).status_code == 202
    world.crash()
    again = decide(world, token, action, verb, **body)
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (202, "true")
    world.step(1)
    (approval,) = world.only_action()["approvals"]
    who = "alice@example.org by kubernetes@127.0.0.1"
    assert (approval["who"], approval["verdict"], approval["comment"]) == (who, verdict, "seen")
    records = [r for r in world.audit_records() if r["event"] == f"action.{verdict}"]
    assert [r["actor"] for r in records] == [who]
    assert (world.enforcer.limit_of(PORT) is not None) == (verb == "approve")


@pytest.mark.parametrize(
    "body", [{"decided_by": "x" * 181}, {"decided_by": "a\nb"}, {"decided_by": 7}, {"decided_by": "x" * 180}]
)
def test_a_name_that_cannot_be_recorded_decides_nothing(world: World, body: dict[str, Any]) -> None:
    token = world.add_user("approver", "k" * 100)
    action = pending(world)
    answer = decide(world, token, action, "approve", **body)
    assert (answer.status_code, answer.get_json()["error"]["field"]) == (400, "decided_by")
    assert world.only_action()["state"] == "pending_approval"


def test_an_approved_action_is_applied_and_says_by_whom(world: World) -> None:
    action = pending(world)
    response = world.api("POST", f"/v1/actions/{action['id']}:approve", json={"comment": "seen"})
    assert response.status_code == 202
    assert response.get_json()["state"] == "approved"
    world.step(1)
    action = world.only_action()
    assert (action["state"], action["approved_by"]) == ("active", "api@127.0.0.1")
    (verdict,) = action["approvals"]
    assert (verdict["verdict"], verdict["comment"]) == ("approved", "seen")
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    assert limit.rate == GUARANTEE
    record = next(r for r in world.audit_records() if r["event"] == "action.approved")
    assert record["actor"] == "api@127.0.0.1"
    assert world.metric("vigia_agent_approvals_total", verdict="approved") == 1


def test_a_rejected_action_ends_and_its_alert_does_not_start_it_again(world: World) -> None:
    action = pending(world)
    assert world.api("POST", f"/v1/actions/{action['id']}:reject", json={}).status_code == 202
    world.run(60, each=5)
    assert world.only_action()["cause"] == "rejected"
    of = {"state": "pending_approval"}  # which it stays, as it never became anything else
    assert [len(world.actions(**of, open=o)) for o in ("true", "false")] == [0, 1]
    assert world.enforcer.count("apply") == 0


def test_nobody_answers(world: World) -> None:
    world.policies = [policy(approval=True, approval_timeout="60s")]
    world.flood()
    world.run(50, each=5)
    assert world.only_action()["ended_at"] is None
    world.run(20, each=5)
    again, first = world.actions()
    assert first["cause"] == "unanswered"
    assert again["state"] == "pending_approval", "the flood goes on, so somebody is asked again"


def test_a_step_of_the_wall_clock_does_not_time_out_an_approval(world: World) -> None:
    world.policies = [policy(approval=True)]
    world.flood()
    world.clock.wall += (world.clock.now() - world.clock.wall.replace(year=2025)) / 8760
    world.step(1)
    assert world.only_action()["state"] == "pending_approval"


def test_the_alert_ends_before_anybody_decides(world: World) -> None:
    pending(world)
    message = world.alert(labels={"isolate": "approve"})
    message["startsAt"] = world.only_action()["reasons"][0]["starts_at"]
    world.post(message | {"status": "resolved"})
    world.step(1)
    assert world.only_action()["cause"] == "resolved"


def test_the_guards_are_asked_once_more(world: World) -> None:
    action = pending(world)
    world.api("PUT", "/v1/killswitch", json={"on": True})
    world.api("POST", f"/v1/actions/{action['id']}:approve", json={})
    world.step(1)
    assert (world.only_action()["state"], world.only_action()["guard"]) == ("suppressed", "kill_switch")
    assert world.only_action()["approved_by"] is None, "a person has to look again"
    assert world.enforcer.count("apply") == 0


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_verdict_counts_once(world: World, verb: str) -> None:
    action = pending(world)
    path = f"/v1/actions/{action['id']}"
    assert world.api("POST", f"{path}:{verb}", json={}).status_code == 202
    for again in ("approve", "reject"):
        response = world.api("POST", f"{path}:{again}", json={})
        assert response.status_code == 409
        assert response.get_json()["error"]["code"] == "not_possible"


def test_death_between_approval_and_application(world: World) -> None:
    action = pending(world)
    world.api("POST", f"/v1/actions/{action['id']}:approve", json={})
    world.crash()
    world.step(1)
    assert world.only_action()["state"] == "active"


# By hand


def order(**extra: Any) -> dict[str, Any]:
    return {"node": "lb1", "port": PORT, "tenant": "red", "reason": "asked for by the customer", **extra}


def test_an_action_by_hand_lasts_as_long_as_was_asked(world: World) -> None:
    response = world.api("POST", "/v1/actions", json=order(seconds=60))
    assert response.status_code == 202, response.text
    world.step()
    assert world.only_action()["state"] == "active"
    assert world.only_action()["policy"] == "_manual"
    world.run(50, each=5)
    assert world.only_action()["state"] == "active"
    world.run(60, each=2)
    assert world.only_action()["state"] == "reverted"
    assert events(world.only_action())[0] == "begun_by_hand"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"tenant": "blue"}, "failed"),
        ({"port": "nowhere"}, "failed"),
        ({"port": "lb1-infra-1", "tenant": "_infra"}, "failed"),
    ],
)
def test_the_guards_hold_for_people_too(world: World, change: dict[str, str], status: str) -> None:
    assert world.api("POST", "/v1/actions", json=order(**change)).status_code == 202
    world.step()
    assert world.only_action()["state"] == status
    assert world.enforcer.count("apply") == 0


def test_one_limit_per_port(world: World) -> None:
    world.flood()
    response = world.api("POST", "/v1/actions", json=order())
    assert response.status_code == 409


def test_revert_all_of_a_tenant(world: World) -> None:
    world.flood_more("p1", "red")
    world.flood_more("p2", "blue")
    response = world.api("POST", "/v1/actions:revertAll?tenant=red")
    assert response.get_json() == {"requested": 1}
    world.step(1)
    assert {a["tenant"]: a["state"] for a in world.actions()} == {"red": "reverted", "blue": "active"}
    assert world.api("POST", "/v1/actions:revertAll").get_json() == {"requested": 1}
    world.step(1)
    assert {a["state"] for a in world.actions()} == {"reverted"}


def test_a_tenant_sees_its_own_limits_and_nothing_else(world: World) -> None:
    token = world.add_user("tenant")
    world.flood()
    world.flood_more("p2", "blue")
    headers = {"Authorization": f"Bearer {token}"}
    shown = world.client.get("/v1/me/limits", headers=headers).get_json()
    assert shown["tenant"] == "red"
    assert [limit["port"] for limit in shown["limits"]] == [PORT]
    assert world.client.get("/v1/actions", headers=headers).status_code == 403


def test_allow_list_at_run_time_lifts_and_ends(world: World) -> None:
    world.flood()
    entry = {"tenant": "red", "role": "source", "reason": "load test", "expires_in_seconds": 60}
    assert world.api("PUT", "/v1/allowlist", json={"entries": [entry]}).status_code == 200
    world.step(1)
    assert world.only_action()["state"] == "reverted"
    assert world.api("GET", "/v1/allowlist").get_json()["entries"][0]["tenant"] == "red"
    world.clock.advance(61)
    assert world.api("GET", "/v1/allowlist").get_json() == {"entries": []}
    bad = world.api("PUT", "/v1/allowlist", json={"entries": [{"role": "source", "reason": "x"}]})
    assert bad.status_code == 400
    assert bad.get_json()["error"]["field"] == "entries[0]"


def test_simulate_over_the_api_changes_nothing(world: World) -> None:
    world.policies = [policy(match={"alertname": "VigiaUdpFlood"})]
    world.enforcer.flood(PORT)
    _ = world.agent
    before = world.audit_events()
    answer = world.api("POST", "/v1/simulate", json=world.alert(labels={"isolate": "approve"}))
    (decision,) = answer.get_json()["decisions"]
    assert decision["decision"] == "ask"
    assert "person's approval" in decision["reason"]
    assert world.actions() == []
    assert world.audit_events() == before
    assert world.enforcer.count("apply") == 0


# Sessions


def test_a_session_does_what_its_account_may(world: World) -> None:
    client, csrf = sign_in(world)
    assert client.get("/v1/actions").status_code == 200
    assert client.put("/v1/killswitch", json={"on": True}, headers=csrf).status_code == 200
    assert client.delete("/v1/session", headers=csrf).status_code == 200
    assert client.get("/v1/actions").status_code == 401


def test_the_cookie_cannot_be_read_or_sent_by_others(world: World) -> None:
    answer = browser(world).post("/v1/session", json={"token": API_TOKEN})
    header = answer.headers["Set-Cookie"]
    for attribute in ("HttpOnly", "SameSite=Strict", "Path=/"):
        assert attribute in header
    assert API_TOKEN not in header


def test_behind_tls_the_cookie_is_secure(world: World) -> None:
    headers = {"X-Forwarded-Proto": "https"}
    answer = browser(world).post("/v1/session", json={"token": API_TOKEN}, headers=headers)
    assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "0" * 64},
        {"X-CSRF-Token": "\u00fc"},
        {"good": "", "Sec-Fetch-Site": "cross-site"},
        {"good": "", "Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_forged_write_is_refused(world: World, headers: dict[str, str]) -> None:
    client, csrf = sign_in(world)
    if headers.pop("good", None) is not None:
        headers |= csrf
    response = client.put("/v1/killswitch", json={"on": True}, headers=headers)
    assert response.status_code == 403
    assert response.get_json()["error"]["code"] == "forgery"
    assert not world.agent.store.kill_switch()


def test_a_session_opens_only_from_our_page(world: World) -> None:
    client = browser(world)
    cross = client.post("/v1/session", json={"token": API_TOKEN}, headers={"Sec-Fetch-Site": "cross-site"})
    form = client.post("/v1/session", data={"token": API_TOKEN})
    assert (cross.status_code, form.status_code) == (403, 403)
    assert client.post("/v1/session", json={"token": "x" * 40}).status_code == 401


def test_wrong_tokens_have_to_wait_longer_each_time(world: World) -> None:
    client = browser(world)
    answers = [client.post("/v1/session", json={"token": f"{i:040}"}) for i in range(60)]
    assert [a.status_code for a in answers] == [401] * 5 + [429] * 55
    waits = [int(a.headers["Retry-After"]) for a in answers[5:]]
    assert waits[:5] == [1, 2, 4, 8, 16]
    assert waits == sorted(waits)
    assert waits[-1] == 300
    assert world.audit_events().count("request.refused") == 1, "which fills no disk"
    world.clock.advance(700)
    assert client.post("/v1/session", json={"token": "x" * 40}).status_code == 401, "forgotten in time"


def test_wrong_bearer_tokens_have_to_wait_as_well(world: World) -> None:
    client = browser(world)

    def guess(i: int, method: str = "GET", url: str = "/v1/actions") -> TestResponse:
        return client.open(url, method=method, headers={"Authorization": f"Bearer {i:040}"})

    answers = [guess(i) for i in range(3)] + [
        guess(i, "POST", "/v1/webhook/alertmanager") for i in range(3, 9)
    ]
    assert [a.status_code for a in answers] == [401] * 5 + [429] * 4
    assert [int(a.headers["Retry-After"]) for a in answers[5:]] == [1, 2, 4, 8]
    door = client.post("/v1/session", json={"token": "x" * 40})
    assert (door.status_code, door.headers["Retry-After"]) == (429, "16"), "all doors count together"
    assert client.get("/v1/actions").status_code == 401, "who shows no token guesses none"
    assert world.api("GET", "/v1/actions").status_code == 200, "the right one is let in at any time"


def test_whoever_guesses_locks_no_operator_out(world: World) -> None:
    client = browser(world)
    for i in range(60):
        client.post("/v1/session", json={"token": f"{i:040}"})
    assert client.post("/v1/session", json={"token": API_TOKEN}).status_code == 201, "from the same address"
    assert world.api("GET", "/v1/actions").status_code == 200
    assert world.post(world.alert()).status_code == 200
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}
    other = client.post("/v1/session", json={"token": "x" * 40}, environ_base=elsewhere)
    assert other.status_code == 401, "each address by itself"


def test_guessers_of_many_addresses_take_bounded_memory(clock: FakeClock) -> None:
    backoff = Backoff(clock)
    for i in range(5000):
        assert backoff.wrong(f"address-{i}") == 0.0
    assert len(backoff._guessers) == 1024
    assert [backoff.wrong("one") for _ in range(8)] == [0, 0, 0, 0, 0, 1, 2, 4]


def test_sessions_end(world: World) -> None:
    world.extra = {}
    client, _ = sign_in(world)
    world.clock.advance(8 * 3600 - 1)
    assert client.get("/v1/session").status_code == 200
    world.clock.advance(2)
    assert client.get("/v1/session").status_code == 401


def test_a_session_survives_a_restart_but_not_a_new_token(world: World) -> None:
    client, _ = sign_in(world)
    cookie = client.get_cookie(COOKIE)
    assert cookie is not None
    world.crash()
    again = browser(world)
    again.set_cookie(COOKIE, cookie.value)
    assert again.get("/v1/session").get_json()["name"] == "api"
    secret(world.dir / "api.token", "another-token-0123456789abcdef")
    world.reload()
    assert again.get("/v1/session").status_code == 401


def test_the_cookie_itself_is_not_stored(world: World) -> None:
    client, _ = sign_in(world)
    cookie = client.get_cookie(COOKIE)
    assert cookie is not None
    world.crash()
    stored = b"".join(p.read_bytes() for p in world.dir.glob("agent.db*"))
    assert cookie.value.encode() not in stored


@pytest.mark.parametrize("cookie", ["", "x", "x" * 3000, "\u00fc", "' OR 1=1 --"])
def test_no_such_session(world: World, cookie: str) -> None:
    client = browser(world)
    client.set_cookie(COOKIE, cookie)
    assert client.get("/v1/session").status_code == 401


# Idempotency keys


def keyed(world: World, key: str, path: str = "/v1/actions", **options: Any) -> Any:
    options.setdefault("json", order())
    return world.api("POST", path, headers={"Idempotency-Key": key}, **options)


def test_the_same_key_again_is_answered_alike_and_done_once(world: World) -> None:
    first = keyed(world, "k1")
    world.step()
    second = keyed(world, "k1")
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.get_json() == first.get_json()
    assert second.headers["Idempotency-Replayed"] == "true"
    assert len(world.actions()) == 1
    assert keyed(world, "k2").status_code == 409, "another key is another order"


def test_a_refusal_is_remembered_too(world: World) -> None:
    bad = {"json": order(node="nowhere")}
    assert keyed(world, "k", **bad).status_code == 400
    again = keyed(world, "k", **bad)
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (400, "true")


def test_a_key_for_another_request_is_refused(world: World) -> None:
    keyed(world, "k")
    response = keyed(world, "k", json=order(seconds=99))
    assert response.status_code == 422
    assert response.get_json()["error"]["field"] == "Idempotency-Key"


def test_keys_are_of_their_account(world: World) -> None:
    token = world.add_user("operator")
    keyed(world, "k")
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
    response = world.client.put("/v1/killswitch", json={"on": False}, headers=headers)
    assert response.status_code == 200


def test_a_request_that_failed_may_be_sent_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _ = world.agent
    with monkeypatch.context() as broken:
        broken.setattr(world.agent.audit, "append", lambda *_: (_ for _ in ()).throw(RuntimeError("disk")))
        assert keyed(world, "k").status_code == 500
    assert keyed(world, "k").status_code == 202
    assert len(world.actions()) == 1


@pytest.mark.parametrize("key", ["x" * 256, "a b", "\u00fc"])
def test_bad_keys(world: World, key: str) -> None:
    assert keyed(world, key).status_code == 400
    assert world.actions() == []


def test_old_answers_are_forgotten(world: World) -> None:
    keyed(world, "k")
    world.step()
    world.api("POST", "/v1/actions:revertAll")
    world.step(1)
    world.clock.advance(86_500)
    world.step(1)
    assert "Idempotency-Replayed" not in keyed(world, "k").headers
