"""What Alertmanager sends twice, late, in the wrong order, or falsely."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy.event
from sqlalchemy import Engine, func, select

from isolation_agent.actions.controller import Controller
from isolation_agent.alerts import intake
from isolation_agent.alerts.payload import BadPayload, parse_payload
from isolation_agent.storage.tables import Episode, InboxMessage

from ..support.world import PORT, World, alert, policy


def episodes(world: World) -> list[Episode]:
    with world.agent.store.read() as session:
        return list(session.scalars(select(Episode).order_by(Episode.id)))


def outcomes(world: World) -> dict[str, float]:
    names = ("accepted", "duplicate", "ignored", "rejected")
    return {
        n: sum(world.metric("vigia_agent_alerts_total", outcome=n, status=s) for s in ("firing", "resolved"))
        for n in names
    }


def test_duplicate_answers_200_and_changes_nothing(world: World) -> None:
    world.enforcer.flood(PORT)
    message = world.alert()
    world.post(message)
    world.step()
    before = world.only_action()
    for _ in range(3):
        assert world.post(message).status_code == 200
        world.step()
    after = world.only_action()
    seen = after["reasons"][0].pop("last_seen")
    assert seen >= before["reasons"][0].pop("last_seen")
    assert after == before
    assert world.enforcer.count("apply") == 1
    assert outcomes(world) == {"accepted": 1, "duplicate": 3, "ignored": 0, "rejected": 0}


def test_pair_of_alertmanagers(world: World) -> None:
    world.enforcer.flood(PORT)
    message = world.alert()
    for am in ("am-0", "am-1"):
        assert world.post(message, externalURL=f"http://{am}:9093").status_code == 200
    world.step()
    action = world.only_action()
    assert len(action["reasons"]) == 1
    assert world.enforcer.ids == [action["id"]]


def test_same_alert_twice_in_one_message(world: World) -> None:
    world.enforcer.flood(PORT)
    message = world.alert()
    world.post(message, message)
    world.step()
    assert len(world.only_action()["reasons"]) == 1
    assert outcomes(world)["duplicate"] == 1


def test_same_instant_in_another_zone_is_the_same_episode(world: World) -> None:
    at = world.clock.now()
    elsewhere = (at + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S.%f") + "+02:00"
    world.post(world.alert(), world.alert(startsAt=elsewhere))
    world.step()
    assert len(episodes(world)) == 1


def test_two_alerts_on_one_target_are_two_reasons_of_one_action(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert(), world.alert(labels={"severity": "warning"}))
    world.step()
    assert len(world.only_action()["reasons"]) == 2
    assert world.enforcer.count("apply") == 1


def test_firing_and_resolved_before_anybody_looked(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert())
    world.post(world.alert(status="resolved"))
    world.step()
    action = world.only_action()
    assert action["ended_at"] is not None
    assert world.enforcer.count("apply") == 0


def test_resolved_before_firing_is_harmless(world: World) -> None:
    world.post(world.alert(status="resolved"))
    world.step()
    assert world.actions() == []
    world.post(world.alert())
    world.run(3)
    assert world.actions() == [], "out of order, and the source is calm"
    world.enforcer.flood(PORT)
    world.run(1)
    assert world.only_action()["state"] == "active", "it does flood after all"


def test_late_resolve_of_an_earlier_episode_leaves_the_newer_one_alone(world: World) -> None:
    world.post(world.alert())
    world.step()
    earlier = world.clock.now()
    world.clock.advance(60)
    action = world.flood()
    world.post(alert(earlier, status="resolved"))
    world.run(5)
    by_start = {e.starts_at: e.status for e in episodes(world)}
    assert by_start[earlier] == "resolved"
    assert list(by_start.values()).count("firing") == 1
    assert world.action(action["id"])["state"] == "active"


def test_fires_again_with_the_same_start_after_resolved(world: World) -> None:
    world.enforcer.flood(PORT)
    message = world.alert()
    world.post(message)
    world.step()
    world.enforcer.calm(PORT)
    world.post(message | {"status": "resolved"})
    world.run(40)
    assert world.actions()[0]["state"] == "reverted"
    world.post(message)
    world.run(5)
    assert len(world.actions()) == 1, "fires, but nothing is to be seen at the source"
    world.enforcer.flood(PORT)
    world.run(2)
    newest = world.action(world.actions()[0]["id"])
    assert newest["state"] == "active"
    assert "alert.refired" in world.audit_events()
    count = world.metric("vigia_isolation_reaction_seconds_count", stage="notify")
    assert count == 1, "an alert that is no longer news says nothing about the time it took"
    assert world.metric("vigia_isolation_reaction_seconds_count", stage="apply") == 2


def test_replayed_old_alert_gives_no_action(world: World) -> None:
    message = world.alert()
    world.clock.advance(301)
    assert world.post(message).status_code == 200
    world.run(30)
    assert world.actions() == []
    assert "alert.stale" in world.audit_events()
    assert outcomes(world)["ignored"] == 1


def test_replay_of_a_handled_alert_gives_no_second_action(world: World) -> None:
    message = world.alert()
    world.enforcer.flood(PORT)
    world.post(message)
    world.step()
    world.enforcer.calm(PORT)
    world.post(message | {"status": "resolved"})
    world.run(60)
    world.clock.advance(86_400)
    world.post(message)
    world.run(10)
    assert len(world.actions()) == 1


def test_old_alert_with_evidence_at_the_source_is_acted_upon(world: World) -> None:
    message = world.alert()
    world.clock.advance(3600)
    world.enforcer.flood(PORT)
    world.post(message)
    world.step()
    assert world.only_action()["state"] == "active"


def test_alert_from_the_future_needs_evidence_too(world: World) -> None:
    message = alert(world.clock.now() + timedelta(hours=1))
    world.post(message)
    world.run(3)
    assert world.actions() == []


def test_alert_that_nothing_bears_out_ends_with_nothing_done(world: World) -> None:
    message = world.alert()
    world.post(message)
    world.step()
    assert world.only_action()["state"] == "pending_approval"
    world.post(message | {"status": "resolved"})
    world.run(3)
    assert world.only_action()["cause"] == "resolved"
    assert world.enforcer.count("apply") == 0


def test_flood_that_starts_again_under_the_same_alert(world: World) -> None:
    world.flood()
    world.enforcer.calm(PORT)
    world.run(12)
    world.enforcer.flood(PORT)
    world.run(5)
    assert len(world.actions()) == 1, "the cooldown of 20 s holds, without a further record"
    world.run(20)
    first, second = world.actions()
    assert (first["state"], second["state"]) == ("active", "reverted")
    assert first["created_at"] > second["ended_at"]


def test_alert_that_nobody_repeats_is_forgotten(world: World) -> None:
    world.extra = {"controller": {"episode_timeout": "100s"}}
    world.guards = {"kill_switch": True}
    world.flood()
    world.run(101, each=1.0)
    assert world.only_action()["ended_at"] is not None


@pytest.mark.parametrize(
    ("labels", "outcome"),
    [
        ({"alertname": "Another"}, "ignored"),
        ({"isolate": "never"}, "ignored"),
        ({"policy": "another"}, "ignored"),
        ({"isolate": None}, "ignored"),
        ({"port": None}, "rejected"),
        ({"tenant": ""}, "rejected"),
        ({"node": "lb9"}, "rejected"),
        ({"port": "a b"}, "rejected"),
        ({"port": "../../limits"}, "rejected"),
        ({"port": "p;reboot"}, "rejected"),
        ({"port": "p\nq"}, "rejected"),
        ({"port": "p\x00"}, "rejected"),
        ({"tenant": "x" * 254}, "rejected"),
        ({"tenant": "réd"}, "rejected"),
    ],
)
def test_alerts_that_are_not_for_us_or_make_no_sense(
    world: World, labels: dict[str, Any], outcome: str
) -> None:
    assert world.post(world.alert(labels=labels)).status_code == 200
    world.step()
    assert world.actions() == []
    assert outcomes(world)[outcome] == 1
    assert ("alert.rejected" in world.audit_events()) is (outcome == "rejected")
    assert episodes(world) == []


def test_bad_alert_does_not_take_the_good_one_with_it(world: World) -> None:
    world.enforcer.flood(PORT)
    world.post(world.alert(port="; rm"), world.alert())
    world.step()
    assert world.only_action()["state"] == "active"


def test_hostile_text_stays_text(world: World) -> None:
    nasty = "<script>alert(1)</script>\n\x1b[2J'; DROP TABLE action; -- ${jndi} \u202e"
    world.enforcer.flood(PORT)
    world.post(world.alert(labels={"severity": nasty}, annotations={"summary": nasty}))
    world.step()
    action = world.only_action()
    assert action["state"] == "active"
    assert action["reasons"][0]["labels"]["severity"] == nasty
    assert action["reasons"][0]["annotations"]["summary"] == nasty
    assert len(world.audit_path.read_text().splitlines()) == world.agent.audit.head.seq, "one line a record"


def test_two_policies_on_one_port_share_a_limit_and_the_stricter_release_holds(world: World) -> None:
    world.policies = [
        policy("udp-flood", ttl="60s", release={"hold": "5s", "offered_below": 0.9, "probe": "0s"}),
        policy(
            "contract",
            match={"alertname": "Breach"},
            ttl="60s",
            release={"hold": "20s", "offered_below": 0.5, "probe": "0s"},
        ),
    ]
    world.flood()
    breach = {"alertname": "Breach", "policy": "contract"}
    world.post(world.alert(labels=breach))
    world.step()
    action = world.only_action()
    assert [r["policy"] for r in action["reasons"]] == ["udp-flood", "contract"]
    world.enforcer.ports[PORT].offered = 0.7 * 5_000_000
    world.run(30)
    assert world.only_action()["state"] == "active", "below the first threshold, above the second"
    world.enforcer.calm(PORT)
    world.run(18)
    assert world.only_action()["state"] == "active", "the longer hold"
    world.run(4)
    assert world.only_action()["state"] == "reverted"


def test_stricter_release_ends_with_the_alert_that_asked_for_it(world: World) -> None:
    world.policies = [
        policy("udp-flood", ttl="60s", release={"hold": "5s", "offered_below": 0.9, "probe": "0s"}),
        policy(
            "contract",
            match={"alertname": "Breach"},
            ttl="60s",
            release={"hold": "20s", "offered_below": 0.5, "probe": "0s"},
        ),
    ]
    world.flood()
    breach = world.alert(labels={"alertname": "Breach", "policy": "contract"})
    world.post(breach)
    world.step()
    world.post(breach | {"status": "resolved"})
    world.enforcer.ports[PORT].offered = 0.7 * 5_000_000
    world.run(8)
    assert world.only_action()["state"] == "reverted"


def test_two_policies_at_the_same_moment_are_merged(world: World) -> None:
    world.policies = [policy(), policy("contract", match={"alertname": "Breach"})]
    world.enforcer.flood(PORT)
    world.post(world.alert(), world.alert(labels={"alertname": "Breach", "policy": "contract"}))
    world.step()
    merged, holder = world.actions()
    assert (holder["state"], merged["cause"]) == ("active", "merged")
    assert [r["policy"] for r in world.action(holder["id"])["reasons"]] == ["udp-flood", "contract"]
    assert holder["id"] in world.action(merged["id"])["timeline"][-1]["detail"]["into"]
    assert world.enforcer.count("apply") == 1


def test_dry_policy_does_not_ride_on_a_limit_in_force(world: World) -> None:
    world.policies = [policy(), policy("trial", match={"alertname": "Trial"}, dry_run=True)]
    world.flood()
    world.post(world.alert(labels={"alertname": "Trial", "policy": "trial"}))
    world.step()
    trial, holder = world.actions()
    assert (trial["state"], trial["guard"]) == ("suppressed", "other_limit")
    suppressed = world.action(trial["id"])["timeline"][-1]
    assert suppressed["event"] == "suppressed"
    assert list(suppressed["detail"]["also"]) == ["dry_run"]
    assert len(world.action(holder["id"])["reasons"]) == 1


def test_first_policy_that_matches_decides(world: World) -> None:
    world.policies = [policy("first", level="L0"), policy("second")]
    world.post(world.alert(labels={"policy": None}))
    world.step()
    assert world.only_action()["policy"] == "first"


@pytest.mark.parametrize("many", [1_500, pytest.param(10_000, marks=pytest.mark.long)])
def test_storm_of_alerts_in_one_message(world: World, many: int) -> None:
    world.guards = {"max_active": 2, "max_per_tenant": 2}
    world.enforcer.flood(PORT)
    storm = [world.alert(labels={"severity": f"s{i}"}) for i in range(many)]
    assert world.post(*storm).status_code == 200
    world.step()
    assert outcomes(world)["accepted"] == many
    action = world.actions()[0]
    assert (action["state"], len(world.actions())) == ("active", 1)
    assert world.enforcer.count("apply") == 1
    with world.agent.store.read() as session:
        assert session.scalar(select(func.count()).select_from(Episode)) == many
    assert world.verify_audit().ok


def test_many_targets_take_no_more_queries_than_few(world: World) -> None:
    def queries(mark: str, count: int) -> int:
        world.post(*[world.alert(f"{mark}{i}") for i in range(count)])
        made: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            made.append(statement)

        sqlalchemy.event.listen(Engine, "before_cursor_execute", note)
        try:
            intake.Intake(world.agent.journal, world.agent.metrics).drain(world.agent.settings)
        finally:
            sqlalchemy.event.remove(Engine, "before_cursor_execute", note)
        return sum(statement.startswith("SELECT") for statement in made)

    few = queries("few", 10)
    assert few > 0
    assert queries("many", 400) == few
    assert len(world.actions(limit="500")) == 410


def test_many_targets_are_decided_in_portions_and_limits_come_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isolation_agent.actions.controller._UNDECIDED_PER_TURN", 3)
    world.guards = {"max_active": 1, "max_per_tenant": 1}
    for i in range(10):
        world.enforcer.add(f"p{i}", "red")
        world.enforcer.flood(f"p{i}")
    world.post(*[world.alert(f"p{i}") for i in range(10)])
    assert world.agent.controller.step() is True
    states = [a["state"] for a in world.actions()]
    assert states.count("received") == 7
    world.step()
    states = [a["state"] for a in world.actions()]
    assert (states.count("active"), states.count("suppressed")) == (1, 9)


def test_message_that_cannot_be_handled_blocks_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    take = intake._Batch._one

    def stumble(self: Any, item: Any) -> str:
        if item[0].labels["severity"] == "poison":
            raise RuntimeError("a mistake in the agent")
        return take(self, item)

    monkeypatch.setattr(intake._Batch, "_one", stumble)
    world.enforcer.flood(PORT)
    world.post(world.alert(labels={"severity": "poison"}))
    world.post(world.alert())
    world.step()
    assert world.only_action()["state"] == "active"
    assert "inbox.dropped" not in world.audit_events(), "nothing that was acknowledged is dropped"
    assert world.audit_events().count("alert.quarantined") == 1
    (kept,) = world.api("GET", "/v1/quarantine").get_json()["alerts"]
    assert "RuntimeError" in kept["problem"]
    assert "poison" in kept["content"]
    with world.agent.store.read() as session:
        assert session.scalar(select(func.count()).select_from(InboxMessage)) == 0


@pytest.mark.parametrize("where", [0, 1, 7, 499, 500, 733])
def test_alerts_that_cannot_be_handled_cost_their_neighbours_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, where: int
) -> None:
    """Whatever field it is: two alerts of one large message break the agent, in any place."""
    take = intake._Batch._one
    poison = {where, 600}

    def stumble(self: Any, item: Any) -> str:
        if item[0].labels["severity"] in {str(i) for i in poison}:
            raise OverflowError("date value out of range")
        return take(self, item)

    monkeypatch.setattr(intake._Batch, "_one", stumble)
    world.guards = {"breaker": {"actions": 10_000}}
    for i in range(734):
        world.enforcer.add(f"p{i}", "red")
    message = [world.alert(f"p{i}", labels={"severity": str(i)}) for i in range(734)]
    bad = world.alert(startsAt="0001-01-01T00:00:00+23:59")
    assert world.post(bad, *message).status_code == 202
    world.agent.controller.step()
    assert len(episodes(world)) == 734 - len(poison)
    assert world.inbox_depth() == 0
    kept = world.api("GET", "/v1/quarantine?limit=100").get_json()["alerts"]
    assert {a["position"] for a in kept} == {0, *(i + 1 for i in poison)}
    assert sum("OverflowError: date value out of range" in a["problem"] for a in kept) == len(poison)
    assert world.metric("vigia_agent_alerts_quarantined_total") == 1 + len(poison)
    assert world.audit_events().count("alert.quarantined") == 1


def test_a_stored_message_that_cannot_be_read_any_more_is_kept_for_people(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a change of what is accepted, while messages wait in the inbox."""
    world.post(world.alert())
    parse = parse_payload

    def refuse(raw: bytes, *rest: Any) -> Any:
        if b"poison" in raw:
            raise BadPayload("version: is not known any more", "version")
        return parse(raw, *rest)

    world.post(world.alert("lb1-blue-120", "blue", labels={"severity": "poison"}))
    monkeypatch.setattr(intake, "parse_payload", refuse)
    world.enforcer.flood(PORT)
    world.step()
    assert world.only_action()["state"] == "active"
    (kept,) = world.api("GET", "/v1/quarantine").get_json()["alerts"]
    assert "version: is not known any more" in kept["problem"]
    assert '"version":"4"' in kept["content"].replace(" ", "")
    assert world.inbox_depth() == 0


def test_an_alert_that_breaks_the_agent_later_does_not_end_the_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.enforcer.add("p1", "red")
    for port in ("p1", PORT):
        world.enforcer.flood(port)
        world.post(world.alert(port, startsAt=(world.clock.now() - timedelta(hours=1)).isoformat()))
    look = Controller._claim

    def stumble(self: Any, episode: Any, tick: Any) -> Any:
        if episode.labels["port"] == "p1":
            raise OverflowError("date value out of range")
        return look(self, episode, tick)

    monkeypatch.setattr(Controller, "_claim", stumble)
    world.run(3)
    assert [a["port"] for a in world.actions(state="active")] == [PORT]


def test_old_actions_and_episodes_are_forgotten(world: World) -> None:
    world.extra = {"limits": {"kept_actions": 2}, "controller": {"episode_timeout": "1h"}}
    world.policies = [policy(cooldown="0s")]
    world.guards = {"max_per_tenant": 10}
    for _ in range(5):
        world.enforcer.flood(PORT)
        message = world.alert()
        world.post(message)
        world.step()
        world.enforcer.calm(PORT)
        world.post(message | {"status": "resolved"})
        world.run(14)
    world.clock.advance(7200)
    world.step()
    assert [a["state"] for a in world.actions()] == ["reverted", "reverted"]
    assert len(episodes(world)) == 2, "those of the actions that are kept"


def test_action_in_force_is_never_forgotten(world: World) -> None:
    world.extra = {"limits": {"kept_actions": 1}}
    action = world.flood()
    for _ in range(3):
        over = world.alert("lb1-infra-1", "_infra")
        world.post(over)
        world.step(1)
        world.post(over | {"status": "resolved"})
        world.run(70, each=10)
    assert world.action(action["id"])["state"] == "active"
    assert len(world.actions()) == 2, "the newest of those that are over, and the one in force"
