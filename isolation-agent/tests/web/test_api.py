"""The API: who may call what, shapes, filters, revert, kill switch, audit."""

from __future__ import annotations

from typing import Any

import pytest

from isolation_agent.web import auth
from isolation_agent.web.app import create_app
from isolation_agent.web.auth import OPEN_ENDPOINTS, scope_of
from vigia_service import look

from ..support.world import API_TOKEN, PORT, WEBHOOK_TOKEN, World, events, policy

ROUTES = {
    "POST /v1/webhook/alertmanager": "webhook",
    "GET /v1/actions": "viewer",
    "POST /v1/actions": "operator",
    "GET /v1/actions/<uuid:action_id>": "viewer",
    "POST /v1/actions/<uuid:action_id>:approve": "approver",
    "POST /v1/actions/<uuid:action_id>:reject": "approver",
    "POST /v1/actions/<uuid:action_id>:revert": "operator",
    "POST /v1/actions/<uuid:action_id>:extend": "operator",
    "POST /v1/actions/<uuid:action_id>:step": "operator",
    "POST /v1/actions:revertAll": "operator",
    "GET /v1/me/limits": "tenant",
    "GET /v1/killswitch": "viewer",
    "PUT /v1/killswitch": "operator",
    "GET /v1/breaker": "viewer",
    "PUT /v1/breaker": "admin",
    "GET /v1/allowlist": "viewer",
    "PUT /v1/allowlist": "admin",
    "GET /v1/audit": "viewer",
    "GET /v1/audit:verify": "viewer",
    "GET /v1/overview": "viewer",
    "GET /v1/tenants": "viewer",
    "GET /v1/contracts": "viewer",
    "GET /v1/pairs": "viewer",
    "GET /v1/quarantine": "viewer",
    "GET /v1/policies": "viewer",
    "PUT /v1/policies": "admin",
    "GET /v1/hosts/<node>/state": "viewer",
    "POST /v1/hosts/<node>:reconcile": "operator",
    "POST /v1/simulate": "viewer",
    "GET /v1/openapi.json": "viewer",
    "POST /v1/session": "open",
    "GET /v1/session": "self",
    "DELETE /v1/session": "self",
    "POST /-/reload": "admin",
    "GET /": "open",
    "GET /console/<name>": "open",
    "GET /-/healthy": "open",
    "GET /-/ready": "open",
    "GET /metrics": "open",
}
ACTION = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
RANK = ["viewer", "approver", "operator", "admin"]


def concrete(path: str) -> str:
    """A path with its variables filled in."""
    filled = path.replace("<uuid:action_id>", ACTION)
    return filled.replace("<node>", "lb1").replace("<name>", "console.js")


def routes(world: World) -> list[tuple[str, str, str]]:
    """Every route as method, path, endpoint."""
    app = create_app(world.agent)
    return [
        (method, rule.rule, rule.endpoint)
        for rule in app.url_map.iter_rules()
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})
    ]


def test_every_route_declares_who_may_call_it(world: World) -> None:
    app = create_app(world.agent)
    found = {f"{method} {path}": scope_of(app, endpoint) for method, path, endpoint in routes(world)}
    assert found == ROUTES


def test_only_listed_routes_are_open(world: World) -> None:
    """Walks all routes: without a token each one is refused, unless it is on the explicit list."""
    for method, path, endpoint in routes(world):
        response = world.client.open(concrete(path), method=method)
        if endpoint == "session.login":
            assert response.status_code == 403, "the way in needs a JSON body from the console's page"
        elif endpoint in OPEN_ENDPOINTS:
            assert response.status_code in (200, 503), path
        else:
            assert response.status_code == 401, path
            assert response.get_json()["error"]["code"] == "unauthorized"


@pytest.mark.parametrize("role", ["viewer", "approver", "operator", "admin", "tenant", "webhook"])
def test_a_role_may_what_it_may_and_nothing_else(world: World, role: str) -> None:
    token = WEBHOOK_TOKEN if role == "webhook" else world.add_user(role)
    for method, path, _ in routes(world):
        scope = ROUTES[f"{method} {path}"]
        if scope == "open":
            continue
        may = (
            scope == role
            or (scope == "self" and role != "webhook")
            or (scope in RANK and role in RANK and RANK.index(role) >= RANK.index(scope))
        )
        headers = {"Authorization": f"Bearer {token}"}
        response = world.client.open(concrete(path), method=method, headers=headers)
        assert (response.status_code != 403) == may, (method, path, response.text)


def test_route_without_a_scope_is_closed(world: World) -> None:
    app = create_app(world.agent)
    app.add_url_rule("/forgotten", "forgotten", lambda: "secret")
    response = app.test_client().get("/forgotten", headers={"Authorization": f"Bearer {API_TOKEN}"})
    assert response.status_code == 403
    assert app.test_client().get("/forgotten").status_code == 401


@pytest.mark.parametrize(
    ("given", "base", "address"),
    [
        (None, "http://vigia.example:9874", "http://vigia.example:9875/"),
        (None, "https://[fd00::1]:9874", "https://[fd00::1]:9875/"),
        ("https://pages.example/vigia", "http://127.0.0.1:9874", "https://pages.example/vigia/"),
        ("https://pages.example/a&b", "http://127.0.0.1:9874", "https://pages.example/a&amp;b/"),
    ],
)
def test_the_console_leads_to_the_pages(world: World, given: str | None, base: str, address: str) -> None:
    world.extra = {"pages": given} if given else {}
    world.reload()
    text = world.client.get("/", base_url=base).get_data(as_text=True)
    for path, name in (("", "Comparison"), ("mesh", "Mesh"), ("incidents", "Incidents")):
        assert f'<a href="{address}{path}">{name}</a>' in text
    assert '<a href="/" aria-current="page">Approvals and kill switch</a>' in text
    assert text.count('<nav aria-label="Pages">') == 1 and "{{" not in text


def test_the_bar_is_that_of_all_pages(world: World) -> None:
    text = world.client.get("/", base_url="http://h:9874").get_data(as_text=True)
    assert look.bar("isolation", look.Service.CONSOLE, "http://h:9875/") in text
    assert "<title>Approvals and kill switch – Vigia</title>" in text
    assert text.count("<style>:root {") == 1 and "header nav a" in text


def test_a_host_that_is_none_is_not_led_to(world: World) -> None:
    text = world.client.get("/", environ_overrides={"HTTP_HOST": '"><script>'}).get_data(as_text=True)
    assert '<span class="soft">Comparison</span>' in text and '"><script>' not in text
    assert text.count("<a href=") == 1, "to the console itself"


def test_open_scope_alone_does_not_open_a_route(world: World) -> None:
    app = create_app(world.agent)
    app.add_url_rule("/sneaky", "sneaky", auth.needs(auth.OPEN)(lambda: "secret"))
    assert app.test_client().get("/sneaky").status_code == 401


def test_options_and_head_need_the_token_too(world: World) -> None:
    assert world.client.head("/v1/actions").status_code == 401
    assert world.client.options("/v1/actions").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/console/",
        "/console/../agent.py",
        "/console/secret.js",
        "/v1",
        "/v1/nothing",
        "/v1/actions/not-a-uuid",
        "/static/x",
        "/v1/actions/",
    ],
)
def test_unknown_paths_are_json_errors(world: World, path: str) -> None:
    response = world.api("GET", path)
    assert response.status_code == 404
    assert response.get_json()["error"]["code"] == "not_found"


def test_every_answer_is_hardened(world: World) -> None:
    for response in (
        world.api("GET", "/v1/actions"),
        world.client.get("/metrics"),
        world.client.get("/nothing"),
    ):
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"


def test_tokens_never_show(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    world.flood()
    world.client.get("/v1/actions", headers={"Authorization": "Bearer almost-the-right-token-here"})
    world.enforcer.refuse("state", 401, "unauthorized", left=2)
    world.run(3)
    shown = (
        caplog.text
        + world.audit_path.read_text()
        + world.api("GET", "/v1/audit").text
        + repr(world.agent.settings)
    )
    for token in (WEBHOOK_TOKEN, API_TOKEN, "enforcer-token", "almost-the-right"):
        assert token not in shown


# Actions


def many(world: World) -> None:
    """One active, one suppressed, one reverted action."""
    world.guards = {"infrastructure": ["blue"]}
    world.policies = [policy(cooldown="0s")]
    world.enforcer.flood(PORT)
    first = world.alert()
    world.post(first)
    world.step()
    world.enforcer.calm(PORT)
    world.post(first | {"status": "resolved"})
    world.run(12)
    world.enforcer.flood(PORT)
    world.post(world.alert(), world.alert("lb1-blue-120", "blue"))
    world.step()


def test_filters(world: World) -> None:
    many(world)
    found = {(a["state"], a["tenant"]) for a in world.actions()}
    assert found == {("active", "red"), ("suppressed", "blue"), ("reverted", "red")}
    assert [a["state"] for a in world.actions(state="active")] == ["active"]
    assert [a["state"] for a in world.actions(state="ACTIVE")] == ["active"]
    assert len(world.actions(tenant="red")) == 2
    assert len(world.actions(tenant="red", state="reverted")) == 1
    assert len(world.actions(node="lb1")) == 3
    assert world.actions(node="lb2") == []


def test_newest_first_in_pages(world: World) -> None:
    many(world)
    numbers = [a["number"] for a in world.actions()]
    assert numbers == sorted(numbers, reverse=True)
    page = world.api("GET", "/v1/actions", query_string={"limit": "2"}).get_json()
    assert [a["number"] for a in page["actions"]] == numbers[:2]
    assert page["next_before"] == numbers[1]
    rest = world.api("GET", f"/v1/actions?limit=2&before={page['next_before']}").get_json()
    assert [a["number"] for a in rest["actions"]] == numbers[2:]
    assert rest["next_before"] is None


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=sleeping", "state"),
        ("open=yes", "open"),
        ("open=", "open"),
        ("stat=active", "stat"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("limit=-1", "limit"),
        ("limit=%EF%BC%91", "limit"),
        ("before=x", "before"),
        ("before=99999999999999999999", "before"),
        ("tenant=a&tenant=b", "tenant"),
    ],
)
def test_bad_queries_name_the_parameter(world: World, query: str, field: str) -> None:
    response = world.api("GET", f"/v1/actions?{query}")
    assert response.status_code == 400
    assert response.get_json()["error"]["field"] == field


def test_hostile_filter_finds_nothing(world: World) -> None:
    many(world)
    assert world.actions(tenant="' OR 1=1 --") == []


def test_shape_of_an_action(world: World) -> None:
    world.flood()
    world.run(15)
    action = world.only_action()
    assert set(action) == {
        "number", "id", "policy", "policy_version", "level", "state", "guard", "reason", "cause", "node", "port",
        "tenant", "limit", "extensions", "approved_by", "revert_requested_by", "offered_bytes_per_second",
        "evidence_then", "created_at", "updated_at", "decided_at", "applied_at", "expires_at", "ended_at",
        "evidence", "limit_before", "limit_after", "release", "relapses", "term", "approvals", "reasons",
        "reasons_total", "timeline",
    }  # fmt: skip
    assert action["release"] == {"offered_below": 0.8, "hold_seconds": 10.0, "probe_seconds": 0.0}
    assert action["expires_at"] > action["updated_at"]
    for instant in [t["at"] for t in action["timeline"]] + [action["created_at"], action["applied_at"]]:
        assert instant.endswith("Z")
        assert len(instant) == len("2026-01-02T03:04:05.678901Z"), "UTC with microseconds"
    assert [t["at"] for t in action["timeline"]] == sorted(t["at"] for t in action["timeline"])
    reason = action["reasons"][0]
    assert reason["labels"]["alertname"] == "VigiaUdpFlood"
    assert reason["annotations"] == {"summary": "A tenant floods with UDP"}


def test_unknown_action(world: World) -> None:
    for method, suffix in (("GET", ""), ("POST", ":revert")):
        response = world.api(method, f"/v1/actions/7d444840-9dc0-11d1-b245-5ffdce74fad2{suffix}")
        assert response.status_code == 404


# Revert


def test_revert_lifts_the_limit_and_dismisses_the_alert(world: World) -> None:
    action = world.flood()
    response = world.api("POST", f"/v1/actions/{action['id']}:revert")
    assert response.status_code == 202
    assert response.get_json()["revert_requested_by"] == "api@127.0.0.1"
    world.step()
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("reverted", "operator")
    assert events(action)[-4:] == ["revert_requested", "release_decided", "released", "removal_verified"]
    assert world.enforcer.limit_of(PORT) is None
    assert world.metric("vigia_agent_reverts_total", cause="operator") == 1
    record = next(r for r in world.audit_records() if r["event"] == "action.revert_requested")
    assert record["actor"] == "api@127.0.0.1"
    world.run(40)
    assert len(world.actions()) == 1, "the flood goes on and the alert fires, but a person has decided"


def test_new_episode_after_a_revert_counts_again(world: World) -> None:
    action = world.flood()
    world.api("POST", f"/v1/actions/{action['id']}:revert")
    world.run(25)
    world.post(world.alert())
    world.run(2)
    assert world.actions()[0]["state"] == "active"


def test_revert_twice_and_after_the_end(world: World) -> None:
    action = world.flood()
    path = f"/v1/actions/{action['id']}:revert"
    assert [world.api("POST", path).status_code for _ in range(2)] == [202, 202]
    world.step()
    ended = world.action(action["id"])
    response = world.api("POST", path)
    assert response.status_code == 200
    assert response.get_json() == ended, "nothing changes any more"
    assert world.audit_events().count("action.revert_requested") == 1


def test_revert_of_what_was_never_done(world: World) -> None:
    world.guards = {"kill_switch": True}
    action = world.flood()
    world.api("POST", f"/v1/actions/{action['id']}:revert")
    world.step()
    action = world.action(action["id"])
    assert (action["cause"], action["ended_at"] is not None) == ("operator", True)
    world.guards = {}
    world.reload()
    world.run(5)
    assert world.enforcer.count("apply") == 0


def test_revert_of_an_observation(world: World) -> None:
    world.policies = [policy(level="L0")]
    action = world.flood()
    world.api("POST", f"/v1/actions/{action['id']}:revert")
    world.step()
    assert world.action(action["id"])["cause"] == "operator"


# Kill switch


def test_kill_switch_releases_and_forbids(world: World) -> None:
    action = world.flood()
    response = world.api("PUT", "/v1/killswitch", json={"on": True, "reason": "maintenance"})
    assert (response.status_code, response.get_json()) == (200, {"on": True, "held_on_by_policy_file": False})
    world.step()
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("reverted", "operator")
    assert world.enforcer.limit_of(PORT) is None
    assert world.metric("vigia_agent_kill_switch") == 1
    record = next(r for r in world.audit_records() if r["event"] == "killswitch.on")
    assert (record["actor"], record["reason"]) == ("api@127.0.0.1", "maintenance")
    world.run(30)
    assert len(world.actions()) == 2, "one more record says that the flood goes on and who stopped the answer"
    assert world.actions()[0]["guard"] == "kill_switch"
    assert world.enforcer.limit_of(PORT) is None
    assert world.api("PUT", "/v1/killswitch", json={"on": False}).get_json()["on"] is False
    world.run(2)
    assert world.enforcer.limit_of(PORT) is not None


def test_kill_switch_of_the_policy_file_holds(world: World) -> None:
    world.guards = {"kill_switch": True}
    response = world.api("PUT", "/v1/killswitch", json={"on": False})
    assert response.get_json() == {"on": True, "held_on_by_policy_file": True}
    assert world.api("GET", "/v1/killswitch").get_json()["on"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"{}", "on"),
        (b'{"on": "true"}', "on"),
        (b'{"on": 1}', "on"),
        (b'{"on": true, "of": 1}', "of"),
        (b'{"on": true, "reason": 5}', "reason"),
        (b'{"on": true, "reason": "' + b"x" * 501 + b'"}', "reason"),
    ],
)
def test_kill_switch_is_strict(world: World, body: bytes, field: str | None) -> None:
    response = world.api("PUT", "/v1/killswitch", data=body)
    assert response.status_code == 400
    assert response.get_json()["error"].get("field") == field
    assert world.api("GET", "/v1/killswitch").get_json()["on"] is False


def test_api_bodies_are_small(world: World) -> None:
    response = world.api("PUT", "/v1/killswitch", data=b" " * (65 << 10))
    assert response.status_code == 413


def test_many_limits_are_released_in_one_turn(world: World) -> None:
    world.guards = {"max_active": 50, "max_per_tenant": 50, "max_per_node": 50}
    for i in range(40):
        world.enforcer.add(f"p{i}", "red")
        world.enforcer.flood(f"p{i}")
    world.post(*[world.alert(f"p{i}") for i in range(40)])
    world.step()
    assert len(world.actions(state="active")) == 40
    world.api("PUT", "/v1/killswitch", json={"on": True})
    world.step()
    assert all(world.enforcer.limit_of(f"p{i}") is None for i in range(40))


# Audit


def test_audit_is_read_in_pages(world: World) -> None:
    world.flood()
    world.run(15)
    every: list[dict[str, Any]] = []
    following: int | None = 1
    while following is not None:
        page = world.api("GET", f"/v1/audit?from={following}&limit=3").get_json()
        every += page["records"]
        following = page["next_from"]
    assert [r["seq"] for r in every] == list(range(1, world.agent.audit.head.seq + 1))
    assert page["head"] == {"seq": every[-1]["seq"], "hash": every[-1]["hash"]}
    assert every == world.audit_records()
    assert world.api("GET", "/v1/audit?from=100000").get_json()["records"] == []


def test_audit_tells_who_what_why_and_on_which_evidence(world: World) -> None:
    action = world.flood()
    records = {r["event"]: r for r in world.audit_records()}
    assert records["alert.accepted"]["actor"] == "alertmanager@127.0.0.1"
    assert records["alert.accepted"]["action"] == action["id"]
    intent = records["action.intent"]
    assert intent["target"] == {"node": "lb1", "port": PORT, "tenant": "red"}
    assert intent["policy_version"] == world.agent.settings.policies.version
    assert intent["detail"]["evidence"]["offered"]["udp_bytes_per_second"] == 50_000_000
    assert "cap all but TCP" in intent["reason"]
    assert records["action.active"]["detail"]["verified"] is True
    assert records["action.active"]["detail"]["limit"]["id"] == action["id"]
    assert intent["seq"] < records["action.active"]["seq"], "the intent is written ahead"


def test_broken_audit_file_is_reported(world: World) -> None:
    world.flood()
    raw = world.audit_path.read_bytes()
    world.audit_path.write_bytes(raw.replace(b'"event":"action.intent"', b'"event"; "action.intent"'))
    response = world.api("GET", "/v1/audit")
    assert response.status_code == 500
    assert "audit verify" in response.get_json()["error"]["message"]


# Health and metrics


def test_ready_after_the_first_turn(world: World) -> None:
    agent = world.agent
    assert world.client.get("/-/ready").status_code == 503
    agent._turn()
    response = world.client.get("/-/ready")
    assert (response.status_code, response.text) == (200, "ready\n")
    assert world.client.get("/-/healthy").text == "healthy\n"


def test_not_healthy_when_the_controller_is_stuck(world: World) -> None:
    world.agent._turn()
    world.clock.advance(60)
    response = world.client.get("/-/healthy")
    assert response.status_code == 503
    assert "has not taken a turn for 60s" in response.text


def test_not_ready_while_the_audit_log_cannot_be_written(world: World) -> None:
    world.agent._turn()
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.agent.audit.close()
    world.agent._turn()
    response = world.client.get("/-/ready")
    assert response.status_code == 503
    assert "audit_log" in response.text
    assert world.enforcer.limit_of(PORT) is None, "nothing is done off the record"
    assert world.metric("vigia_agent_controller_ticks_total", result="error") == 1


def test_metrics_in_both_formats(world: World) -> None:
    text = world.client.get("/metrics")
    assert text.headers["Content-Type"].startswith("text/plain")
    assert "vigia_agent_build_info{" in text.text
    openmetrics = world.client.get(
        "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    assert openmetrics.headers["Content-Type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


def test_unexpected_errors_show_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the inner life of the agent")

    monkeypatch.setattr("isolation_agent.storage.actions.page", fail)
    response = world.api("GET", "/v1/actions")
    assert (response.status_code, response.get_json()["error"]["code"]) == (500, "internal")
    assert "inner life" not in response.text
