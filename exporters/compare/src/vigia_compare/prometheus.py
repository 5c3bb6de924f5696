"""Asking a server that speaks the Prometheus HTTP API."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx
import numpy as np

from vigia_compare.errors import CompareError
from vigia_statistics.samples import Floats

__all__ = ["Grid", "Prometheus", "Series"]

MAX_ANSWER = 64 << 20
"""Bytes of one answer; a larger one is refused."""


@dataclass(frozen=True)
class Grid:
    """Windows of equal length that touch and do not overlap, aligned to their length."""

    end: float
    """Unix time at which the last window ends."""
    window: float
    count: int

    @classmethod
    def before(cls, now: float, window: float, period: float) -> Grid:
        """Return the complete windows of a period that ends now."""
        return cls(now // window * window, window, int(period // window))

    @property
    def start(self) -> float:
        """Unix time at which the first window ends."""
        return self.end - (self.count - 1) * self.window

    def earlier(self, seconds: float) -> Grid:
        """Return the same grid that many whole windows earlier."""
        return Grid(self.end - round(seconds / self.window) * self.window, self.window, self.count)


@dataclass(frozen=True)
class Series:
    """One series on a grid."""

    labels: Mapping[str, str]
    values: Floats
    """One value per window, shape (grid.count,); NaN where there is none."""


class Prometheus:
    """A server. Every method raises CompareError when it is away or refuses."""

    def __init__(
        self,
        url: str,
        timeout: float = 10.0,
        transport: httpx.BaseTransport | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self._client = httpx.Client(
            base_url=url,
            timeout=timeout,
            trust_env=False,
            transport=transport,
            verify=tls or url.startswith("https"),  # loading the authorities takes longer than a query
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def labels(self, expression: str, at: float) -> list[Mapping[str, str]]:
        """Return the label sets of the series that an instant query finds."""
        return [dict(r["metric"]) for r in self._ask("query", {"query": expression, "time": f"{at:.3f}"})]

    def windows(self, expression: str, grid: Grid) -> list[Series]:
        """Evaluate an expression at the end of every window; WINDOW in it is the length."""
        text = expression.replace("WINDOW", f"{grid.window * 1000:.0f}ms")
        asked = {
            "query": text,
            "start": f"{grid.start:.3f}",
            "end": f"{grid.end:.3f}",
            "step": f"{grid.window:.3f}",
        }
        return [_on(grid, r) for r in self._ask("query_range", asked)]

    def _ask(self, what: str, parameters: Mapping[str, str]) -> Sequence[Any]:
        where = f"Prometheus at {self.url}"
        try:
            with self._client.stream("POST", f"/api/v1/{what}", data=parameters) as answer:
                raw = _bounded(answer, where)
            body = json.loads(raw)
            if body["status"] != "success":
                raise CompareError(
                    f"{where} refuses {parameters['query']}: {body.get('error', 'no reason given')}"
                )
            result: Sequence[Any] = body["data"]["result"]
        except httpx.HTTPError as e:
            raise CompareError(f"{where} does not answer: {e or type(e).__name__}; is it running?") from e
        except (ValueError, KeyError, TypeError) as e:
            raise CompareError(
                f"{where} answers {answer.status_code} without a result: not a Prometheus API?"
            ) from e
        return result


def _bounded(answer: httpx.Response, where: str) -> bytes:
    out = bytearray()
    for part in answer.iter_bytes():
        out += part
        if len(out) > MAX_ANSWER:
            raise CompareError(f"{where} answers more than {MAX_ANSWER >> 20} MiB; write a longer window")
    return bytes(out)


def _on(grid: Grid, result: Mapping[str, Any]) -> Series:
    values = np.full(grid.count, np.nan)
    for at, text in result["values"]:
        index = round((float(at) - grid.start) / grid.window)
        value = float(text)
        if 0 <= index < grid.count and np.isfinite(value):
            values[index] = value
    return Series(result["metric"], values)
