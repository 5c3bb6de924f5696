"""Asking an isolation agent, over HTTP, what it did."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from vigia.errors import VigiaError
from vigia.stack.agent import IsolationAgent

DETAIL: dict[str, Any] = {
    "id": "a7",
    "number": 7,
    "policy": "udp-flood",
    "level": "L1",
    "state": "RELEASED",
    "cause": "evidence",
    "limit": {"rate_bytes_per_second": 5_000_000},
    "extensions": 2,
    "timeline": [
        {"event": "kernel_detected", "at": "2026-11-21T08:00:00.250000Z"},
        {"event": "extended", "at": "2026-11-21T08:00:10Z"},
        {"event": "extended", "at": "2026-11-21T08:00:20Z"},
    ],
}


@dataclass
class Answers:
    """What the server says, by path, and whom it heard."""

    by_path: dict[str, Any]
    status: int = 200
    tokens: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    connections: list[Any] = field(default_factory=list)


@pytest.fixture
def answers() -> Answers:
    summaries = [
        {"id": "a9", "port": "lb1-blue-120", "level": "L1"},
        {"id": "a8", "port": "lb1-red-110", "level": "L0"},
        {"id": "a7", "port": "lb1-red-110", "level": "L1"},
        {"id": "a1", "port": "lb1-red-110", "level": "L1"},
    ]
    return Answers({"/v1/actions": {"actions": summaries}, "/v1/actions/a7": DETAIL})


@pytest.fixture
def address(answers: Answers) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            answers.connections.append(self.connection)

        def do_GET(self) -> None:
            answers.tokens.add(self.headers["Authorization"])
            answers.asked.append(self.path)
            found = answers.by_path[self.path.partition("?")[0]]
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(answers.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()  # joins the threads of connections: it hangs if one is left open


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "api.token"
    file.write_text("s3cret\n")
    return file


def test_the_newest_action_on_a_port_that_is_more_than_an_observation(
    answers: Answers, address: str, token: Path
) -> None:
    with IsolationAgent(address, token) as agent:
        found = agent.newest("lb1", "lb1-red-110")
        assert agent.newest("lb1", "lb1-infra-100") is None
    assert found is not None
    assert (found.id, found.number, found.limit, found.extensions) == ("a7", 7, 5_000_000, 2)
    assert (found.state, found.cause) == ("RELEASED", "evidence")
    assert found.instants == {"kernel_detected": 1795248000.25, "extended": 1795248010.0}, "the first of each"
    assert answers.tokens == {"Bearer s3cret"}
    assert all("node=lb1" in path for path in answers.asked if "?" in path)
    assert len(answers.connections) == 1, "one connection for all questions"


def test_an_action_without_a_limit(answers: Answers, address: str, token: Path) -> None:
    answers.by_path["/v1/actions/a7"] = {**DETAIL, "limit": None, "cause": None}
    with IsolationAgent(address, token) as agent:
        found = agent.newest("lb1", "lb1-red-110")
    assert found is not None
    assert (found.limit, found.cause) == (None, None)


@pytest.mark.parametrize(("status", "body"), [(401, b"{}"), (200, b"<html>"), (200, b"x" * (2 << 20))])
def test_an_answer_that_is_none(
    answers: Answers, address: str, token: Path, status: int, body: bytes
) -> None:
    answers.status = status
    answers.by_path["/v1/actions"] = body
    with (
        IsolationAgent(address, token) as agent,
        pytest.raises(VigiaError, match="the isolation agent does not answer /v1/actions: ") as e,
    ):
        agent.newest("lb1", "lb1-red-110")
    assert "s3cret" not in str(e.value)


def test_nobody_there(token: Path) -> None:
    with (
        IsolationAgent("127.0.0.1:1", token) as agent,
        pytest.raises(VigiaError, match="the isolation agent does not answer /v1/actions: "),
    ):
        agent.newest("lb1", "lb1-red-110")
