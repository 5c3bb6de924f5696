"""Asking the isolation agent what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

import vigia_http
import vigia_json
from vigia.errors import VigiaError

__all__ = ["IsolationAction", "IsolationAgent"]

_TIMEOUT = 10.0
_LOOKED_AT = 20
"""Actions that are looked through for those of an alert, the newest."""

_LONGEST = 1 << 20  # bytes of an answer, as vigia_json reads at most


@dataclass(frozen=True)
class IsolationAction:
    """An isolation action with the instants of its life, as Unix times."""

    id: str
    number: int
    policy: str
    level: str
    state: str
    cause: str | None
    limit: int | None
    """Bytes per second."""
    extensions: int
    instants: Mapping[str, float]
    """First time of each event of the timeline."""


class IsolationAgent:
    """The isolation agent's API; leaving its context closes the connections."""

    def __init__(self, address: str, token_file: Path) -> None:
        headers = {"Authorization": f"Bearer {token_file.read_text().strip()}", **vigia_http.IDENTITY}
        self._client = httpx.Client(
            base_url=address if "://" in address else f"http://{address}",
            headers=headers,
            timeout=_TIMEOUT,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def newest(self, node: str, port: str) -> IsolationAction | None:
        """Return the newest action on a port, None without any. Raises VigiaError."""
        found = self._get("/v1/actions", {"node": node, "limit": "100"})["actions"]
        for summary in found:
            if summary["port"] == port and summary["level"] != "L0":
                return _action(self._get(f"/v1/actions/{summary['id']}"))
        return None

    def named(self, name: str) -> dict[str, Any]:
        """Return all that is known of an action, by its id, or by its number as #12. Raises VigiaError."""
        number = name.removeprefix("#")
        if not number.isdigit():
            return self._get(f"/v1/actions/{name}")
        parameters = {"limit": "1", "before": str(int(number) + 1)}
        for summary in self._get("/v1/actions", parameters)["actions"]:
            if summary["number"] == int(number):
                return self._get(f"/v1/actions/{summary['id']}")
        raise VigiaError(f"the isolation agent has no action {number}; see the newest: /v1/actions")

    def of_alert(self, name: str, most: int) -> list[dict[str, Any]]:
        """Return the newest actions that an alert of this name asked for. Raises VigiaError."""
        found = []
        for summary in self._get("/v1/actions", {"limit": str(_LOOKED_AT)})["actions"]:
            detail = self._get(f"/v1/actions/{summary['id']}")
            if any(r["labels"].get("alertname") == name for r in detail["reasons"]):
                found.append(detail)
            if len(found) >= most:
                break
        return found

    def _get(self, path: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
        try:
            with self._client.stream("GET", path, params=parameters) as answer:
                answer.raise_for_status()
                body: dict[str, Any] = vigia_json.loads(vigia_http.read(answer, _LONGEST, _TIMEOUT))
        except (httpx.HTTPError, vigia_http.AnswerError, ValueError) as e:
            raise VigiaError(f"the isolation agent does not answer {path}: {e}") from e
        return body


def _action(detail: dict[str, Any]) -> IsolationAction:
    instants: dict[str, float] = {}
    for entry in detail["timeline"]:
        instants.setdefault(entry["event"], _unix(entry["at"]))
    limit = detail["limit"]
    return IsolationAction(
        id=detail["id"],
        number=detail["number"],
        policy=detail["policy"],
        level=detail["level"],
        state=detail["state"],
        cause=detail["cause"],
        limit=limit["rate_bytes_per_second"] if limit else None,
        extensions=detail["extensions"],
        instants=instants,
    )


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
