"""Asking Prometheus."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from vigia.errors import VigiaError

__all__ = ["Prometheus", "Sample"]


@dataclass(frozen=True)
class Sample:
    """One series of an answer, with its value."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """A Prometheus server."""

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(base_url=f"http://{address}", timeout=10.0, trust_env=False)

    def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """Evaluate an expression now or at a Unix time; NaN values are left out. Raises VigiaError."""
        parameters: dict[str, str] = {"query": expression}
        if at is not None:
            parameters["time"] = f"{at:.3f}"
        try:
            answer = self._client.get("/api/v1/query", params=parameters)
            body: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as e:
            raise VigiaError(f"Prometheus does not answer the query {expression}: {e}") from e
        if body.get("status") != "success":
            raise VigiaError(
                f"Prometheus refuses the query {expression}: {body.get('error', answer.status_code)}"
            )
        samples = [Sample(r["metric"], float(r["value"][1])) for r in body["data"]["result"]]
        return [s for s in samples if not math.isnan(s.value)]

    def total(self, expression: str, at: float | None = None) -> float:
        """Return the sum over all series of an answer, 0 without any."""
        return sum(s.value for s in self.query(expression, at))
