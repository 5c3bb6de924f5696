"""The victim's probes, probe by probe, from an agent of a few lines that forgets as the real one does."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import httpx
import pytest

from vigia.demo import records
from vigia.demo.records import Records
from vigia.errors import VigiaError

LABELS = {"tenant": "blue", "path": "linuxbridge-vxlan"}
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def line(n: int, lost: bool = False, dst: str = "lb2") -> str:
    """Probe n of 20 a second, with nanoseconds as Go writes them."""
    sent = START + timedelta(milliseconds=50 * n)
    said = {"src": "lb1", "dst": dst, "probe": "stamp-64", "sequence": n, **LABELS}
    outcome = {"outcome": "lost", "cause": "unknown"} if lost else {"outcome": "received", "rtt_ns": 1}
    return json.dumps({**said, **outcome, "time": f"{sent:%Y-%m-%dT%H:%M:%S}.{sent.microsecond:06d}123Z"})


def agent(answer: Callable[[httpx.Request], httpx.Response]) -> Records:
    return Records("127.0.0.1:9871", LABELS, httpx.MockTransport(answer))


def page(lines: list[str]) -> httpx.Response:
    return httpx.Response(200, content=iter([("\n".join(lines) + "\n").encode()]))


def test_what_the_probe_has_forgotten_is_kept_and_what_is_read_twice_counts_once() -> None:
    pages = [
        [line(n, lost=n == 7) for n in range(20)],
        [line(n, lost=n in (12, 30)) for n in range(10, 40)],
    ]
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return page(pages[len(asked) - 1])

    with agent(answer) as found:
        found.read()
        found.read()
    assert {(r.url.path, *sorted(r.url.params.items())) for r in asked} == {
        ("/debug/records", ("path", "linuxbridge-vxlan"), ("tenant", "blue"))
    }
    start = START.timestamp()
    assert (found.until(start).sent, found.until(start).lost) == (0, 0)
    assert (found.until(start + 0.51).sent, found.until(start + 0.51).lost) == (11, 1)
    end = found.until(start + 60)
    assert (end.at, end.sent, end.lost) == (start + 60, 40, 3)


def test_targets_are_told_apart() -> None:
    with agent(lambda _: page([line(1), line(1, dst="lb3", lost=True)])) as found:
        found.read()
    assert (found.until(START.timestamp() + 1).sent, found.until(START.timestamp() + 1).lost) == (2, 1)


def test_it_is_read_often_enough_and_not_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [1000.0], []
    monkeypatch.setattr(records.time, "monotonic", lambda: now[0])

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(now[0])
        return page([line(1)])

    with agent(answer) as found:
        for _ in range(600):
            found.keep()
            now[0] += 0.2
    assert [b - a for a, b in pairwise(asked)] == pytest.approx([records.EVERY] * 7, abs=0.3)
    assert records.EVERY < 60, "as long as the probe remembers"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(503, content=iter([b"starting"])), "503"),
        (page(["{"]), "not JSON"),
        (page(['{"dst": "lb2"}']), "probe"),
        (page(["3"]), "subscriptable"),
        (page([line(1).replace("2026-01-02T", "yesterday")]), "isoformat"),
    ],
)
def test_an_agent_that_says_something_else_is_named(answer: httpx.Response, why: str) -> None:
    with (
        agent(lambda _: answer) as found,
        pytest.raises(
            VigiaError, match=rf"^cannot read the records of vigia-probe at 127\.0\.0\.1:9871: .*{why}"
        ),
    ):
        found.read()
    assert found.until(START.timestamp() + 60).sent == 0


def test_an_agent_that_is_away_is_named() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with agent(away) as found, pytest.raises(VigiaError, match=r"cannot read the records .* refused"):
        found.keep()
