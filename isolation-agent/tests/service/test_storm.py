"""A storm against the real process: nothing that was answered 200 is lost, one action per target."""

from __future__ import annotations

import json
from pathlib import Path

from isolation_agent.clock import SystemClock

from .. import bench_storm
from ..support.process import AgentProcess
from ..support.world import World, payload


def test_nothing_is_lost_when_the_inbox_is_full_again_and_again(tmp_path: Path) -> None:
    world = World(tmp_path, SystemClock())
    world.extra["limits"] = {"inbox_messages": 3}
    try:
        alerts = bench_storm.floods(world, 120, "many")
        bodies = [json.dumps(payload(a)).encode() for a in alerts]
        agent = AgentProcess(world.write_files()).wait_until_ready()
        try:
            found = bench_storm.storm(agent, tmp_path / "agent.db", bodies, len(alerts), clients=8)
            assert found.lost == 0
            assert found.busy > 0, "the inbox was full at times, and Alertmanager would have sent it again"
            assert found.messages == 120
            again = bench_storm.storm(agent, tmp_path / "agent.db", bodies, 0, clients=8)
            assert again.lost == 0, "the same alerts are the same episodes"
            assert found.rss > 1 << 20
            actions = agent.get("/v1/actions?limit=500").json()["actions"]
            assert len({(a["policy"], a["port"]) for a in actions}) == len(actions)
        finally:
            agent.stop()
        assert world.verify_audit().ok
    finally:
        world.close()


def test_the_benchmark_makes_both_storms_and_turns_the_switch(tmp_path: Path) -> None:
    figures = bench_storm.run(tmp_path, 40, 4, 10)
    assert figures["one message"]["lost"] == figures["many messages"]["lost"] == 0
    assert figures["one message"]["messages"] == 1
    assert figures["many messages"]["messages"] == 40
    assert figures["bare"] > 0
    assert figures["kill switch"]["limits"] == 10
    assert figures["kill switch"]["gone"] >= figures["kill switch"]["on"] > 0
    judged = bench_storm.budgets(figures)
    assert {name for name, *_ in judged if "lost" in name} == {
        "one message: alerts lost",
        "many messages: alerts lost",
    }


def test_a_missed_budget_is_said_so() -> None:
    good = {"lost": 0, "drained": 1.0, "sent": 1.0, "p99": 0.5, "rss": 100 << 20}
    switch = {"limits": 1000, "on": 0.1, "gone": 2.0}
    rest = {"one message": good, "kill switch": switch}
    assert all(met for *_, met in bench_storm.budgets(rest | {"many messages": good}))
    bad = {"lost": 1, "drained": 11.0, "sent": 1.0, "p99": 1.5, "rss": 300 << 20}
    judged = bench_storm.budgets(rest | {"many messages": bad, "kill switch": switch | {"gone": 2.1}})
    assert [name for name, *_, met in judged if not met] == [
        "many messages: alerts lost",
        "many messages: drained after the last was accepted",
        "many messages: answered, p99",
        "many messages: resident memory",
        "kill switch: 1000 limits gone, during a storm",
    ]
