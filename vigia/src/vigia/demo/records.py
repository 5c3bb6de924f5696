"""What a tenant's probes met, probe by probe: from the memory of the node's vigia-probe, a minute long.

Prometheus scrapes the probe's counters every 15 seconds, and a play has parts of a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

import httpx

import vigia_http
import vigia_json
from vigia.errors import VigiaError

__all__ = ["Probes", "Records"]

EVERY = 15.0
"""Seconds between two readings: a quarter of what the probe remembers."""

_TIMEOUT = 10.0
_LONGEST = 64 << 20  # bytes of an answer: 65 536 records of each of a few targets


@dataclass(frozen=True)
class Probes:
    """The probes that were sent before a moment."""

    at: float
    """Unix time."""
    sent: float
    lost: float


class Records:
    """Records of the targets with some labels, kept for longer than the probe does."""

    def __init__(
        self, address: str, labels: Mapping[str, str], transport: httpx.BaseTransport | None = None
    ) -> None:
        self._client = httpx.Client(
            base_url=f"http://{address}",
            params=dict(labels),
            headers=vigia_http.IDENTITY,
            timeout=_TIMEOUT,
            trust_env=False,
            transport=transport,
        )
        self._address = address
        self._lost: dict[tuple[str, str, str, int], bool] = {}
        """Whether it was lost, by target, time and sequence number."""
        self._sent: dict[tuple[str, str, str, int], float] = {}
        self._due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def keep(self) -> None:
        """Read if it is time to. Raises VigiaError."""
        if time.monotonic() >= self._due:
            self.read()

    def read(self) -> None:
        """Read what the probe remembers. Raises VigiaError."""
        self._due = time.monotonic() + EVERY
        try:
            with self._client.stream("GET", "/debug/records") as answer:
                answer.raise_for_status()
                lines = vigia_http.read(answer, _LONGEST, _TIMEOUT).splitlines()
            for line in lines:
                record = vigia_json.loads(line)
                key = (record["dst"], record["probe"], record["time"], record["sequence"])
                self._sent[key] = datetime.fromisoformat(record["time"]).timestamp()
                self._lost[key] = record["outcome"] == "lost"
        except (httpx.HTTPError, vigia_http.AnswerError, ValueError, KeyError, TypeError) as e:
            raise VigiaError(f"cannot read the records of vigia-probe at {self._address}: {e}") from e

    def until(self, at: float) -> Probes:
        """Return how many of the known probes were sent before a moment, and how many of these were lost."""
        before = [key for key, sent in self._sent.items() if sent < at]
        return Probes(at, len(before), sum(self._lost[key] for key in before))
