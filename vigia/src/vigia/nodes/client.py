"""A node as a campaign uses it: jobs are sent to its agent."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

import vigia_http
import vigia_json
from vigia.campaign import jobs
from vigia.campaign.jobs import IperfServer, Job
from vigia.errors import VigiaError

__all__ = ["RemoteHost"]

_MARGIN = 30.0  # seconds for the agent itself
_LONGEST = 256 << 20  # bytes of an answer: a million timed packets


class RemoteHost:
    """The machine that an agent is on."""

    def __init__(self, name: str, url: str, verify: ssl.SSLContext | bool) -> None:
        self.name = name
        self._url = url
        self._client = httpx.Client(base_url=url, verify=verify, trust_env=False)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def environment(self) -> dict[str, Any]:
        """Return what the node is: kernel, versions, load. Raises VigiaError."""
        return self._ask("GET", "/v1/environment", None, _MARGIN)

    def run(self, job: Job) -> str:
        """Run a job to its end and return what it printed. Raises VigiaError."""
        return str(self._ask("POST", "/v1/jobs", job, jobs.seconds(job) + _MARGIN)["output"])

    def associations(self) -> dict[str, frozenset[str]]:
        """Return the SPIs of the node's IPsec associations, by namespace. Raises VigiaError."""
        found = self._ask("GET", "/v1/associations", None, _MARGIN)
        return {place: frozenset(map(str, spis)) for place, spis in found.items() if isinstance(spis, list)}

    @contextmanager
    def serving(self, job: IperfServer) -> Iterator[None]:
        """Run an iperf3 server while the body runs; it is listening when the body begins."""
        number = int(self._ask("POST", "/v1/servers", job, 2 * _MARGIN)["number"])
        try:
            yield
        finally:
            # One that cannot be ended now ends with its time, and by the next at its port.
            with suppress(VigiaError):
                self._ask("DELETE", f"/v1/servers/{number}", None, _MARGIN)

    def _ask(self, method: str, path: str, job: Job | None, timeout: float) -> dict[str, Any]:
        body = None if job is None else job.model_dump_json()
        try:
            with self._client.stream(
                method, path, content=body, timeout=timeout, headers=vigia_http.IDENTITY
            ) as answer:
                text = vigia_http.read(answer, _LONGEST, timeout)
                status = answer.status_code
        except vigia_http.AnswerError as e:
            raise VigiaError(f"node {self.name}: cannot read the answer of {self._url}: {e}") from e
        except httpx.HTTPError as e:
            raise VigiaError(f"node {self.name}: its agent at {self._url} does not answer: {e}") from e
        try:
            found = vigia_json.loads(text, max_size=_LONGEST) if text else {}
        except ValueError as e:
            raise VigiaError(
                f"node {self.name}: {self._url} is not a Vigia agent (HTTP status {status})"
            ) from e
        if not isinstance(found, dict) or status >= httpx.codes.BAD_REQUEST:
            problem = found.get("error", "") if isinstance(found, dict) else ""
            raise VigiaError(f"node {self.name}: {problem or f'HTTP status {status}'}")
        return found
