"""A node as a campaign uses it: answers that are refused, too long, too late, or of somebody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from vigia.campaign.jobs import IperfServer, Ping
from vigia.errors import VigiaError
from vigia.nodes import client
from vigia.nodes.client import RemoteHost

PING = Ping.model_validate({"source": "10.0.0.1", "address": "10.0.0.2", "count": 2})
SERVER = IperfServer.model_validate({"address": "10.0.0.2", "port": 5201})


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RemoteHost]:
    """A node whose agent answers as a function says."""

    def make(answer: Callable[[httpx.Request], httpx.Response]) -> RemoteHost:
        made = RemoteHost("rack1", "https://10.9.0.1:9876", True)
        made._client = httpx.Client(
            base_url="https://10.9.0.1:9876", transport=httpx.MockTransport(answer), trust_env=False
        )
        return made

    return make


def streamed(status: int, body: bytes, **headers: str) -> httpx.Response:
    return httpx.Response(status, content=iter([body]), headers=headers)


def test_a_job_is_sent_as_data_and_its_output_returned(host: Callable[..., RemoteHost]) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return streamed(200, b'{"output": "icmp_seq=1"}')

    assert host(answer).run(PING) == "icmp_seq=1"
    (request,) = seen
    assert (request.method, request.url.path) == ("POST", "/v1/jobs")
    assert json.loads(request.content)["address"] == "10.0.0.2"
    assert request.headers["Accept-Encoding"] == "identity"


def test_a_server_is_ended_with_the_body(host: Callable[..., RemoteHost]) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.url.path}")
        return streamed(200, b'{"number": 7}' if request.method == "POST" else b"")

    with pytest.raises(ZeroDivisionError), host(answer).serving(SERVER):
        raise ZeroDivisionError
    assert seen == ["POST /v1/servers", "DELETE /v1/servers/7"]


def test_a_server_that_cannot_be_ended_is_no_error(host: Callable[..., RemoteHost]) -> None:
    """It ends with its time."""

    def answer(request: httpx.Request) -> httpx.Response:
        return streamed(200, b'{"number": 7}') if request.method == "POST" else streamed(500, b"{}")

    with host(answer).serving(SERVER):
        pass


def test_associations_are_sets_by_namespace(host: Callable[..., RemoteHost]) -> None:
    found = host(lambda _: streamed(200, b'{"a": ["0x1", "0x2"], "b": [], "c": "no list"}')).associations()
    assert found == {"a": frozenset({"0x1", "0x2"}), "b": frozenset()}


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (403, b'{"error": "address 10.1.1.1 is in none of the networks"}', "rack1: address 10.1.1.1 is in"),
        (500, b"{}", "rack1: HTTP status 500"),
        (500, b"", "rack1: HTTP status 500"),
        (200, b"<html>", r"rack1: https://10\.9\.0\.1:9876 is not a Vigia agent \(HTTP status 200\)"),
        (200, b'{"a": 1, "a": 2}', "is not a Vigia agent"),
        (200, b"[]", "rack1: HTTP status 200"),
    ],
)
def test_answers_that_are_refused(
    host: Callable[..., RemoteHost], status: int, body: bytes, message: str
) -> None:
    with pytest.raises(VigiaError, match=message):
        host(lambda _: streamed(status, body)).environment()


def test_an_answer_has_a_bound(host: Callable[..., RemoteHost], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_LONGEST", 100)

    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 64

    with pytest.raises(VigiaError, match=r"rack1: cannot read the answer of .*: it is larger than 100 bytes"):
        host(lambda _: httpx.Response(200, content=endless())).environment()


def test_an_answer_that_drips_is_given_up(
    host: Callable[..., RemoteHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MARGIN", 0.05)

    def dripping() -> Iterator[bytes]:
        while True:
            yield b" "

    with pytest.raises(VigiaError, match=r"it is not complete within 0\.05 s"):
        host(lambda _: httpx.Response(200, content=dripping())).environment()


def test_a_compressed_answer_is_not_unpacked(host: Callable[..., RemoteHost]) -> None:
    with pytest.raises(VigiaError, match="it is compressed though that was not asked for"):
        host(lambda _: streamed(200, b"\x1f\x8b", **{"Content-Encoding": "gzip"})).environment()


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("Connection refused"), httpx.ReadTimeout("timed out"), httpx.ReadError("x")]
)
def test_a_node_that_does_not_answer_is_named(host: Callable[..., RemoteHost], error: Exception) -> None:
    def answer(request: httpx.Request) -> Any:
        raise error

    with pytest.raises(
        VigiaError, match=r"node rack1: its agent at https://10\.9\.0\.1:9876 does not answer"
    ):
        host(answer).run(PING)
