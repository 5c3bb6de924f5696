"""From an alert to a limit and back, against an enforcer that speaks the contract."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from ..support.fake_enforcer import KernelLimit
from ..support.world import GUARANTEE, PORT, World, events, policy


def test_flood_is_limited_at_the_guarantee_verified_extended_and_released(world: World) -> None:
    world.enforcer.flood(PORT)
    detected = world.clock.now()
    world.clock.advance(0.7)
    started = world.clock.now()
    alert = world.alert()
    world.clock.advance(0.4)
    assert world.post(alert).status_code == 200
    received = world.clock.now()
    world.step(0.1)

    action = world.only_action()
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    assert (limit.id, limit.rate, limit.protocol) == (action["id"], GUARANTEE, "udp")
    assert action["state"] == "active"
    assert action["limit"] == {"protocol": "udp", "rate_bytes_per_second": GUARANTEE, "ttl_seconds": 30.0}
    assert action["limit_before"] is None
    assert action["limit_after"]["id"] == action["id"]
    assert action["evidence"]["offered"]["udp_bytes_per_second"] == 50_000_000
    assert action["evidence"]["signals"]["udp_destination_ports"] == 900
    at = {t["event"]: t["at"] for t in action["timeline"]}
    assert at["kernel_detected"] == detected.isoformat().replace("+00:00", "Z")
    assert at["alert_started"] == started.isoformat().replace("+00:00", "Z")
    assert at["webhook_received"] == received.isoformat().replace("+00:00", "Z")
    assert events(action) == [
        "kernel_detected",
        "alert_started",
        "webhook_received",
        "decided",
        "limit_applied",
        "limit_verified",
    ]

    world.run(25)  # the flood goes on
    action = world.only_action()
    assert action["extensions"] == 2, "each time a third of the TTL has passed"
    assert events(action).count("extended") == action["extensions"]
    assert world.metric("vigia_agent_extensions_total") == action["extensions"]
    assert world.enforcer.ids == [action["id"]], "one limit all the time"

    world.enforcer.calm(PORT)
    world.run(9)
    assert world.only_action()["state"] == "active", "not before the hold is over"
    world.run(3)
    action = world.only_action()
    assert action["state"] == "reverted"
    assert action["cause"] == "evidence"
    assert action["ended_at"] is not None
    assert events(action)[-4:] == ["offered_below", "release_decided", "released", "removal_verified"]
    assert world.enforcer.limit_of(PORT) is None
    assert world.metric("vigia_agent_reverts_total", cause="evidence") == 1
    assert world.verify_audit().ok


def test_reaction_is_observed_by_stage(world: World) -> None:
    world.enforcer.flood(PORT)
    world.clock.advance(0.7)
    alert = world.alert()
    world.clock.advance(0.4)
    world.post(alert)
    world.step(0.1)
    for stage, seconds in (("detect", 0.7), ("notify", 0.4), ("apply", 0.1), ("verify", 0.0)):
        assert world.metric("vigia_isolation_reaction_seconds_count", stage=stage) == 1
        assert world.metric("vigia_isolation_reaction_seconds_sum", stage=stage) == pytest.approx(seconds)


def test_ttl_sent_is_the_policys_and_burst_is_left_to_the_enforcer(world: World) -> None:
    world.policies = [policy(ttl="60s", release={"hold": "30s", "offered_below": 0.5, "probe": "0s"})]
    world.flood()
    body = next(c.body for c in world.enforcer.calls if c.operation == "apply")
    assert body is not None
    assert body["ttl_seconds"] == 60
    assert type(body["ttl_seconds"]) is int
    assert body["burst_bytes"] == 0
    assert body["tenant"] == "red"


def test_actions_gauge_follows(world: World) -> None:
    def gauge(state: str) -> float:
        return world.metric("vigia_isolation_actions", state=state, level="L2", policy="udp-flood")

    world.step()
    assert gauge("active") == 0
    world.flood()
    assert gauge("active") == 1
    world.enforcer.calm(PORT)
    world.run(13)
    assert gauge("active") == 0


def test_resolved_is_a_hint_only(world: World) -> None:
    world.flood()
    resolved = world.alert(status="resolved") | {"endsAt": "2026-01-02T03:05:00Z"}
    world.post(resolved)
    world.run(40)
    action = world.only_action()
    assert action["state"] == "active", "the flood goes on at the source"
    assert "alert_resolved" in events(action)
    assert action["reasons"][0]["status"] == "resolved"
    assert action["extensions"] >= 2


def test_release_needs_low_load_for_the_whole_hold(world: World) -> None:
    world.flood()
    for _ in range(4):
        world.enforcer.calm(PORT)
        world.run(8)
        world.enforcer.flood(PORT)
        world.run(2)
    assert world.only_action()["state"] == "active", "pulses never stay low for ten seconds"
    world.enforcer.calm(PORT)
    world.run(12)
    assert world.only_action()["state"] == "reverted"


def test_load_between_release_threshold_and_limit_keeps_the_limit(world: World) -> None:
    world.flood()
    world.enforcer.ports[PORT].offered = 0.81 * GUARANTEE
    world.run(60)
    assert world.only_action()["state"] == "active"
    world.enforcer.ports[PORT].offered = 0.79 * GUARANTEE
    world.run(12)
    assert world.only_action()["state"] == "reverted"


def test_limit_follows_a_raised_guarantee_at_once(world: World) -> None:
    world.flood()
    world.enforcer.ports[PORT].guarantee = 2 * GUARANTEE
    world.step(1)
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    assert limit.rate == 2 * GUARANTEE, "never below the floor"


def test_limit_is_released_when_the_guarantee_is_taken_away(world: World) -> None:
    world.flood()
    world.enforcer.ports[PORT].guarantee = None
    world.step(1)
    assert world.only_action()["state"] == "reverted"
    assert world.enforcer.limit_of(PORT) is None


def test_without_fresh_evidence_nothing_is_extended_and_the_limit_ends_by_its_ttl(world: World) -> None:
    action = world.flood()
    extended = world.enforcer.count("apply")
    world.enforcer.ports[PORT].offered = None  # metrics are missing, the enforcer answers
    world.run(29)
    assert world.enforcer.count("apply") == extended
    assert world.action(action["id"])["state"] == "active", "kept until the TTL"
    world.run(3)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("expired", "ttl")
    assert world.enforcer.limit_of(PORT) is None


def test_repeated_state_is_no_evidence(world: World) -> None:
    action = world.flood()
    applied = world.enforcer.count("apply")
    world.enforcer.frozen_time = "2026-01-02T03:04:06Z"
    world.run(40)
    assert world.enforcer.count("apply") <= applied + 1, "the first answer was fresh, the others repeat it"
    assert world.action(action["id"])["state"] == "expired"


def test_enforcer_gone_limit_is_kept_on_record_until_its_ttl(world: World) -> None:
    action = world.flood()
    world.enforcer.stop()
    world.run(28)
    assert world.action(action["id"])["state"] == "active"
    world.run(5)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("expired", "ttl")
    assert "its time ended while the enforcer gave no usable answer" in action["reason"]
    assert world.metric("vigia_agent_enforcer_up", node="lb1") == 0


def test_enforcer_back_in_time_goes_on_with_the_same_limit(world: World) -> None:
    action = world.flood()
    world.enforcer.leave()
    world.run(10)
    world.enforcer.start()
    world.run(30)
    assert world.action(action["id"])["state"] == "active"
    assert world.enforcer.ids == [action["id"]]
    assert world.metric("vigia_agent_enforcer_up", node="lb1") == 1


def test_hold_starts_anew_after_a_gap_in_the_evidence(world: World) -> None:
    action = world.flood()
    world.enforcer.calm(PORT)
    world.run(8)
    world.enforcer.break_next("state", "drop", left=1)
    world.run(2)
    world.run(5)
    assert world.action(action["id"])["state"] == "active", "eight and five seconds are not ten in one piece"
    world.run(8)
    assert world.action(action["id"])["state"] == "reverted"


def test_limit_lost_in_the_kernel_is_set_again_while_the_flood_goes_on(world: World) -> None:
    action = world.flood()
    for _ in range(3):
        world.enforcer.ports[PORT].limit = None
        world.step(1)
        limit = world.enforcer.limit_of(PORT)
        assert limit is not None
        assert limit.id == action["id"]
    world.enforcer.ports[PORT].limit = None
    world.step(1)
    action = world.action(action["id"])
    assert action["state"] == "expired", "somebody removes it again and again: three times are enough"
    assert events(action).count("reapplied") == 3


def test_limit_lost_in_the_kernel_without_a_flood_is_over(world: World) -> None:
    action = world.flood()
    world.enforcer.calm(PORT)
    world.enforcer.ports[PORT].limit = None
    world.step(1)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("expired", "ttl")
    assert world.metric("vigia_agent_reverts_total", cause="ttl") == 1


def test_another_limit_in_our_place_is_left_alone(world: World) -> None:
    action = world.flood()
    world.enforcer.ports[PORT].limit = KernelLimit(
        "someone-else", GUARANTEE, 1, world.clock.monotonic() + 900
    )
    world.step(1)
    assert world.action(action["id"])["state"] == "expired"
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    assert limit.id == "someone-else"
    assert world.enforcer.count("remove") == 0


def test_port_gone(world: World) -> None:
    action = world.flood()
    del world.enforcer.ports[PORT]
    world.step(1)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("expired", "gone")


def test_a_port_that_is_not_listed_is_not_gone_while_the_list_is_not_complete(world: World) -> None:
    """An enforcer that has just been upgraded may not have asked Open vSwitch yet; the limit is in the kernel."""
    action = world.flood()
    port = world.enforcer.ports.pop(PORT)
    world.enforcer.complete = False
    world.run(10)
    assert world.action(action["id"])["state"] == "active"
    world.enforcer.ports[PORT] = port
    world.enforcer.complete = True
    world.run(30)
    action = world.action(action["id"])
    assert action["state"] == "active", "it goes on as if nothing had been"
    assert world.enforcer.ids == [action["id"]]
    del world.enforcer.ports[PORT]
    world.step(1)
    assert world.action(action["id"])["cause"] == "gone"


def test_a_port_that_stays_away_from_a_list_that_is_not_complete_ends_with_its_limit(world: World) -> None:
    action = world.flood()
    del world.enforcer.ports[PORT]
    world.enforcer.complete = False
    world.run(40)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("expired", "ttl")
    assert "cannot read all it knows ports from" in action["reason"]


def test_a_port_whose_program_is_not_taken_over_yet_has_not_lost_its_limit(world: World) -> None:
    action = world.flood()
    port = world.enforcer.ports[PORT]
    limit, offered = port.limit, port.offered
    port.attached, port.limit, port.offered = False, None, None
    world.run(10)
    assert world.action(action["id"])["state"] == "active"
    port.attached, port.limit, port.offered = True, limit, offered
    world.run(30)
    assert world.action(action["id"])["state"] == "active"
    port.attached, port.limit, port.offered = False, None, None
    world.run(40)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("expired", "ttl")
    assert "no program is attached to it" in action["reason"]


def test_port_given_to_another_tenant_is_freed_at_once(world: World) -> None:
    action = world.flood()
    world.enforcer.ports[PORT].tenant = "green"
    world.step(1)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("reverted", "gone")
    assert world.enforcer.limit_of(PORT) is None, "an innocent tenant must not inherit the limit"


def test_apply_is_tried_again_with_back_off_and_then_fails(world: World) -> None:
    world.extra = {"controller": {"attempts": 4}}
    world.enforcer.break_next("apply", "drop", left=None)
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.run(15)
    action = world.only_action()
    assert (action["state"], action["cause"]) == ("failed", "failure")
    assert "gave up after 4 attempts" in action["reason"]
    times = [c.at for c in world.enforcer.calls if c.operation == "apply"]
    gaps = [round(b - a, 3) for a, b in pairwise(times)]
    assert len(times) == 4
    assert gaps == sorted(gaps), "each wait is at least as long as the one before"
    assert events(action).count("attempt_failed") == 3
    assert world.metric("vigia_agent_reverts_total", cause="failure") == 1


def test_failed_action_is_taken_up_again_once_the_enforcer_is_back(world: World) -> None:
    world.extra = {"controller": {"attempts": 2}}
    world.enforcer.break_next("apply", "drop", left=None)
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.run(10)
    assert world.only_action()["state"] == "failed"
    world.enforcer.faults.clear()
    world.run(25)  # the cooldown is 20 s
    newest, oldest = world.actions()
    assert (newest["state"], oldest["state"]) == ("active", "failed")
    assert "alert_still_firing" in events(world.action(newest["id"]))


def test_lost_answer_of_apply_is_not_applied_twice(world: World) -> None:
    world.enforcer.break_next("apply", "lose")
    action = world.flood()
    assert action["state"] == "applying", "it may or may not be in the kernel"
    world.run(3)
    action = world.only_action()
    assert action["state"] == "active"
    assert "adopted" in events(action)
    assert world.enforcer.ids == [action["id"]]


@pytest.mark.parametrize("code", ["unknown_port", "tenant_mismatch", "no_contract", "other_limit"])
def test_final_refusals_fail_at_once(world: World, code: str) -> None:
    world.enforcer.refuse("apply", 409, code)
    action = world.flood()
    assert action["state"] == "failed"
    assert code in action["reason"]
    assert world.enforcer.count("apply") == 1


def test_bad_field_fails_at_once(world: World) -> None:
    world.enforcer.refuse("apply", 400, "bad_field")
    assert world.flood()["state"] == "failed"


@pytest.mark.parametrize(
    ("status", "code"), [(500, "kernel"), (409, "below_floor"), (409, "not_attached"), (401, "unauthorized")]
)
def test_passing_refusals_are_tried_again(world: World, status: int, code: str) -> None:
    world.enforcer.refuse("apply", status, code)
    assert world.flood()["state"] == "applying"
    world.run(2)
    assert world.only_action()["state"] == "active"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"verified": False}, "verified"),
        ({"port": "another"}, "port"),
        ({"limit": {"id": "another"}}, "id"),
        ({"limit": {"rate_bytes_per_second": GUARANTEE - 1}}, "rate_bytes_per_second"),
        ({"limit": {"protocol": "tcp"}}, "protocol"),
        ({"limit": {"expires_in_seconds": 3600}}, "expires_in_seconds"),
        ({"limit": {"expires_in_seconds": 0}}, "expires_in_seconds"),
    ],
)
def test_wrong_read_back_is_undone(world: World, change: dict[str, object], field: str) -> None:
    def lie(port: str) -> tuple[int, object]:
        call = world.enforcer.calls[-1]
        assert call.body is not None
        status, answer = world.enforcer._apply(port, call.body)
        limit = answer["limit"] | change.get("limit", {})  # type: ignore[operator]
        return status, answer | change | {"limit": limit}

    world.enforcer.break_next("apply", lie)
    action = world.flood()
    assert (action["state"], action["cause"]) == ("failed", "failure")
    assert field in action["reason"]
    assert world.enforcer.limit_of(PORT) is None, "what is not as asked for does not stay"
    assert action["applied_at"] is None


def test_removal_is_tried_again_until_it_is_verified(world: World) -> None:
    action = world.flood()
    world.enforcer.calm(PORT)
    world.enforcer.break_next("remove", "drop", left=3)
    world.run(12)
    assert world.action(action["id"])["state"] == "releasing"
    world.run(10)
    assert world.action(action["id"])["state"] == "reverted"
    assert world.enforcer.limit_of(PORT) is None


def test_removal_that_does_not_remove_is_noticed(world: World) -> None:
    action = world.flood()
    world.enforcer.calm(PORT)
    claim = {"port": PORT, "removed": True, "verified": True}
    world.enforcer.break_next("remove", lambda _port: (200, claim), left=2)
    world.run(11)
    assert world.action(action["id"])["state"] == "releasing", "the limit is still there"
    world.run(10)
    assert world.action(action["id"])["state"] == "reverted"
    assert world.enforcer.count("remove") >= 3


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"port": PORT, "removed": False, "verified": True}),
        (404, {"error": {"code": "unknown_port", "message": "gone"}}),
        (409, {"error": {"code": "other_limit", "message": "gone"}}),
    ],
)
def test_removal_of_a_limit_that_is_gone_already(world: World, answer: tuple[int, object]) -> None:
    def vanish(port: str) -> tuple[int, object]:
        world.enforcer.ports[port].limit = None
        return answer

    action = world.flood()
    world.enforcer.calm(PORT)
    world.enforcer.break_next("remove", vanish)
    world.run(11)
    action = world.action(action["id"])
    assert action["state"] == "reverted"
    released = next(t for t in action["timeline"] if t["event"] == "released")
    assert released["detail"] == {"removed": False}


def test_removal_impossible_until_the_ttl_is_over(world: World) -> None:
    action = world.flood()
    world.enforcer.calm(PORT)
    world.enforcer.break_next("remove", "drop", left=None)
    world.run(60)
    action = world.action(action["id"])
    assert (action["state"], action["cause"]) == ("expired", "evidence")
    assert "the removal failed until the limit's own time ended" in action["reason"]


def test_failed_extension_is_tried_again_before_the_ttl_ends(world: World) -> None:
    action = world.flood()
    world.enforcer.refuse("apply", 500, "kernel", left=2)
    world.run(40)
    assert world.action(action["id"])["state"] == "active"
    assert world.enforcer.ids == [action["id"]]


def test_wall_clock_steps_change_nothing(world: World) -> None:
    action = world.flood()
    world.clock.wall += timedelta(hours=1)
    world.run(20)
    assert world.action(action["id"])["state"] == "active"
    world.clock.wall -= timedelta(hours=2)
    world.run(20)
    assert world.action(action["id"])["state"] == "active"
    world.enforcer.calm(PORT)
    world.run(12)
    assert world.action(action["id"])["state"] == "reverted"


def test_observe_records_and_limits_nothing(world: World) -> None:
    world.policies = [policy(level="L0")]
    action = world.flood()
    assert (action["state"], action["level"], action["limit"]) == ("observing", "L0", None)
    assert action["evidence"]["offered"]["udp_bytes_per_second"] == 50_000_000
    world.post(world.alert(status="resolved"))
    world.step(1)
    action = world.only_action()
    assert (action["state"], action["cause"]) == ("observing", "resolved")
    assert action["ended_at"] is not None
    assert world.enforcer.count("apply") == 0


def test_alert_that_asks_for_a_person_is_recorded_only(world: World) -> None:
    world.policies = [policy(match={"alertname": "VigiaUdpFlood"})]
    action = world.flood(labels={"isolate": "manual"})
    assert (action["state"], action["level"]) == ("observing", "L0")
    assert world.enforcer.count("apply") == 0


def test_undecided_action_says_what_it_waits_for(world: World) -> None:
    world.enforcer.break_next("state", "drop", left=2)
    action = world.flood()
    assert action["state"] == "received"
    assert "not decided yet: GET /v1/state: Server disconnected" in action["reason"]
    world.run(3)
    assert world.only_action()["state"] == "active"


def test_enforcer_that_never_answers_fails_the_action(world: World) -> None:
    world.extra = {"controller": {"attempts": 3}}
    world.enforcer.stop()
    assert world.flood()["state"] == "received"
    world.run(10)
    action = world.only_action()
    assert (action["state"], action["cause"]) == ("failed", "failure")
    assert world.metric("vigia_agent_enforcer_up", node="lb1") == 0


def test_one_broken_action_does_not_stop_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.enforcer.flood(PORT)
    world.enforcer.flood("lb1-blue-120")
    world.post(world.alert(), world.alert("lb1-blue-120", "blue"))
    lifecycle = world.agent.controller._lifecycle
    step = lifecycle.step

    def stumble(action, tick):  # type: ignore[no-untyped-def]
        if action.tenant == "red":
            raise RuntimeError("a mistake in the agent")
        step(action, tick)

    monkeypatch.setattr(lifecycle, "step", stumble)
    world.step()
    assert {a["tenant"]: a["state"] for a in world.actions()} == {"red": "received", "blue": "active"}


def test_long_floods_do_not_grow_the_timeline_without_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isolation_agent.actions.in_force.MAX_EXTENSION_ENTRIES", 3)
    world.flood()
    world.run(100)
    action = world.only_action()
    assert action["extensions"] > 5
    assert events(action).count("extended") == 3
