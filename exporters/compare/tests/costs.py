"""What questions cost a real Prometheus, by its own count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

import httpx

from vigia_prometheus import Prometheus

__all__ = ["Cost", "counting"]


@dataclass
class Cost:
    """Sums over questions."""

    questions: int = 0
    samples: int = 0
    """That were looked at: a sample counts in each window that it is in."""
    seconds: float = 0.0
    """Of evaluation in Prometheus."""
    texts: list[str] = field(default_factory=list)

    def add(self, text: str, stats: dict[str, dict[str, float]]) -> None:
        self.questions += 1
        self.samples += int(stats["samples"]["totalQueryableSamples"])
        self.seconds += stats["timings"]["execTotalTime"]
        self.texts.append(text)

    def clear(self) -> None:
        """Begin anew."""
        self.questions, self.samples, self.seconds = 0, 0, 0.0
        self.texts.clear()


class _Counting(httpx.BaseTransport):
    """Asks for statistics with every question."""

    def __init__(self, cost: Cost) -> None:
        self._inner = httpx.HTTPTransport()
        self._cost = cost

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked = dict(parse_qsl(request.read().decode()))
        body = urlencode({**asked, "stats": "all"}).encode()
        headers = {k: v for k, v in request.headers.items() if k.lower() != "content-length"}
        again = httpx.Request(
            request.method, request.url, headers=headers, content=body, extensions=request.extensions
        )
        answer = self._inner.handle_request(again)
        found = httpx.Response(answer.status_code, headers=answer.headers, content=answer.read())
        answer.close()
        self._cost.add(asked["query"], json.loads(found.content)["data"]["stats"])
        return httpx.Response(found.status_code, stream=httpx.ByteStream(found.content))

    def close(self) -> None:
        self._inner.close()


@contextmanager
def counting(url: str) -> Iterator[tuple[Prometheus, Cost]]:
    """A client of a server, and what its questions have cost so far."""
    cost = Cost()
    with Prometheus(url, 60.0, transport=_Counting(cost)) as prometheus:
        yield prometheus, cost
