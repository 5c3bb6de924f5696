"""The real process: alerts, signals, death, a disk that is full."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from isolation_agent.cli import main
from isolation_agent.clock import SystemClock
from vigia_testing import DEADLINE, eventually

from ..support.sockets import head_of, read_all, status_of
from ..support.world import API_TOKEN, GUARANTEE, PORT, WEBHOOK_TOKEN, World, alert, payload
from .conftest import Start


def now_alert() -> dict[str, Any]:
    return alert(SystemClock().now())


def test_flood_from_alert_to_release(live: World, start: Start) -> None:
    agent = start()
    live.enforcer.flood(PORT)
    assert agent.post(now_alert()).json() == {"stored": 1, "refused": [], "refused_total": 0}
    action = agent.wait_for_state("active")
    limit = live.enforcer.limit_of(PORT)
    assert limit is not None
    assert (limit.id, limit.rate) == (action["id"], GUARANTEE)
    eventually(lambda: agent.actions()[0]["extensions"] >= 2, "extended twice")
    assert set(live.enforcer.ids) == {action["id"]}
    live.enforcer.calm(PORT)
    action = agent.wait_for_state("reverted")
    assert action["cause"] == "evidence"
    assert live.enforcer.limit_of(PORT) is None
    instants = [t["at"] for t in action["timeline"]]
    assert instants == sorted(instants)
    assert agent.stop() == 0
    assert live.verify_audit().ok


def test_sigterm_ends_cleanly_and_leaves_nothing_behind(live: World, start: Start) -> None:
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


def test_interrupt_ends_cleanly(start: Start) -> None:
    assert start().stop(signal.SIGINT) == 0


def test_sigkill_and_restart_go_on_with_the_same_limit(live: World, start: Start) -> None:
    agent = start()
    live.enforcer.flood(PORT)
    agent.post(now_alert())
    action = agent.wait_for_state("active")
    agent.kill()
    asked = [c.body for c in live.enforcer.calls if c.operation == "apply"]
    assert {body["ttl_seconds"] for body in asked if body} == {4}, "without the agent, each ends by itself"
    again = start()
    found = again.wait_for_state("active")
    assert found["id"] == action["id"]
    assert "resumed" in [t["event"] for t in found["timeline"]]
    assert set(live.enforcer.ids) == {action["id"]}
    live.enforcer.calm(PORT)
    again.wait_for_state("reverted")
    again.stop()
    assert live.verify_audit().ok


def test_acknowledged_message_survives_sigkill(live: World, start: Start) -> None:
    live.enforcer.break_next("state", "drop", left=None)  # nothing can be decided for now
    agent = start()
    live.enforcer.flood(PORT)
    assert agent.post(now_alert()).status_code == 200
    agent.kill()
    live.enforcer.faults.clear()
    again = start()
    assert again.wait_for_state("active")["policy"] == "udp-flood"


def test_sighup_reloads_and_a_broken_file_changes_nothing(live: World, start: Start) -> None:
    agent = start()

    def metric(name: str) -> str:
        found = re.search(rf"^{name} (\S+)$", agent.get("/metrics").text, re.MULTILINE)
        return found[1] if found else ""

    ok = "vigia_agent_config_last_reload_successful"
    (live.dir / "policies.yaml").write_text("version: 1\npolices: []\n")
    agent.process.send_signal(signal.SIGHUP)
    eventually(lambda: metric(ok) == "0.0", "the failure shows")
    assert 'unknown key \\"polices\\"' in agent.log
    live.extra["dry_run"] = True
    live.write_files()
    agent.process.send_signal(signal.SIGHUP)
    eventually(lambda: metric(ok) == "1.0" and metric("vigia_agent_dry_run") == "1.0", "reloaded")
    actors = [r["actor"] for r in live.audit_records() if r["event"] == "config.reloaded"]
    assert actors == ["signal"]


def test_second_agent_on_the_same_files(
    live: World, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start()
    assert main(["run", "--config", str(live.config_path)]) == 1
    assert "another isolation-agent writes it" in capsys.readouterr().err


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
