"""Talking to the API server of a Kubernetes cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

import vigia_http
import vigia_json
from vigia_identity.clouds import CloudError
from vigia_identity.config import Kubernetes

__all__ = ["ApiServer", "api_server"]

PAGE = 500
MAX_BODY = 64 << 20


class ApiServer:
    """A connection with the rights of the configured service account."""

    def __init__(self, client: httpx.Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    def items(self, path: str, **query: str) -> Iterator[Any]:
        """Yield all objects of a list, page by page."""
        more = ""
        while True:
            page = self.get(path, limit=str(PAGE), **{"continue": more}, **query)
            yield from page["items"]
            more = page["metadata"].get("continue", "")
            if not more:
                return

    def get(self, path: str, **query: str) -> Any:
        """Return what is at a path."""
        with self._client.stream("GET", path, params=query) as response:
            response.raise_for_status()
            body = vigia_http.read(response, MAX_BODY, self._timeout)
        return vigia_json.loads(body, max_size=MAX_BODY)

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
        verb = {"GET": "get or list", "PATCH": "patch"}.get(method, method)
        return f"403: the service account may not {verb} {path}; grant it in its Role or ClusterRole"
    return str(e) or type(e).__name__
