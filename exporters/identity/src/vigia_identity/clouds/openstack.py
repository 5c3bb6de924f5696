"""OpenStack: projects of Keystone, and what Neutron has of ports, once or as it changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import openstack
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from vigia_identity.clouds import ID, MAX_TENANTS, CloudError, Identity, bounded, neutron, printable
from vigia_identity.config import OpenStack

__all__ = ["ChangeWatch", "ask", "connected"]

SHARE = 20
"""A kind of objects is asked for changes again after so many times as long as the last answer took."""


def ask(config: OpenStack, *, timeout: float, wanted: neutron.Wanted | None) -> Identity:
    """Ask Keystone for projects and, unless nothing is wanted of them, Neutron for compute ports.

    Raises CloudError.
    """
    out = Identity()
    with connected(config, timeout) as cloud:
        found = _projects(cloud) if config.names else ()
        for p in bounded(found, MAX_TENANTS, "projects"):
            if ID.fullmatch(p.id) and printable(p.name):
                out.names[p.id] = printable(p.name)
        if wanted is not None:
            out.asked = int(time.time())
            out.shown = _all(cloud.network, wanted)
            neutron.tell(config, out.shown, out, wanted)
    return out


def _all(network: Any, wanted: neutron.Wanted) -> neutron.Objects:
    hosts = {n: neutron.tunnel(a) for n, a in neutron.agents(network).items()} if wanted.site else {}
    if not wanted.bought:
        return neutron.Objects(neutron.read(network, "ports", wanted), hosts=hosts)
    policies, networks, ports = (
        neutron.read(network, kind, wanted) for kind in ("qos/policies", "networks", "ports")
    )
    return neutron.Objects(ports, networks, policies, hosts)


@contextmanager
def connected(config: OpenStack, timeout: float) -> Iterator[Any]:
    """Connect; what goes wrong meanwhile becomes a CloudError."""
    with _named(config), _connect(config, timeout) as cloud:
        yield cloud


def _connect(config: OpenStack, timeout: float) -> Any:
    loader = openstack.config.OpenStackConfig(config_files=[str(config.clouds_file)])
    region = loader.get_one(config.cloud, api_timeout=timeout, argparse=None)
    return openstack.connection.Connection(config=region)


@contextmanager
def _named(config: OpenStack) -> Iterator[None]:
    """Have errors name the cloud. One of the SDK may quote the request; its first line says enough."""
    try:
        yield
    except (SDKException, ClientException, OSError) as e:
        first = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise CloudError(f"OpenStack, cloud {config.cloud}: {first[:300]}") from e
    except (LookupError, TypeError, AttributeError, ValueError) as e:  # of the SDK, of what it was answered
        raise CloudError(f"OpenStack, cloud {config.cloud}: an answer is not as documented") from e


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


class ChangeWatch:
    """Asks Neutron by one connection what has changed: policies of QoS, networks and ports.

    What it costs Neutron is bounded by how long its answers take: none of the three kinds is asked for during
    more than a SHAREth of the time.
    """

    def __init__(
        self,
        config: OpenStack,
        timeout: float,
        wanted: neutron.Wanted,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._wanted = wanted
        self._now = now
        self._due: dict[str, float] = {}
        with _named(config):
            self._cloud = _connect(config, timeout)

    def close(self) -> None:
        """End the connection."""
        self._cloud.close()

    def changed(self, known: Identity) -> Identity | None:
        """Return what is so now, None if that is what is known. Raises CloudError."""
        shown = known.shown
        assert isinstance(shown, neutron.Objects)  # noqa: S101 - ask has put it there
        begun = int(time.time())
        with _named(self._config):
            policies = networks = None
            if self._wanted.bought:
                policies = self._asked("qos/policies", shown.policies)
                networks = self._asked("networks", shown.networks)
            ports = self._asked("ports", shown.ports)
        if policies is None and networks is None and ports is None:
            return None
        shown = neutron.Objects(
            shown.ports if ports is None else ports,
            shown.networks if networks is None else networks,
            shown.policies if policies is None else policies,
            shown.hosts,
        )
        asked = known.asked if ports is None else begun
        fresh = replace(known, ports={}, contracts={}, site=None, problems=[], asked=asked, shown=shown)
        return neutron.tell(self._config, shown, fresh, self._wanted)

    def _asked(self, kind: str, known: neutron.Kind) -> neutron.Kind | None:
        begun = self._now()
        if begun < self._due.get(kind, begun):
            return None
        found = neutron.read_changed(self._cloud.network, kind, known, self._wanted)
        took = self._now() - begun
        self._due[kind] = begun + took * SHARE
        return found
