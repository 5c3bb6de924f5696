"""The configuration file."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from vigia_config import Rate, Seconds, Strict, absolute, fault
from vigia_config.urls import base_url
from vigia_identity.clouds import HOST

__all__ = [
    "Approvals",
    "Config",
    "Kubernetes",
    "Notices",
    "NoticesNode",
    "OpenStack",
    "PortTerms",
    "ProbeNetwork",
    "Probes",
    "Site",
]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


AbsolutePath = Annotated[Path, absolute("/var/lib/vigia/tenants.yaml")]


def _url(key: list[str], value: str, what: str, example: str) -> None:
    """Refuse what is not the URL of a server."""
    try:
        base_url(value, what, example)
    except ValueError as e:
        problem, _, fix = str(e).partition("; ")
        raise fault(key, problem, fix) from e


class PortTerms(Strict):
    """What a port has bought where no policy says it, each way."""

    guarantee: Rate
    """Rate that is the port's whatever others send."""
    ceiling: Rate
    """Rate that it may use of what is idle; at least the guarantee."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not 0 < self.guarantee <= self.ceiling:
            raise fault(["ceiling"], "is below the guarantee, or that is 0", "write at least the guarantee")
        return self


LabelName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class ProbeNetwork(Strict):
    """A network of the operator's own project in which nodes probe each other: the one of its type or tag."""

    name: LabelName
    """What it is called in namespaces of nodes, and in labels at_NAME of nodes.json."""
    type: str = Field(default="", max_length=32, examples=["vxlan"])
    """Its provider:network_type."""
    tag: str = Field(default="", max_length=60)
    """One of its tags, in place of a type or beside it."""

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if not self.type and not self.tag:
            raise fault(["type"], "is missing and so is tag", "write for example type: vxlan")
        return self


class Probes(Strict):
    """Ports of Neutron that vigia-identity makes to probe between: one for each network and host."""

    dir: AbsolutePath
    """Gets HOST.yaml for every host, to be read there by vigia-probe plug, and nodes.json for discovery."""
    networks: list[ProbeNetwork] = Field(max_length=16)
    """In which there are ports; networks that are not named have none, and with [] all ports go."""
    hosts: list[str] = Field(default=["*"], min_length=1, max_length=10_000)
    """Patterns of hosts, as Neutron's agents call them, that have ports."""

    @model_validator(mode="after")
    def _are_apart(self) -> Self:
        for i, network in enumerate(self.networks):
            if network.name in [n.name for n in self.networks[:i]]:
                raise fault(["networks", i, "name"], "is used twice", "give each network a name of its own")
        return self


def _address(value: str) -> str:
    try:
        if "%" in value:
            raise ValueError("an address of one host's interface")
        return str(ipaddress.ip_address(value)) if value else ""
    except ValueError as e:
        raise PydanticCustomError("vigia", "is not an IP address; write for example 10.20.0.9") from e


def _listener(value: str) -> str:
    """Refuse what is not ADDRESS:PORT; vigia-enforcer does not look up names."""
    host, _, port = value.rpartition(":")
    try:
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        address = ipaddress.ip_address(bare)
        good = (
            "%" not in value
            and (address.version == 6) == (bare != host)
            and re.fullmatch(r"[0-9]{1,5}", port) is not None
        )
    except ValueError:
        good = False
    if value and not (good and 0 < int(port) < 1 << 16):
        raise PydanticCustomError("vigia", "is not address:port; write for example 192.0.2.1:9876")
    return value


def _host(value: str) -> str:
    if not HOST.fullmatch(value):
        raise PydanticCustomError(
            "vigia", "is not the name of a host; write it as Neutron's agents do, for example compute1"
        )
    return value


class NoticesNode(Strict):
    """Where a host's enforcer is reached by the others; what is left out is as its agent says."""

    address: Annotated[str, AfterValidator(_listener)] = ""
    """fast_loop.listen of its enforcer; without it where its tunnels end, and the port."""
    tunnel: Annotated[str, AfterValidator(_address)] = ""
    """Where its tunnels end."""
    vlan: int = Field(default=0, ge=0, le=4094)
    """That a switch tags its tunnels with; 0 = that of a VLAN device, if there is one."""


class Notices(Strict):
    """How enforcers reach each other, for the files of sites_dir."""

    port: int = Field(default=9876, ge=1, le=65535)
    """Of fast_loop.listen, on all hosts that are not named."""
    nodes: dict[Annotated[str, AfterValidator(_host)], NoticesNode] = Field(default={}, max_length=10_000)
    """By host, what goes before what Neutron's agents say."""


class OpenStack(Strict):
    """A cloud of clouds.yaml, which holds the credentials."""

    cloud: str = Field(min_length=1, max_length=128)
    """Name of the cloud in `clouds_file`."""
    clouds_file: AbsolutePath = Path("/etc/openstack/clouds.yaml")
    """Where the credentials are."""
    names: bool = True
    """Whether there is a Keystone to ask for names of projects."""
    operator: str = Field(default="", max_length=128)
    """Id of the operator's own project, whose ports measure: they are _infra's."""
    changes: Seconds = 2.0
    """With contracts_dir or sites_dir, how often it is asked what has changed; less often if it is slow."""
    default: PortTerms | None = None
    """Of ports whose policy of QoS does not say it, or that have none."""
    probes: Probes | None = None
    """Have ports made to probe between; none without it."""
    notices: Notices = Notices()
    """With sites_dir, how enforcers reach each other."""

    @model_validator(mode="after")
    def _has_an_operator(self) -> Self:
        if self.probes is not None and not self.operator:
            raise fault(["probes"], "needs the operator's own project", "write its id as operator")
        return self


def _object_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", value):
        raise PydanticCustomError(
            "vigia", "is not the name of an object; write small letters, digits and dashes, at most 63"
        )
    return value


ObjectName = Annotated[str, AfterValidator(_object_name)]


class Guarantees(Strict):
    """What was bought: NetworkGuarantees become contracts.yaml of a ConfigMap."""

    config_map: ObjectName
    """It has to exist; enforcers follow it."""
    enforcers: ObjectName
    """The one of services whose pods say what is in force."""
    pod_annotations: bool = False
    """kubernetes.io/egress-bandwidth and ingress-bandwidth of a pod are contracts: who writes pods sells."""


class Approvals(Strict):
    """Actions that wait for a person: IsolationActions of Vigia's own namespace, whose annotation decides."""

    agent: str
    """URL of the isolation agent."""
    token_file: AbsolutePath
    """Bearer token of an account there with the role `approver`."""

    @model_validator(mode="after")
    def _is_url(self) -> Self:
        _url(["agent"], self.agent, "the isolation agent", "http://vigia-isolation-agent:9874")
        return self


class Site(Strict):
    """Vigia's own pods: whoever has to know of them reads the ConfigMap as files."""

    namespace: ObjectName
    """Where Vigia's pods are."""
    services: list[ObjectName] = Field(min_length=1, max_length=16)
    """Each becomes SERVICE.json in the format of file_sd, with the labels node, zone and rack."""
    config_map: ObjectName
    """It has to exist; it gets tenants.yaml besides."""
    rack_label: str = Field(default="topology.kubernetes.io/rack", max_length=317)
    """Label of a node that names its rack."""
    addresses: dict[ObjectName, dict[LabelName, ObjectName]] = Field(default={}, max_length=16)
    """By service, NAME: another one. A node's label at_NAME is where the other's pod is on it."""
    cluster_addresses: dict[ObjectName, ObjectName] = Field(default={}, max_length=16)
    """By service, one with a cluster address: labels at_service and, with a port on nodes, at_nodeport."""
    parts: list[ObjectName] = Field(default=[], max_length=16)
    """Further services of Vigia's, which nobody finds here: Events say why their pods do not run, too."""
    approvals: Approvals | None = None
    """Have people approve or reject what waits for them by annotations; none without it."""
    guarantees: Guarantees | None = None
    """Have contracts made of the cluster's NetworkGuarantees; none without it."""

    @model_validator(mode="after")
    def _are_asked(self) -> Self:
        for key, named in (("addresses", self.addresses), ("cluster_addresses", self.cluster_addresses)):
            for service in named:
                if service not in self.services:
                    raise fault([key, service], "is not one of services", "add it there, or remove it here")
        for i, part in enumerate(self.parts):
            if part in self.services:
                raise fault(["parts", i], f"names {part}, which is one of services", "remove it here")
        if self.guarantees is not None and self.guarantees.enforcers not in self.services:
            raise fault(["guarantees", "enforcers"], "is not one of services", "add it there")
        for service, others in self.addresses.items():
            for name, other in others.items():
                if other not in self.services:
                    raise fault(
                        ["addresses", service, name],
                        f"names {other}, which is not one of services",
                        "add it there",
                    )
        return self


class Kubernetes(Strict):
    """A cluster's API server. The defaults are what a pod finds."""

    url: str = "https://kubernetes.default.svc"
    """Of the API server."""
    token_file: AbsolutePath = SERVICE_ACCOUNT / "token"
    """Bearer token of a service account."""
    ca_file: AbsolutePath | None = SERVICE_ACCOUNT / "ca.crt"
    """None trusts the system's authorities."""
    name_annotation: str = ""
    """The namespace's annotation or label that has the tenant's name; else the namespace is the name."""
    site: Site | None = None
    """Vigia's own pods; leave it out where Vigia is not on Kubernetes."""

    @model_validator(mode="after")
    def _is_url(self) -> Self:
        _url(["url"], self.url, "an API server", "https://10.0.0.1:6443")
        return self


class Config(Strict):
    """The whole file."""

    tenants_file: AbsolutePath
    """What the exporters read as tenants_file."""
    ports_dir: AbsolutePath | None = None
    """Gets HOST.yaml for every host with Neutron ports, to be read there as ports_file."""
    contracts_dir: AbsolutePath | None = None
    """Gets HOST.yaml for every host with Neutron ports: contracts_file of its enforcer."""
    sites_dir: AbsolutePath | None = None
    """Gets HOST.yaml for every host with an agent of Neutron: site_file of its enforcer's fast loop."""
    every: Seconds = 300.0
    """Time from one look at the cloud to the next."""
    timeout: Seconds = 30.0
    """How long an API may take for one answer."""
    openstack: OpenStack | None = None
    """Asked for the names of projects, and for the owners of ports."""
    kubernetes: Kubernetes | None = None
    """Asked for the names of namespaces."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.openstack is None and self.kubernetes is None:
            raise fault(["openstack"], "is missing and so is kubernetes", "name at least one of the two")
        for name in ("ports_dir", "sites_dir"):
            if getattr(self, name) is not None and self.openstack is None:
                raise fault([name], "is of no use without openstack", "remove it")
        if self.contracts_dir is not None and (self.openstack is None or self.openstack.default is None):
            raise fault(
                ["contracts_dir"],
                "needs to know what a port has bought whose policy does not say",
                "write openstack.default: {guarantee: 10Mbit, ceiling: 1Gbit}, or leave contracts_dir out",
            )
        for name, other in (
            ("contracts_dir", "ports_dir"),
            ("sites_dir", "ports_dir"),
            ("sites_dir", "contracts_dir"),
        ):
            if getattr(self, name) is not None and getattr(self, name) == getattr(self, other):
                raise fault([name], f"is {other}", "give each a folder of its own")
        if self.openstack is not None and self.openstack.changes < 1.0:
            raise fault(["openstack", "changes"], "is shorter than 1s", "write 1s or more")
        for name, least in (("every", 10.0), ("timeout", 1.0)):
            if getattr(self, name) < least:
                raise fault([name], f"is shorter than {least:g}s", f"write {least:g}s or more")
        return self
