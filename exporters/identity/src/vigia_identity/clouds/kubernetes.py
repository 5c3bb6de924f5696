"""Kubernetes: namespaces are tenants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

import vigia_http
import vigia_json
from vigia_identity.clouds import ID, MAX_TENANTS, CloudError, Identity, bounded, printable
from vigia_identity.config import Kubernetes

__all__ = ["ask"]

PAGE = 500
MAX_BODY = 64 << 20


def ask(config: Kubernetes, *, timeout: float) -> Identity:
    """Ask the API server for namespaces. Raises CloudError."""
    out = Identity()
    try:
        token = config.token_file.read_text().strip()
        verify: Any = True
        if config.url.startswith("https:") and config.ca_file is not None:
            verify = httpx.create_ssl_context(verify=str(config.ca_file))
        headers = {"Authorization": f"Bearer {token}", **vigia_http.IDENTITY}
        with httpx.Client(base_url=config.url, verify=verify, timeout=timeout, headers=headers) as client:
            for item in bounded(_namespaces(client, timeout), MAX_TENANTS, "namespaces"):
                name = _shown(item["metadata"], config.name_annotation)
                if ID.fullmatch(item["metadata"]["name"]):
                    out.names[item["metadata"]["name"]] = name or printable(item["metadata"]["name"])
    except vigia_http.AnswerError as e:
        raise CloudError(f"Kubernetes, {config.url}: an answer cannot be read: {e}") from e
    except (httpx.HTTPError, OSError) as e:
        raise CloudError(f"Kubernetes, {config.url}: {e or type(e).__name__}") from e
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        raise CloudError(f"Kubernetes, {config.url}: the answer is no list of namespaces") from e
    return out


def _shown(meta: Any, key: str) -> str:
    """Return what an annotation, else a label, calls the tenant; empty if there is none."""
    marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    return printable(marks.get(key)) if key else ""


def _namespaces(client: httpx.Client, timeout: float) -> Iterator[Any]:
    """Yield all namespaces, page by page."""
    more = ""
    while True:
        asked = {"limit": str(PAGE), "continue": more}
        with client.stream("GET", "/api/v1/namespaces", params=asked) as response:
            response.raise_for_status()
            body = vigia_http.read(response, MAX_BODY, timeout)
        page = vigia_json.loads(body, max_size=MAX_BODY)
        yield from page["items"]
        more = page["metadata"].get("continue", "")
        if not more:
            return
