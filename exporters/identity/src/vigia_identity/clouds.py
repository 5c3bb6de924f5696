"""What OpenStack and Kubernetes say of tenants and ports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import openstack
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from vigia_identity.config import Kubernetes, OpenStack

__all__ = ["CloudError", "Identity", "Port", "from_kubernetes", "from_openstack"]

MAX_TENANTS, MAX_PORTS = 200_000, 2_000_000
MAX_NAME = 128  # bytes of UTF-8, as vigia-exporter takes them
PAGE = 500
MAX_BODY = 64 << 20

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,127}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")


class CloudError(Exception):
    """A cloud that does not answer, or not as documented."""


@dataclass(frozen=True)
class Port:
    """A Neutron port that is plugged into a host."""

    device: str
    port: str
    tenant: str
    network: str
    workload: str


@dataclass
class Identity:
    """Who is who: names by tenant, and ports by host."""

    names: dict[str, str] = field(default_factory=dict)
    ports: dict[str, list[Port]] = field(default_factory=dict)


def _name(value: object) -> str:
    """Return a name without control characters and at most MAX_NAME bytes long."""
    text = "".join(c for c in str(value or "") if c.isprintable()).strip()
    return text.encode()[:MAX_NAME].decode(errors="ignore")


def _bounded(items: Iterable[Any], most: int, what: str) -> Iterator[Any]:
    for i, item in enumerate(items):
        if i >= most:
            raise CloudError(f"there are more than {most} {what}")
        yield item


def from_openstack(config: OpenStack, *, ports: bool, timeout: float) -> Identity:
    """Ask Keystone for projects and, if wanted, Neutron for compute ports. Raises CloudError."""
    out = Identity()
    try:
        loader = openstack.config.OpenStackConfig(config_files=[str(config.clouds_file)])
        region = loader.get_one(config.cloud, api_timeout=timeout, argparse=None)
        with openstack.connection.Connection(config=region) as cloud:
            for p in _bounded(_projects(cloud), MAX_TENANTS, "projects"):
                if _ID.fullmatch(p.id) and _name(p.name):
                    out.names[p.id] = _name(p.name)
            if ports:
                for p in _bounded(cloud.network.ports(), MAX_PORTS, "ports"):
                    _add_port(out, p)
    except (SDKException, ClientException, OSError) as e:
        # An exception of the SDK may quote the request; its first line says enough.
        first = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise CloudError(f"OpenStack, cloud {config.cloud}: {first[:300]}") from e
    return out


def _projects(cloud: Any) -> Iterator[Any]:
    """Yield all projects. The SDK does not follow Keystone's links to the next page, so ask after the last.

    A Keystone that does not page answers the same again.
    """
    seen: set[str] = set()
    query: dict[str, str] = {}
    while True:
        before = len(seen)
        for p in cloud.identity.projects(**query):
            query = {"marker": p.id}
            if p.id not in seen:
                seen.add(p.id)
                yield p
        if len(seen) == before:
            return


def _add_port(out: Identity, port: Any) -> None:
    host, owner = port.binding_host_id or "", port.device_owner or ""
    if not owner.startswith("compute:") or not _HOST.fullmatch(host):
        return
    if not _ID.fullmatch(port.id) or not _ID.fullmatch(port.project_id or ""):
        return
    optional = [v if v and _ID.fullmatch(v) else "" for v in (port.network_id, port.device_id)]
    # Nova, the OVS agent and the linuxbridge agent name the tap so.
    entry = Port("tap" + port.id[:11], port.id, port.project_id, *optional)
    out.ports.setdefault(host, []).append(entry)


def from_kubernetes(config: Kubernetes, *, timeout: float) -> Identity:
    """Ask the API server for namespaces. Raises CloudError."""
    out = Identity()
    try:
        token = config.token_file.read_text().strip()
        verify: Any = True
        if config.url.startswith("https:") and config.ca_file is not None:
            verify = httpx.create_ssl_context(verify=str(config.ca_file))
        with httpx.Client(
            base_url=config.url, verify=verify, timeout=timeout, headers={"Authorization": f"Bearer {token}"}
        ) as client:
            for item in _bounded(_namespaces(client), MAX_TENANTS, "namespaces"):
                meta = item["metadata"]
                key = config.name_annotation
                marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
                name = _name(marks.get(key)) if key else ""
                if _ID.fullmatch(meta["name"]):
                    out.names[meta["name"]] = name or _name(meta["name"])
    except (httpx.HTTPError, OSError) as e:
        raise CloudError(f"Kubernetes, {config.url}: {e}") from e
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        raise CloudError(f"Kubernetes, {config.url}: the answer is no list of namespaces") from e
    return out


def _namespaces(client: httpx.Client) -> Iterator[Any]:
    """Yield all namespaces, page by page."""
    more = ""
    while True:
        with client.stream("GET", "/api/v1/namespaces", params={"limit": PAGE, "continue": more}) as response:
            response.raise_for_status()
            body = b""
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BODY:
                    raise CloudError(f"Kubernetes: an answer is larger than {MAX_BODY} bytes")
        page = httpx.Response(200, content=body).json()
        yield from page["items"]
        more = page["metadata"].get("continue", "")
        if not more:
            return
