"""Neutron, asked for networks, hosts and our ports, and told to make and remove ports."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from vigia_identity.clouds import MAC, MAX_NODES, PROBES, CloudError, bounded, neutron, printable
from vigia_identity.config import ProbeNetwork
from vigia_identity.probing.plan import Host, Made, Network, Pair, Refused

__all__ = ["Neutron"]

_PORT_FIELDS = [
    *("id", "network_id", "project_id", "device_owner", "mac_address", "fixed_ips", "status"),
    *("binding:host_id", "binding:vif_type", "binding:vif_details"),
]
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BRIDGE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DEVICE = 15
"""Characters that a device of Linux has in its name at most."""
_MOST = 100_000
"""Networks, subnets, agents and our ports that are read."""
_MTU = 1500
"""Of a network that has none, in bytes."""


class Neutron:
    """Neutron by one connection, for ports of one project."""

    def __init__(self, network: Any, operator: str) -> None:
        self._network = network
        self._operator = operator

    def networks(self, wanted: Sequence[ProbeNetwork]) -> tuple[list[Network], list[str]]:
        """Return the networks that are there, and what is wrong with the others. Raises CloudError."""
        fields = ["id", "project_id", "mtu", "tags", "provider:network_type"]
        listed = self._listed("networks", {"fields": fields, "project_id": self._operator})
        own = [n for n in listed if n.get("project_id") == self._operator]
        subnets = list(
            self._listed("subnets", {"fields": ["id", "network_id", "cidr"], "project_id": self._operator})
        )
        found, problems = [], []
        for network in wanted:
            try:
                found.append(self._chosen(network, own, subnets))
            except Refused as e:
                problems.append(str(e))
        names: dict[str, str] = {}
        for network_found in found:
            other = names.setdefault(network_found.id, network_found.name)
            if other != network_found.name:
                problems.append(
                    f"networks {other} and {network_found.name} are one network, {network_found.id}: "
                    "give each a tag of its own"
                )
        return [n for n in found if names[n.id] == n.name], problems

    def _chosen(
        self, wanted: ProbeNetwork, own: Sequence[Mapping[str, Any]], subnets: Sequence[Mapping[str, Any]]
    ) -> Network:
        said = " and ".join(
            f"{what} {value}" for what, value in (("type", wanted.type), ("tag", wanted.tag)) if value
        )
        fit = [n for n in own if _fits(n, wanted)]
        project = self._operator
        if not fit:
            raise Refused(
                f"network {wanted.name}: project {project} has none of {said} that the user can see: "
                f"make one (openstack network create --project {project}), or take it out of "
                "openstack.probes.networks; the attribute provider:network_type needs the role admin"
            )
        if len(fit) > 1:
            raise Refused(
                f"network {wanted.name}: project {project} has {len(fit)} of {said}: "
                "tag one (openstack network set --tag vigia-probe), and write that tag"
            )
        prefixes = dict(_prefixes(subnets, fit[0]["id"]))
        if not prefixes:
            raise Refused(
                f"network {wanted.name}: {fit[0]['id']} has no subnet: make one (openstack subnet create "
                "--no-dhcp --gateway none)"
            )
        mtu = fit[0].get("mtu")
        known = isinstance(mtu, int) and not isinstance(mtu, bool) and 576 <= mtu <= 65535
        return Network(wanted.name, fit[0]["id"], mtu if known and isinstance(mtu, int) else _MTU, prefixes)

    def hosts(self, patterns: Sequence[str]) -> tuple[dict[str, Host], list[str]]:
        """Return the hosts of a pattern that have an agent, and the names without one. Raises CloudError."""
        found = {
            name: Host(name, neutron.alive(agent), neutron.tunnel(agent))
            for name, agent in neutron.agents(self._network).items()
            if any(fnmatchcase(name, p) for p in patterns)
        }
        if len(found) > MAX_NODES:
            raise CloudError(f"there are more than {MAX_NODES} hosts")
        named = [p for p in patterns if not set(p) & set("*?[")]
        problems = [
            f"host {printable(name)}: Neutron has no agent there that plugs ports: start it "
            "(openstack network agent list), or take the host out of openstack.probes.hosts"
            for name in named
            if name not in found
        ]
        if not found and not problems:
            problems.append(
                "Neutron shows no agent of a host in openstack.probes.hosts: start one, or give the user the "
                "role admin, which get_agent needs"
            )
        return found, problems

    def ports(self) -> list[Made]:
        """Return the ports that we have made, whatever became of them. Raises CloudError."""
        query = {"fields": _PORT_FIELDS, "device_owner": PROBES, "project_id": self._operator}
        found = []
        for port in self._listed("ports", query):
            # A server that does not filter must not make us touch what is another's.
            if port.get("device_owner") != PROBES or port.get("project_id") != self._operator:
                continue
            if "binding:host_id" not in port:
                raise CloudError(
                    "Neutron does not show binding:host_id of ports: "
                    "give the user of clouds.yaml the role admin"
                )
            found.append(_made(port))
        return found

    def make(self, network: Network, host: str) -> Made:
        """Make a port that is bound to a host. Raises Refused and leaves nothing; raises CloudError."""
        body = {
            "network_id": network.id,
            "project_id": self._operator,
            "name": f"vigia-probe-{network.name}-{host}"[:255],
            "device_owner": PROBES,
            "device_id": host[:128],
            "binding:host_id": host,
        }
        answer = self._network.post("/ports", json={"port": body})
        if answer.status_code >= 400:
            raise _refusal(answer, Pair(network.name, host), self._operator)
        try:
            port = answer.json()["port"]
            made = _made(port)
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            raise CloudError("Neutron's answer to a new port is not as documented") from e
        if (problem := _unfit(made, host)) is not None:
            self.remove(made)
            raise Refused(f"network {network.name}, host {host}: {problem}")
        return made

    def remove(self, port: Made) -> None:
        """Remove a port of ours; one that is gone already is well. Raises CloudError."""
        answer = self._network.delete(f"/ports/{port.id}")
        if answer.status_code >= 400 and answer.status_code != 404:
            what = "port " + port.id
            if answer.status_code == 403:
                raise CloudError(f"403: the user may not delete {what}: give it the role admin")
            raise CloudError(f"Neutron does not delete {what}: {answer.status_code} {_message(answer)[1]}")

    def _listed(self, kind: str, query: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        return bounded(neutron.listed(self._network, kind, query), _MOST, kind)


def _fits(network: Mapping[str, Any], wanted: ProbeNetwork) -> bool:
    tags = network.get("tags")
    tagged = isinstance(tags, list) and wanted.tag in tags
    return (not wanted.type or network.get("provider:network_type") == wanted.type) and (
        not wanted.tag or tagged
    )


def _prefixes(subnets: Sequence[Mapping[str, Any]], network: str) -> Iterator[tuple[str, int]]:
    for subnet in subnets:
        if subnet.get("network_id") == network:
            try:
                yield subnet["id"], ipaddress.ip_network(str(subnet.get("cidr"))).prefixlen
            except ValueError:
                continue


def _made(port: Mapping[str, Any]) -> Made:
    """Return a port; what is not as it should be is left out, and so the port is not usable."""
    details = port.get("binding:vif_details")
    bridge = details.get("bridge_name") if isinstance(details, Mapping) else None
    mac, vif, ours = str(port.get("mac_address")), str(port.get("binding:vif_type") or ""), str(port["id"])
    fixed = port.get("fixed_ips")
    addresses = tuple(_addresses(fixed if isinstance(fixed, list) else []))
    sound = _ID.fullmatch(ours) is not None and MAC.fullmatch(mac) is not None
    return Made(
        id=ours,
        network=str(port.get("network_id")),
        host=str(port.get("binding:host_id") or ""),
        mac=mac if sound else "",
        addresses=addresses if sound else (),
        vif=vif,
        bridge=_bridge(bridge, vif, str(port.get("network_id"))),
        active=port.get("status") == "ACTIVE",
    )


def _bridge(said: object, vif: str, network: str) -> str:
    """Return the bridge of a port: what Neutron says, or else what its agents call it."""
    linux = vif == "bridge"
    own = f"brq{network[:11]}" if linux else "br-int"
    for name in (said, own):
        if isinstance(name, str) and _BRIDGE.fullmatch(name) and not (linux and len(name) > _DEVICE):
            return name
    return ""


def _addresses(fixed: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for item in fixed[:16]:
        try:
            yield str(item["subnet_id"]), str(ipaddress.ip_address(item["ip_address"]))
        except (LookupError, TypeError, ValueError):
            continue


def _unfit(made: Made, host: str) -> str | None:
    """Return why a new port is of no use on its host, None if it is."""
    if not made.bound:
        return (
            f"Neutron made a port and could not bind it ({made.vif or 'unbound'}): the agent of the host is "
            "not alive, or has not the network's type (openstack network agent show; tunnel_types, "
            "bridge_mappings)"
        )
    if made.switch is None:
        return (
            f"a port there is of the kind {printable(made.vif)}, which vigia-probe cannot plug: "
            "take the host out of openstack.probes.hosts"
        )
    if made.host != host or not made.addresses:
        return (
            "Neutron made a port without an address, or on another host: "
            "give the network a subnet with free addresses"
        )
    return None


def _message(answer: Any) -> tuple[str, str]:
    """Return the type and the text of Neutron's error."""
    try:
        said = answer.json()["NeutronError"]
        return (
            (str(said["type"]), printable(said["message"]))
            if isinstance(said, Mapping)
            else ("", printable(said))
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", ""


def _refusal(answer: Any, pair: Pair, project: str) -> Exception:
    """Return what a refused port means, and what mends it."""
    kind, message = _message(answer)
    where = f"network {pair.network}, host {pair.host}"
    if kind == "OverQuota":
        return Refused(
            f"the quota of ports of project {project} is used up: raise it "
            f"(openstack quota set --ports NUMBER {project}), or name fewer networks or hosts in "
            "openstack.probes",
            all_alike=True,
        )
    if answer.status_code == 403:
        return Refused(
            f"403: the user may not make ports with binding:host_id in project {project}: give it the "
            "role admin, or change Neutron's policy create_port:binding:host_id",
            all_alike=True,
        )
    if kind == "IpAddressGenerationFailure":
        return Refused(
            f"{where}: its subnets have no free address: make a larger one (openstack subnet create)"
        )
    if answer.status_code < 500:
        return Refused(f"{where}: Neutron refuses a port: {answer.status_code} {kind} {message}")
    return CloudError(f"{where}: Neutron fails to make a port: {answer.status_code} {kind} {message}")
