"""What programs said before they ended, in Events of their pods: what is missing on a node, and the fix.

A program that cannot run says so in its last line, with field, value and fix. The programs of the nodes have
no token of the API server's, so that somebody else has to tell people where they look.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vigia_identity.api_server import ApiServer
from vigia_identity.clouds import bounded, printable
from vigia_identity.guarantees.events import Word, say
from vigia_identity.guarantees.keeper import POD

__all__ = ["LastWords"]

AGAIN = 3600.0
"""Seconds until the same is said again of a container."""
AT_ONCE = 16
"""Pods that are asked for at a look."""
MOST = 4096
"""Lines that are remembered."""
LONG = 900
"""Bytes of a line."""


_DIGITS = re.compile(r"\d+")
"""Times and numbers of processes: the same line without them says the same."""


@dataclass(frozen=True)
class _Ended:
    container: str
    exit_code: int
    line: str


class LastWords:
    """Repeats why containers of a pod ended, once an hour for each."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], float] = {}
        self._asked: dict[str, float] = {}

    def repeat(self, server: ApiServer, namespace: str, names: Iterable[str]) -> int:
        """Make Events of why pods of these names do not run; return how many. Raises CloudError."""
        now, count = time.monotonic(), 0
        self._said = {k: at for k, at in self._said.items() if now - at < AGAIN}
        wanted = sorted(set(names), key=lambda name: (self._asked.get(name, 0.0), name))
        self._asked = {name: self._asked[name] for name in wanted if name in self._asked}
        for name in wanted[:AT_ONCE]:  # who was asked for longest ago comes first
            self._asked[name] = now
            path = f"/api/v1/namespaces/{namespace}/pods"
            for pod in bounded(
                server.items(path, fieldSelector=f"metadata.name={name}"), 1, "pods of a name"
            ):
                for ended in _ended(pod):
                    key = (str(pod["metadata"]["uid"]), f"{ended.container}: {_DIGITS.sub('', ended.line)}")
                    if key not in self._said and len(self._said) < MOST:
                        _tell(server, pod["metadata"], ended)
                        self._said[key] = now
                        count += 1
        return count


def _ended(pod: Any) -> Iterator[_Ended]:
    """Yield the containers of a pod that ended in error and are not back."""
    status = pod.get("status") or {}
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        states = [(one.get(key) or {}).get("terminated") for key in ("state", "lastState")]
        ended = next((s for s in states if s), None)
        if one.get("ready") or ended is None or not ended.get("exitCode"):
            continue
        lines = str(ended.get("message") or "").strip().splitlines()
        line = printable(lines[-1], LONG) if lines else f"it said nothing ({printable(ended.get('reason'))})"
        yield _Ended(printable(one["name"]), int(ended["exitCode"]), line)


def _tell(server: ApiServer, meta: Any, ended: _Ended) -> None:
    message = f"{ended.container} ended with exit code {ended.exit_code}: {ended.line}"
    say(server, POD, meta, Word("Warning", "CannotRun", message), datetime.now(UTC))
