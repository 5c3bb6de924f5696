"""OpenStack: projects of Keystone, ports of Neutron."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openstack
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from vigia_identity.clouds import (
    HOST,
    ID,
    MAX_PORTS,
    MAX_TENANTS,
    CloudError,
    Identity,
    Port,
    bounded,
    printable,
)
from vigia_identity.config import OpenStack

__all__ = ["ask"]


def ask(config: OpenStack, *, ports: bool, timeout: float) -> Identity:
    """Ask Keystone for projects and, if wanted, Neutron for compute ports. Raises CloudError."""
    out = Identity()
    try:
        loader = openstack.config.OpenStackConfig(config_files=[str(config.clouds_file)])
        region = loader.get_one(config.cloud, api_timeout=timeout, argparse=None)
        with openstack.connection.Connection(config=region) as cloud:
            for p in bounded(_projects(cloud), MAX_TENANTS, "projects"):
                if ID.fullmatch(p.id) and printable(p.name):
                    out.names[p.id] = printable(p.name)
            if ports:
                for p in bounded(cloud.network.ports(), MAX_PORTS, "ports"):
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
    if not owner.startswith("compute:") or not HOST.fullmatch(host):
        return
    if not ID.fullmatch(port.id) or not ID.fullmatch(port.project_id or ""):
        return
    optional = [v if v and ID.fullmatch(v) else "" for v in (port.network_id, port.device_id)]
    # Nova, the OVS agent and the linuxbridge agent name the tap so.
    entry = Port("tap" + port.id[:11], port.id, port.project_id, *optional)
    out.ports.setdefault(host, []).append(entry)
