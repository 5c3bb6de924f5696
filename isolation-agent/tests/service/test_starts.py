"""Starts that fail: one line that says what to do, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation_agent.cli import main

from ..support.world import World

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def the_process_stays_as_it_was() -> Iterator[None]:
    """A start sets what belongs to a process of its own."""
    mask = os.umask(0o022)
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    os.umask(mask)
    assert {n: signal.getsignal(n) for n in handlers} == handlers


def fails_to_start(config: Path, capsys: Out) -> str:
    """Run the agent, expect it to end at once; returns its single line."""
    assert main(["run", "--config", str(config)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("isolation-agent: ")
    return str(line)


def files(world: World) -> set[str]:
    return {p.name for p in world.dir.iterdir()}


def test_busy_port(world: World, capsys: Out) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        world.extra["listen"] = f"127.0.0.1:{port}"
        config = world.write_files()
        before = files(world)
        line = fails_to_start(config, capsys)
    assert (
        f"listen: 127.0.0.1:{port}: is in use; stop the process that holds it or choose another address"
        in line
    )
    assert files(world) == before, "nothing is left behind"


def test_address_of_another_machine(world: World, capsys: Out) -> None:
    world.extra["listen"] = "203.0.113.1:9874"
    assert "listen: 203.0.113.1:9874: cannot listen" in fails_to_start(world.write_files(), capsys)


def test_name_that_is_no_address(world: World, capsys: Out) -> None:
    world.extra["listen"] = "no.such.host.invalid:9874"
    assert "is not an address of this machine" in fails_to_start(world.write_files(), capsys)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"database": "sqlite:///absent/agent.db"}, "database: .*there is no directory .*/absent; create it"),
        ({"audit_log": "absent/audit.jsonl"}, "audit_log: .*there is no directory .*/absent; create it"),
        ({"audit_log": "."}, "audit_log: .*Is a directory"),
        ({"colour": "blue"}, 'unknown key "colour"'),
    ],
)
def test_bad_configuration(world: World, extra: dict[str, str], says: str, capsys: Out) -> None:
    world.extra |= extra
    config = world.write_files()
    before = files(world)
    assert re.search(says, fails_to_start(config, capsys))
    assert files(world) == before


def test_missing_and_open_token_files(world: World, capsys: Out) -> None:
    config = world.write_files()
    (world.dir / "api.token").chmod(0o644)
    assert "everybody on this machine has access to it; run: chmod o=" in fails_to_start(config, capsys)
    (world.dir / "api.token").unlink()
    assert "auth.api_token_file: " in (line := fails_to_start(config, capsys))
    assert "no such file; create one" in line
    assert not (world.dir / "agent.db").exists()


def test_broken_audit_log_is_kept(world: World, capsys: Out) -> None:
    world.audit_path.write_text('{"seq": 1}\n')
    config = world.write_files()
    before = files(world)
    assert "keep the file as evidence, move it away and start again" in fails_to_start(config, capsys)
    assert world.audit_path.read_text() == '{"seq": 1}\n'
    assert files(world) == before


def test_no_configuration_is_a_usage_error(capsys: Out) -> None:
    assert main([]) == 2
    assert (
        capsys.readouterr().err == "isolation-agent: --config FILE is missing; see isolation-agent --help\n"
    )
