"""The real process: gunicorn, signals, death, hostile connections."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isolation_agent.clock import SystemClock

from ..support.process import DEADLINE, AgentProcess, alive, eventually
from ..support.world import API_TOKEN, GUARANTEE, PORT, WEBHOOK_TOKEN, World, alert, payload, policy

Start = Callable[..., AgentProcess]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world in real time, for an agent in a process of its own."""
    made = World(tmp_path, SystemClock())
    made.policies = [
        policy(ttl="6s", release={"hold": "1s", "offered_below": 0.8, "probe": "0s"}, cooldown="1s")
    ]
    made.extra = {"controller": {"tick": "200ms", "reconcile": "1s", "backoff": "100ms"}}
    yield made
    made.close()


@pytest.fixture
def start(world: World) -> Iterator[Start]:
    """Starts agents, and sees to it that none is left."""
    started: list[AgentProcess] = []

    def start(*options: str) -> AgentProcess:
        started.append(AgentProcess(world.write_files(), *options))
        return started[-1].wait_until_ready()

    yield start
    for agent in started:
        if agent.process.poll() is None:
            agent.stop(signal.SIGKILL)


def now_alert(**extra: object) -> dict[str, object]:
    return alert(SystemClock().now(), **extra)  # type: ignore[arg-type]


def test_flood_from_alert_to_release(world: World, start: Start) -> None:
    agent = start()
    world.enforcer.flood(PORT)
    assert agent.post(now_alert()).json() == {"stored": 1}
    action = agent.wait_for_state("active")
    limit = world.enforcer.limit_of(PORT)
    assert limit is not None
    assert (limit.id, limit.rate) == (action["id"], GUARANTEE)
    eventually(lambda: agent.actions()[0]["extensions"] >= 2, "extended twice")
    assert world.enforcer.ids == [action["id"]]
    world.enforcer.calm(PORT)
    action = agent.wait_for_state("reverted")
    assert action["cause"] == "evidence"
    assert world.enforcer.limit_of(PORT) is None
    instants = [t["at"] for t in action["timeline"]]
    assert instants == sorted(instants)
    assert agent.stop() == 0
    assert world.verify_audit().ok


def test_sigterm_ends_cleanly_and_leaves_nothing_running(world: World, start: Start) -> None:
    agent = start()
    (worker,) = agent.children()
    assert agent.stop(signal.SIGTERM) == 0
    assert not alive(worker)
    with pytest.raises(ConnectionRefusedError), socket.create_connection(agent.address, timeout=5):
        pass
    assert "Traceback" not in agent.log
    assert sorted(p.name for p in world.dir.iterdir()) == [
        "agent.db", "agent.log", "agent.yaml", "api.token", "audit.jsonl", "enforcer.token", "policies.yaml",
        "webhook.token",
    ]  # fmt: skip


def test_interrupt_ends_cleanly(start: Start) -> None:
    agent = start()
    assert agent.stop(signal.SIGINT) == 0


def test_sigkill_and_restart_go_on_with_the_same_limit(world: World, start: Start) -> None:
    agent = start()
    world.enforcer.flood(PORT)
    agent.post(now_alert())
    action = agent.wait_for_state("active")
    agent.kill()
    again = start()
    found = again.wait_for_state("active")
    assert found["id"] == action["id"]
    assert "resumed" in [t["event"] for t in found["timeline"]]
    assert set(world.enforcer.ids) == {action["id"]}
    world.enforcer.calm(PORT)
    again.wait_for_state("reverted")
    again.stop()
    assert world.verify_audit().ok


def test_killed_and_not_restarted_the_limit_ends_by_itself(world: World, start: Start) -> None:
    agent = start()
    world.enforcer.flood(PORT)
    agent.post(now_alert())
    agent.wait_for_state("active")
    agent.kill()
    eventually(lambda: world.enforcer.limit_of(PORT) is None, "gone at the end of its TTL")


def test_acknowledged_message_survives_sigkill(world: World, start: Start) -> None:
    world.extra["controller"] = {"tick": "1s"}
    agent = start()
    os.kill(agent.children()[0], signal.SIGSTOP)  # neither its threads nor the controller run
    os.kill(agent.children()[0], signal.SIGCONT)
    world.enforcer.flood(PORT)
    assert agent.post(now_alert()).status_code == 200
    agent.kill()
    again = start()
    assert again.wait_for_state("active")["policy"] == "udp-flood"


def test_dead_worker_is_replaced_and_goes_on(world: World, start: Start) -> None:
    agent = start()
    world.enforcer.flood(PORT)
    agent.post(now_alert())
    action = agent.wait_for_state("active")
    (worker,) = agent.children()
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: agent.children() and agent.children() != [worker], "a new worker")
    agent.wait_until_ready()
    assert agent.wait_for_state("active")["id"] == action["id"]


def test_new_worker_uses_the_configuration_of_the_last_reload(world: World, start: Start) -> None:
    agent = start()
    world.extra["dry_run"] = True
    world.write_files()
    assert agent.send("POST", "/-/reload").status_code == 200
    (worker,) = agent.children()
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: agent.children() and agent.children() != [worker], "a new worker")
    agent.wait_until_ready()
    eventually(lambda: "vigia_agent_dry_run 1.0" in agent.get("/metrics").text, "dry run")


def test_sighup_reloads_and_a_broken_file_changes_nothing(world: World, start: Start) -> None:
    agent = start()

    def metric(name: str) -> str:
        found = re.search(rf"^{name} (\S+)$", agent.get("/metrics").text, re.MULTILINE)
        return found[1] if found else ""

    (worker,) = agent.children()
    ok = "vigia_agent_config_last_reload_successful"
    (world.dir / "policies.yaml").write_text("version: 1\npolices: []\n")
    agent.process.send_signal(signal.SIGHUP)
    eventually(lambda: metric(ok) == "0.0", "the failure shows")
    assert 'unknown key \\"polices\\"' in agent.log
    world.extra["dry_run"] = True
    world.write_files()
    agent.process.send_signal(signal.SIGHUP)
    eventually(lambda: metric(ok) == "1.0" and metric("vigia_agent_dry_run") == "1.0", "reloaded")
    assert agent.children() == [worker], "the same worker, so that no counter starts again"


def test_signals_that_would_add_workers_are_ignored(start: Start) -> None:
    agent = start()
    workers = agent.children()
    for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2, signal.SIGUSR1):
        agent.process.send_signal(number)
    eventually(lambda: agent.log.count("exactly one worker") == 3, "ignored")
    assert agent.children() == workers
    assert agent.get("/-/healthy").status_code == 200


def test_logs_are_json_on_request(world: World, start: Start) -> None:
    agent = start("--log.format", "json", "--log.level", "debug")
    agent.stop()
    records = [json.loads(line) for line in agent.log.splitlines()]
    assert {"time", "level", "source", "msg"} <= set(records[0])
    assert any(r["source"] == "gunicorn.error" for r in records)
    for token in (WEBHOOK_TOKEN, API_TOKEN, "enforcer-token"):
        assert token not in agent.log


# Starts that fail


def fails_to_start(config: Path, *, code: int = 1) -> str:
    """Run the agent, expect it to end at once; returns its single line."""
    done = subprocess.run(
        [sys.executable, "-m", "isolation_agent", "run", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("isolation-agent: ")
    return line


def files(world: World) -> set[str]:
    return {p.name for p in world.dir.iterdir()}


def test_busy_port(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        world.extra["listen"] = f"127.0.0.1:{port}"
        config = world.write_files()
        before = files(world)
        line = fails_to_start(config)
    assert (
        f"listen: 127.0.0.1:{port}: is in use; stop the process that holds it or choose another address"
        in line
    )
    assert files(world) == before, "nothing is left behind"


def test_address_of_another_machine(world: World) -> None:
    world.extra["listen"] = "203.0.113.1:9874"
    assert "listen: 203.0.113.1:9874: cannot listen" in fails_to_start(world.write_files())


def test_name_that_is_no_address(world: World) -> None:
    world.extra["listen"] = "no.such.host.invalid:9874"
    assert "is not an address of this machine" in fails_to_start(world.write_files())


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"database": "sqlite:///absent/agent.db"}, "database: .*there is no directory .*/absent; create it"),
        ({"audit_log": "absent/audit.jsonl"}, "audit_log: .*there is no directory .*/absent; create it"),
        ({"audit_log": "."}, "audit_log: .*Is a directory"),
        ({"colour": "blue"}, 'unknown key "colour"'),
    ],
)
def test_bad_configuration(world: World, extra: dict[str, str], says: str) -> None:
    world.extra |= extra
    config = world.write_files()
    before = files(world)
    assert re.search(says, fails_to_start(config))
    assert files(world) == before


def test_missing_and_open_token_files(world: World) -> None:
    config = world.write_files()
    (world.dir / "api.token").chmod(0o644)
    assert "everybody on this machine has access to it; run: chmod o=" in fails_to_start(config)
    (world.dir / "api.token").unlink()
    assert "auth.api_token_file: " in (line := fails_to_start(config))
    assert "no such file; create one" in line
    assert not (world.dir / "agent.db").exists()


def test_second_agent_on_the_same_files(world: World, start: Start) -> None:
    start()
    assert "another isolation-agent writes it" in fails_to_start(world.config_path)


def test_broken_audit_log_is_kept(world: World) -> None:
    world.audit_path.write_text('{"seq": 1}\n')
    config = world.write_files()
    before = files(world)
    assert "keep the file as evidence, move it away and start again" in fails_to_start(config)
    assert world.audit_path.read_text() == '{"seq": 1}\n'
    assert files(world) == before


def test_no_configuration_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "isolation_agent"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "isolation-agent: --config FILE is missing; see isolation-agent --help\n"


# A disk that is full


def test_full_disk_is_503_and_the_agent_says_so(world: World) -> None:
    config = world.write_files()

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    log = world.dir / "agent.log"
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
    finally:
        process.terminate()
        process.wait(DEADLINE)


def raw_post(host: str, port: int, padding: int) -> int:
    body = json.dumps(payload() | {"padding": "x" * padding}).encode()
    head = head_of("POST", "/v1/webhook/alertmanager", f"Content-Length: {len(body)}")
    with socket.create_connection((host, port), timeout=DEADLINE) as s:
        s.sendall(head + body)
        return int(read_all(s).split()[1])


# Hostile connections


def head_of(method: str, path: str, *headers: str, token: str = WEBHOOK_TOKEN) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def read_all(s: socket.socket) -> bytes:
    raw = b""
    while data := s.recv(65_536):
        raw += data
    return raw


def connect(agent: AgentProcess) -> socket.socket:
    return socket.create_connection(agent.address, timeout=DEADLINE)


def status_of(raw: bytes) -> int:
    return int(raw.split()[1]) if raw else 0


def memory(agent: AgentProcess) -> int:
    """Resident size of the worker in bytes."""
    (worker,) = agent.children()
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{worker}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_hundred_megabytes_are_refused_and_the_answer_arrives(start: Start) -> None:
    agent = start()
    before = memory(agent)
    size = 100 << 20
    with connect(agent) as s:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", f"Content-Length: {size}"))
        chunk = b" " * (1 << 20)
        for _ in range(100):
            s.sendall(chunk)
        assert status_of(read_all(s)) == 413
    assert memory(agent) - before < 48 << 20


def test_hundred_megabytes_in_chunks(world: World, start: Start) -> None:
    world.extra["limits"] = {"body_bytes": 1 << 20}
    agent = start()
    before = memory(agent)
    with connect(agent) as s:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", "Transfer-Encoding: chunked"))
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        for _ in range(100):
            s.sendall(chunk)
        s.sendall(b"0\r\n\r\n")
        assert status_of(read_all(s)) == 413
    assert memory(agent) - before < 48 << 20


def test_chunked_message_is_taken(world: World, start: Start) -> None:
    agent = start()
    body = json.dumps(payload(now_alert())).encode()
    pieces = [body[i : i + 100] for i in range(0, len(body), 100)]
    with connect(agent) as s:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", "Transfer-Encoding: chunked"))
        for piece in pieces:
            s.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert status_of(read_all(s)) == 200
    agent.wait_for_state("active")


def test_refused_without_a_token_before_the_body_is_read(start: Start) -> None:
    agent = start()
    with connect(agent) as s:
        head = head_of("POST", "/v1/webhook/alertmanager", "Content-Length: 1000000", token="x" * 20)
        s.sendall(head)  # and nothing more
        s.shutdown(socket.SHUT_WR)
        assert status_of(read_all(s)) == 401


NO_REQUESTS = [
    b"nonsense\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n",
    b"POST /-/reload HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /-/reload HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /-/reload HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    head_of("POST", "/v1/webhook/alertmanager", "Transfer-Encoding: chunked") + b"zz\r\n",
    head_of("POST", "/v1/webhook/alertmanager", "Content-Length: 10") + b"{}",
]


def test_requests_that_are_none(world: World, start: Start) -> None:
    agent = start()
    for raw in NO_REQUESTS:
        with connect(agent) as s:
            s.sendall(raw)
            s.shutdown(socket.SHUT_WR)
            assert status_of(read_all(s)) in (0, 400, 401, 413, 414, 431, 501, 505), raw[:60]
    assert agent.get("/-/healthy").status_code == 200
    assert agent.actions() == []
    assert "config.reloaded" not in world.audit_path.read_text()


def test_slow_and_silent_clients_do_not_hold_the_agent_up(world: World, start: Start) -> None:
    world.extra["limits"] = {"threads": 2, "request_time": "1s"}
    agent = start()
    silent = [connect(agent) for _ in range(20)]
    slow = [connect(agent) for _ in range(3)]
    for s in slow:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", "Content-Length: 1000")[:-4])
    body = [connect(agent) for _ in range(3)]
    for s in body:
        s.sendall(head_of("POST", "/v1/webhook/alertmanager", "Content-Length: 1000") + b"x")
    try:
        assert agent.get("/-/healthy").status_code == 200, "served although two threads are all there are"
        for s in silent + slow:
            assert read_all(s) == b"", "closed after a second"
        for s in body:
            assert status_of(read_all(s)) == 400, "a body that does not come"
    finally:
        for s in silent + slow + body:
            s.close()
    assert agent.get("/-/ready").status_code == 200


def test_clients_that_neither_read_nor_close_do_not_hold_a_thread(world: World, start: Start) -> None:
    world.extra["limits"] = {"threads": 1, "request_time": "1s"}
    agent = start()
    lazy = [connect(agent) for _ in range(5)]
    for s in lazy:
        s.sendall(head_of("GET", "/metrics"))
    assert agent.get("/-/healthy").status_code == 200
    for s in lazy:
        assert status_of(read_all(s)) == 200
        s.close()
