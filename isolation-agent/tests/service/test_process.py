"""The real process: alerts, signals, death, a disk that is full."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from portkit import free_port

from isolation_agent.cli import main
from isolation_agent.clock import SystemClock
from vigia_testing import DEADLINE, eventually

from ..support.process import AgentProcess
from ..support.sockets import head_of, read_all, status_of
from ..support.world import API_TOKEN, GUARANTEE, PORT, WEBHOOK_TOKEN, World, alert, payload
from .conftest import Start, in_real_time


def now_alert() -> dict[str, Any]:
    return alert(SystemClock().now())


@pytest.fixture(scope="module")
def shared(quick_folder: Path) -> Iterator[World]:
    folder = quick_folder / "process"
    folder.mkdir()
    made = in_real_time(folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def agent(shared: World) -> Iterator[AgentProcess]:
    """An agent for the tests that do it no harm. SIGINT ends it as cleanly as SIGTERM does."""
    made = AgentProcess(shared.write_files()).wait_until_ready()
    yield made
    assert made.stop(signal.SIGINT) == 0
    assert "Traceback" not in made.log


def test_flood_from_alert_to_release(shared: World, agent: AgentProcess) -> None:
    shared.enforcer.flood(PORT)
    assert agent.post(now_alert()).json() == {"stored": 1, "refused": [], "refused_total": 0}
    action = agent.wait_for_state("active")
    limit = shared.enforcer.limit_of(PORT)
    assert limit is not None
    assert (limit.id, limit.rate) == (action["id"], GUARANTEE)
    eventually(lambda: agent.actions()[0]["extensions"] >= 2, "extended twice")
    assert set(shared.enforcer.ids) == {action["id"]}
    shared.enforcer.calm(PORT)
    action = agent.wait_for_state("reverted")
    assert action["cause"] == "evidence"
    assert shared.enforcer.limit_of(PORT) is None
    instants = [t["at"] for t in action["timeline"]]
    assert instants == sorted(instants)
    assert shared.verify_audit().ok


def test_sighup_reloads_and_a_broken_file_changes_nothing(shared: World, agent: AgentProcess) -> None:
    def metric(name: str) -> str:
        found = re.search(rf"^{name} (\S+)$", agent.get("/metrics").text, re.MULTILINE)
        return found[1] if found else ""

    ok = "vigia_agent_config_last_reload_successful"
    (shared.dir / "policies.yaml").write_text("version: 1\npolices: []\n")
    agent.process.send_signal(signal.SIGHUP)
    eventually(lambda: metric(ok) == "0.0", "the failure shows")
    assert 'unknown key \\"polices\\"' in agent.log
    shared.extra["dry_run"] = True
    shared.write_files()
    agent.process.send_signal(signal.SIGHUP)
    eventually(lambda: metric(ok) == "1.0" and metric("vigia_agent_dry_run") == "1.0", "reloaded")
    actors = [r["actor"] for r in shared.audit_records() if r["event"] == "config.reloaded"]
    assert actors == ["signal"]


def test_second_agent_on_the_same_files(
    shared: World, agent: AgentProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--config", str(shared.config_path)]) == 1
    assert "another isolation-agent writes it" in capsys.readouterr().err
    assert agent.get("/-/ready").status_code == 200


def test_sigterm_ends_cleanly_and_leaves_nothing_behind(live: World, start: Start) -> None:
    live.extra["listen"] = f"127.0.0.1:{free_port()}"  # which nobody else is given when it is free again
    agent = start("--log.format", "json", "--log.level", "debug")
    agent.get("/v1/overview")
    assert agent.stop(signal.SIGTERM) == 0
    with pytest.raises(ConnectionRefusedError), socket.create_connection(agent.address, timeout=5):
        pass
    assert "Traceback" not in agent.log
    assert sorted(p.name for p in live.dir.iterdir()) == [
        "agent.db", "agent.log", "agent.yaml", "api.token", "audit.jsonl", "enforcer.token", "policies.yaml",
        "webhook.token",
    ]  # fmt: skip
    records = [json.loads(line) for line in agent.log.splitlines()]
    assert {"time", "level", "source", "msg"} <= set(records[0])
    assert [r["path"] for r in records if r["msg"] == "request" and r["path"] == "/v1/overview"]
    for token in (WEBHOOK_TOKEN, API_TOKEN, "enforcer-token"):
        assert token not in agent.log


def test_death_and_restart_lose_neither_messages_nor_limits(live: World, start: Start) -> None:
    live.policies[0]["ttl"] = "60s"  # on a busy machine a start takes its time
    live.enforcer.break_next("state", "drop", left=None)  # nothing can be decided for now
    first = start()
    live.enforcer.flood(PORT)
    assert first.post(now_alert()).status_code == 200
    first.kill()
    assert live.enforcer.count("apply") == 0
    live.enforcer.faults.clear()
    second = start()
    action = second.wait_for_state("active")
    assert action["policy"] == "udp-flood", "the acknowledged message was on disk"
    second.kill()
    asked = [c.body for c in live.enforcer.calls if c.operation == "apply"]
    assert {body["ttl_seconds"] for body in asked if body} == {60}, "without the agent, each ends by itself"
    third = start()
    found = third.wait_for_state("active")
    assert found["id"] == action["id"]
    assert "resumed" in [t["event"] for t in found["timeline"]]
    assert set(live.enforcer.ids) == {action["id"]}
    live.enforcer.calm(PORT)
    third.wait_for_state("reverted")
    third.stop()
    assert live.verify_audit().ok


def test_an_agent_whose_database_is_lost_ends_and_begins_a_new_one(live: World, start: Start) -> None:
    first = start()
    elsewhere = alert(SystemClock().now(), labels={"node": "elsewhere"})
    assert first.post(elsewhere).status_code == 200
    eventually(lambda: "alert.rejected" in live.audit_events(), "the alert to be on record")
    for part in ("", "-wal", "-shm"):
        (live.dir / f"agent.db{part}").unlink(missing_ok=True)
    assert first.process.wait(timeout=DEADLINE) == 1
    assert "was removed or replaced while it was open" in first.log
    second = start()
    assert second.get("/-/ready").status_code == 200
    assert "database.new" in live.audit_events()
    assert live.verify_audit().ok


def test_full_disk_is_503_and_the_agent_says_so(live: World) -> None:
    config = live.write_files()

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    log = live.dir / "agent.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "isolation_agent", "--config", str(config)],
            stdout=sink,
            stderr=sink,
            preexec_fn=little_room,  # noqa: PLW1509 (it takes no lock)
        )
    try:
        url = eventually(lambda: re.search(r"address=(\S+)", log.read_text()), "listening")[1]
        host, _, port = url.rpartition(":")
        statuses = [raw_post(host, int(port), 200_000) for _ in range(12)]
        assert statuses[0] == 200
        assert statuses[-1] == 503, statuses
        assert set(statuses) == {200, 503}
        assert "cannot store anything" in log.read_text()
    finally:
        process.terminate()
        process.wait(DEADLINE)


def raw_post(host: str, port: int, padding: int) -> int:
    body = json.dumps(payload() | {"padding": "x" * padding}).encode()
    head = head_of("POST", "/v1/webhook/alertmanager", f"Content-Length: {len(body)}", "Connection: close")
    with socket.create_connection((host, port), timeout=DEADLINE) as s:
        s.sendall(head + body)
        return status_of(read_all(s))
