"""The command line: output, exit codes, one-line errors, no side effects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from isolation_agent import __version__
from isolation_agent.cli import main
from isolation_agent.clock import SystemClock
from vigia_catalog import part_metrics
from vigia_service import health
from vigia_testing import DEADLINE, modules_after

from .support.fake_enforcer import KernelLimit
from .support.world import GUARANTEE, PORT, World, alert, instant, payload, policy

Out = pytest.CaptureFixture[str]


def run(*arguments: str) -> int:
    return main(list(arguments))


def one_line(capsys: Out) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("isolation-agent: ")
    return line


def test_version(capsys: Out) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"isolation-agent, version {__version__}\n"


def test_help_names_every_command(capsys: Out) -> None:
    for flag in ("--help", "-h"):
        assert run(flag) == 0
        text = capsys.readouterr().out
        for word in ("run", "check-config", "simulate", "audit", "healthcheck", "--list-metrics", "--config"):
            assert word in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'; see isolation-agent --help"),
        (["--nonsense"], "No such option"),
        (["run"], "--config FILE is missing"),
        (["check-config"], "--config FILE is missing"),
        (["simulate", "--config", "x"], "Missing option '--alert'"),
        (["simulate", "--alert", "/absent/file", "--config", "x"], "'/absent/file': No such file or directory"),
        (["audit"], "Missing command"),
        (["audit", "verify"], "--config FILE is missing"),
        (["--list-metrics", "xml"], "'xml' is not one of 'text', 'json', 'markdown'"),
        (["--log.level", "loud"], "'loud' is not one of"),
        (["--log.format", "xml"], "'xml' is not one of"),
        (["healthcheck", "--url", "nonsense"], "--url nonsense: is not a URL; write for example http://127.0.0.1:9874"),
        (["healthcheck", "--url", "file:///etc/passwd"], "is not a URL"),
        (["check-config", "extra", "--config", "x"], "unexpected extra argument"),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line_and_2(arguments: list[str], says: str, capsys: Out) -> None:
    assert run(*arguments) == 2
    assert says in one_line(capsys)


# Metrics


def test_list_metrics(capsys: Out) -> None:
    declared = [m.name for m in part_metrics("agent")]
    assert run("--list-metrics") == 0
    text = capsys.readouterr().out
    heads = [line for line in text.splitlines() if not line.startswith(" ")]
    assert [head.partition("{")[0] for head in heads] == declared
    assert run("--list-metrics", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in found] == declared
    assert all(
        set(m) - {"values"} == {"name", "type", "unit", "labels", "help", "part", "pages"} for m in found
    )
    assert run("--list-metrics", "markdown") == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "| metric | type | unit | labels | help |"
    assert len(table) == len(declared) + 2


def test_every_declared_metric_is_exported_and_nothing_else(world: World) -> None:
    world.flood()
    families = {
        line.split()[2]
        for line in world.client.get("/metrics").text.splitlines()
        if line.startswith("# TYPE vigia_")
    }
    assert families == {m.name for m in part_metrics("agent")}


# Configuration


def test_check_config(world: World, capsys: Out) -> None:
    path = str(world.write_files())
    version = world.settings().policies.version
    for arguments in (["check-config", "--config", path], ["--config", path, "check-config"]):
        assert run(*arguments) == 0
        assert capsys.readouterr().out == f"{path}: OK, 1 policies (version {version}), 1 hosts\n"
    assert run("check-config", "--config", path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "config": path, "ok": True, "policies": 1, "hosts": 1, "policy_version": version
    }  # fmt: skip
    assert not (world.dir / "agent.db").exists()


def test_check_config_lists_every_mistake(world: World, capsys: Out) -> None:
    world.extra = {"dry_run": 5, "colour": "blue"}
    assert run("check-config", "--config", str(world.write_files())) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"isolation-agent: {world.config_path}:") for line in lines)


def test_check_config_reads_policies_and_tokens(world: World, capsys: Out) -> None:
    world.policies = [policy(level="L5")]
    assert run("check-config", "--config", str(world.write_files())) == 1
    assert "policies.yaml:" in (line := one_line(capsys))
    assert "needs a BGP speaker" in line
    world.policies = [policy()]
    world.write_files()
    (world.dir / "enforcer.token").chmod(0o666)
    assert run("check-config", "--config", str(world.config_path)) == 1
    assert "hosts[0].token_file" in one_line(capsys)


# Simulate


def decide(world: World, capsys: Out, *alerts: dict[str, Any]) -> list[dict[str, Any]]:
    path = world.dir / "alert.json"
    path.write_text(json.dumps(payload(*alerts) if len(alerts) != 1 else alerts[0]))
    assert run("simulate", "--alert", str(path), "--config", str(world.write_files()), "--json") == 0
    decisions: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["decisions"]
    return decisions


def fresh(**extra: Any) -> dict[str, Any]:
    return alert(SystemClock().now(), **extra)


def everything(world: World) -> dict[str, bytes]:
    """All files but the alert itself; SQLite's own bookkeeping beside the database does not count."""
    return {
        p.name: p.read_bytes()
        for p in sorted(world.dir.iterdir())
        if p.name != "alert.json" and not p.name.endswith(("-wal", "-shm"))
    }


def test_simulate_says_what_would_be_done_and_does_nothing(world: World, capsys: Out) -> None:
    world.enforcer.flood(PORT)
    world.write_files()
    before = everything(world)
    (decision,) = decide(world, capsys, fresh())
    assert (decision["decision"], decision["policy"], decision["level"]) == ("apply", "udp-flood", "L2")
    assert decision["target"] == {"node": "lb1", "port": PORT, "tenant": "red"}
    assert decision["limit"] == {"protocol": "udp", "rate_bytes_per_second": GUARANTEE, "ttl_seconds": 30.0}
    assert decision["evidence"]["offered"]["udp_bytes_per_second"] == 50_000_000
    assert {c.operation for c in world.enforcer.calls} <= {"state", "pairs"}, "it only looks"
    assert everything(world) == before, "not even a database is made"


@pytest.mark.parametrize(
    ("message", "decision", "says"),
    [
        ({"status": "resolved"}, "ignore", "hint"),
        ({"labels": {"isolate": "never"}}, "ignore", "isolate=never"),
        ({"labels": {"alertname": "Another"}}, "ignore", "no policy"),
        ({"labels": {"port": None}}, "reject", "label port"),
        ({"labels": {"isolate": "manual"}}, "ignore", "no policy"),
        ({"startsAt": instant(SystemClock().now() - timedelta(hours=1))}, "ignore", "shows no flood"),
    ],
)
def test_simulate_other_outcomes(
    world: World, capsys: Out, message: dict[str, Any], decision: str, says: str
) -> None:
    (got,) = decide(world, capsys, fresh(**message))
    assert got["decision"] == decision
    assert says in got["reason"]


def test_simulate_refuses_an_alert_that_cannot_be_right(world: World, capsys: Out) -> None:
    path = world.dir / "alert.json"
    path.write_text(json.dumps(payload(fresh(), fresh(startsAt="9999-01-01T00:00:00Z"))))
    assert run("simulate", "--alert", str(path), "--config", str(world.write_files())) == 1
    assert "alerts[1].startsAt: is not within 366 days" in one_line(capsys)


def test_simulate_guards(world: World, capsys: Out) -> None:
    world.guards = {"infrastructure": ["red"]}
    world.extra = {"dry_run": True}
    (got,) = decide(world, capsys, fresh())
    assert (got["decision"], got["guard"], list(got["also"])) == ("suppress", "dry_run", ["infrastructure"])


def test_simulate_observe(world: World, capsys: Out) -> None:
    world.policies = [policy(level="L0")]
    (got,) = decide(world, capsys, fresh())
    assert got["decision"] == "observe"
    assert "limit" not in got


def test_simulate_with_an_unreachable_enforcer(world: World, capsys: Out) -> None:
    world.enforcer.leave()
    (got,) = decide(world, capsys, fresh())
    assert (got["decision"], got["guard"]) == ("suppress", "inventory")
    assert "refused" in got["reason"]


def test_simulate_a_whole_message_in_text(world: World, capsys: Out) -> None:
    path = world.dir / "alert.json"
    world.enforcer.flood(PORT)
    path.write_text(json.dumps(payload(fresh(), fresh(labels={"alertname": "X", "policy": None}))))
    assert run("simulate", "--alert", str(path), "--config", str(world.write_files())) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        f"apply: lb1/{PORT} (red) under policy udp-flood: cap all but TCP of {PORT} at the guarantee of 40.0 Mbit/s"
    )
    assert second == "ignore: X: no policy matches its labels"


def test_simulate_sees_what_the_running_agent_has_on_record(world: World, capsys: Out) -> None:
    world.policies = [policy(cooldown="1h")]  # simulate goes by the time of day
    world.clock.wall = SystemClock().now()
    world.flood()
    (got,) = decide(world, capsys, fresh())
    assert (got["decision"], got["guard"]) == ("suppress", "other_limit")
    world.enforcer.calm(PORT)
    world.run(12)
    (got,) = decide(world, capsys, fresh())
    assert (got["decision"], got["guard"]) == ("suppress", "cooldown")
    world.api("PUT", "/v1/killswitch", json={"on": True})
    (got,) = decide(world, capsys, fresh())
    assert (got["decision"], got["guard"]) == ("suppress", "kill_switch")
    assert list(got["also"]) == ["cooldown"]


def test_simulate_counts_limits_in_force(world: World, capsys: Out) -> None:
    world.guards = {"max_active": 1, "max_per_tenant": 1}
    world.flood()
    (got,) = decide(world, capsys, fresh(port="lb1-blue-120", tenant="blue"))
    assert (got["decision"], got["guard"]) == ("suppress", "max_active")


def test_simulate_and_a_limit_of_somebody_else(world: World, capsys: Out) -> None:
    world.enforcer.ports[PORT].limit = KernelLimit("x", 1, 1, world.clock.monotonic() + 50)
    (got,) = decide(world, capsys, fresh())
    assert got["guard"] == "other_limit"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"status": "firing"}', '{"alerts": 5}', "[" * 5000])
def test_simulate_bad_files(world: World, capsys: Out, content: str) -> None:
    path = world.dir / "alert.json"
    path.write_text(content)
    assert run("simulate", "--alert", str(path), "--config", str(world.write_files())) == 1
    assert one_line(capsys).startswith(f"isolation-agent: {path}: ")


def test_simulate_huge_file(world: World, capsys: Out) -> None:
    path = world.dir / "alert.json"
    path.write_bytes(b" " * ((16 << 20) + 1))
    assert run("simulate", "--alert", str(path), "--config", str(world.write_files())) == 1
    assert "is larger than" in one_line(capsys)


# Audit


def test_audit_verify(world: World, capsys: Out) -> None:
    world.flood()
    head = world.agent.audit.head
    path, log = str(world.config_path), world.audit_path
    assert run("audit", "verify", "--config", path) == 0, "while the agent runs"
    assert capsys.readouterr().out == f"{log}: OK, {head.seq} records, the last is {head.seq} {head.hash}\n"
    assert run("audit", "verify", "--file", str(log), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(log), "ok": True, "records": head.seq, "first_seq": 1, "last_seq": head.seq,
        "last_hash": head.hash, "line": None, "problem": None,
    }  # fmt: skip


def test_audit_verify_names_the_first_broken_record(world: World, capsys: Out) -> None:
    world.flood()
    lines = world.audit_path.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"actor":"', '"actor":"someone else, not ')
    world.audit_path.write_text("".join(lines))
    assert run("audit", "verify", "--config", str(world.config_path)) == 1
    line = one_line(capsys)
    assert (
        f"{world.audit_path}:3: record 3 does not match its own hash; the 2 records before it are intact"
        in line
    )
    assert run("audit", "verify", "--file", str(world.audit_path), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["line"], found["records"]) == (False, 3, 2)


def test_audit_verify_without_a_file(tmp_path: Path, capsys: Out) -> None:
    assert run("audit", "verify", "--file", str(tmp_path / "absent")) == 1
    assert "cannot be read" in one_line(capsys)


# Health


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A server that answers /-/ready as it is told, and that may take its time."""
    monkeypatch.setattr(health, "_SECONDS", DEADLINE)
    answer: dict[str, Any] = {"status": 200, "body": b"ready\n"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer["path"] = self.path
            self.send_response(answer["status"])
            self.end_headers()
            self.wfile.write(answer["body"])

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    answer["url"] = f"http://127.0.0.1:{server.server_address[1]}/-/ready"
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield answer
    server.shutdown()
    server.server_close()
    thread.join()


def test_healthcheck(answering: dict[str, Any], capsys: Out) -> None:
    url = answering["url"]
    assert run("healthcheck", "--url", url) == 0
    assert capsys.readouterr().out == f"{url}: ready\n"
    assert answering["path"] == "/-/ready"
    assert run("healthcheck", "--url", url, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"url": url, "ready": True, "answer": "ready"}


def test_healthcheck_of_an_agent_that_is_not_ready(answering: dict[str, Any], capsys: Out) -> None:
    answering |= {"status": 503, "body": b"not ready: why\n"}
    assert run("healthcheck", "--url", answering["url"]) == 1
    assert "answers 503: not ready: why" in one_line(capsys)
    assert run("healthcheck", "--url", answering["url"], "--json") == 1
    assert json.loads(capsys.readouterr().out)["ready"] is False


def test_healthcheck_of_the_configured_address(answering: dict[str, Any], world: World, capsys: Out) -> None:
    world.extra = {"listen": answering["url"].removeprefix("http://").partition("/")[0]}
    assert run("healthcheck", "--config", str(world.write_files())) == 0
    assert "ready" in capsys.readouterr().out


def test_healthcheck_when_nobody_listens(capsys: Out) -> None:
    assert run("healthcheck", "--url", "http://127.0.0.1:1/-/ready") == 1
    assert "is the program running?" in one_line(capsys)


# Start


HEAVY = {
    "flask",
    "werkzeug",
    "sqlalchemy",
    "psycopg",
    "httpx",
    "pydantic",
    "yaml",
    "prometheus_client",
    "h11",
    "asyncio",
}


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("simulate", "--help"), ("audit", "verify", "-h")]
)
def test_the_command_line_starts_light(arguments: tuple[str, ...]) -> None:
    loaded = modules_after("isolation-agent", *arguments)
    assert "isolation_agent" in loaded
    assert not loaded & HEAVY


def test_a_health_check_loads_neither_web_server_nor_database(
    answering: dict[str, Any], world: World
) -> None:
    world.extra = {"listen": answering["url"].removeprefix("http://").partition("/")[0]}
    loaded = modules_after("isolation-agent", "healthcheck", "--config", str(world.write_files()))
    assert not loaded & (HEAVY - {"pydantic", "yaml"}), "the configuration is all that it reads"


def test_help_is_not_cut(capsys: Out) -> None:
    for arguments in (["--help"], ["audit", "--help"]):
        assert run(*arguments) == 0
        text = capsys.readouterr().out
        assert "..." not in text.replace("[ARGS]...", "")
        for line in (
            "Print what would be decided about an alert; change nothing.",
            "Check the hash chain of the audit log; name the first broken record.",
        ):
            assert (line in " ".join(text.split())) is (line.startswith("Check") == ("audit" in arguments))
