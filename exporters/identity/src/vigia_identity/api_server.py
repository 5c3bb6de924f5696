"""Talking to the API server of a Kubernetes cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

import vigia_http
import vigia_json
from vigia_identity.clouds import CloudError
from vigia_identity.config import Kubernetes

__all__ = ["ApiServer", "Listing", "api_server"]

PAGE = 500
MAX_BODY = 64 << 20
MAX_CHANGE = 4 << 20
"""Bytes of one object that changed."""
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"


@dataclass(frozen=True)
class Listing:
    """A list of objects."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    """Which of them."""
    metadata: bool = False
    """Of each its metadata alone."""

    def accept(self, kind: str) -> dict[str, str]:
        """Return headers of a request for a list, or for an object."""
        return {"Accept": _METADATA.format(kind)} if self.metadata else {}


class ApiServer:
    """A connection with the rights of the configured service account."""

    def __init__(self, client: httpx.Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    def items(self, path: str, **query: str) -> Iterator[Any]:
        """Yield all objects of a list, page by page."""
        for _, page in self.pages(Listing(path, query)):
            yield from page

    def pages(self, listing: Listing) -> Iterator[tuple[str, list[Any]]]:
        """Yield the version of a list and objects of it, page by page."""
        more = ""
        while True:
            query = {"limit": str(PAGE), "continue": more, **listing.query}
            page = self._get(listing.path, query, listing.accept("List"))
            yield str(page["metadata"].get("resourceVersion", "")), page["items"]
            more = page["metadata"].get("continue", "")
            if not more:
                return

    def get(self, path: str) -> Any:
        """Return what is at a path."""
        return self._get(path, {}, {})

    def _get(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        with self._client.stream("GET", path, params=query, headers=headers) as response:
            response.raise_for_status()
            body = vigia_http.read(response, MAX_BODY, self._timeout)
        return vigia_json.loads(body, max_size=MAX_BODY)

    def changes(self, listing: Listing, version: str, seconds: int) -> Iterator[tuple[str, Any]]:
        """Yield what happens to objects of a list from a version on, for so many seconds.

        It is ADDED, MODIFIED or DELETED, and the object. Raises CloudError where the version is too old.
        """
        path = listing.path
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(seconds), **listing.query}
        with self._client.stream("GET", path, params=query, headers=listing.accept("")) as response:
            response.raise_for_status()
            rest = b""
            for block in response.iter_raw():
                *lines, rest = (rest + block).split(b"\n")  # an object a line
                if max(map(len, (rest, *lines))) > MAX_CHANGE:
                    raise CloudError(f"{path}: an object of more than {MAX_CHANGE} bytes has changed")
                for line in filter(None, lines):
                    change = vigia_json.loads(line, max_size=MAX_CHANGE)
                    if change["type"] == "ERROR":
                        raise CloudError(f"{path}: {str(change['object'].get('message'))[:200]}")
                    yield change["type"], change["object"]

    def create(self, path: str, item: Any) -> bool:
        """Make an object in a list; return whether there was none of its name."""
        headers = {"Content-Type": "application/json"}
        with self._client.stream("POST", path, content=json.dumps(item), headers=headers) as response:
            made = response.status_code != httpx.codes.CONFLICT
            if made:
                response.raise_for_status()
            vigia_http.read(response, MAX_BODY, self._timeout)
        return made

    def remove(self, path: str) -> None:
        """Delete an object, if it is there."""
        with self._client.stream("DELETE", path) as response:
            if response.status_code != httpx.codes.NOT_FOUND:
                response.raise_for_status()
            vigia_http.read(response, MAX_BODY, self._timeout)

    def merge(self, path: str, change: Any) -> None:
        """Change an object (RFC 7396)."""
        headers = {"Content-Type": "application/merge-patch+json"}
        content = json.dumps(change)
        with self._client.stream("PATCH", path, content=content, headers=headers) as response:
            response.raise_for_status()
            vigia_http.read(response, MAX_BODY, self._timeout)


@contextmanager
def api_server(config: Kubernetes, timeout: float) -> Iterator[ApiServer]:
    """Connect to the API server. What goes wrong meanwhile becomes a CloudError."""
    try:
        token = config.token_file.read_text().strip()
        verify: Any = True
        if config.url.startswith("https:") and config.ca_file is not None:
            verify = httpx.create_ssl_context(verify=str(config.ca_file))
        headers = {"Authorization": f"Bearer {token}", **vigia_http.IDENTITY}
        with httpx.Client(base_url=config.url, verify=verify, timeout=timeout, headers=headers) as client:
            yield ApiServer(client, timeout)
    except vigia_http.AnswerError as e:
        raise CloudError(f"Kubernetes, {config.url}: an answer cannot be read: {e}") from e
    except (httpx.HTTPError, OSError) as e:
        raise CloudError(f"Kubernetes, {config.url}: {_said(e)}") from e
    except (LookupError, TypeError, AttributeError, ValueError) as e:
        raise CloudError(f"Kubernetes, {config.url}: the answer is not as documented") from e


def _said(e: Exception) -> str:
    """Return what an error says, and for a missing right how to grant it."""
    if isinstance(e, httpx.HTTPStatusError) and e.response.status_code == httpx.codes.FORBIDDEN:
        method, path = e.request.method, e.request.url.path
        verb = {"GET": "get or list", "PATCH": "patch", "POST": "create", "DELETE": "delete"}.get(
            method, method
        )
        return f"403: the service account may not {verb} {path}; grant it in its Role or ClusterRole"
    if isinstance(e, httpx.HTTPStatusError) and e.response.status_code == httpx.codes.NOT_FOUND:
        return f"404: there is no {e.request.url.path}; if it is Vigia's, kubectl apply the chart's crds/"
    if isinstance(e, httpx.HTTPStatusError) and e.response.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
        path = e.request.url.path
        return f"422: the schema of {path} refuses it; it may be older: kubectl apply the chart's crds/"
    return str(e) or type(e).__name__
