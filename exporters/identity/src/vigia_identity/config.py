"""The configuration file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from vigia_config import Seconds, Strict, absolute, fault
from vigia_config.urls import base_url

__all__ = ["Config", "Kubernetes", "OpenStack", "Site"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


AbsolutePath = Annotated[Path, absolute("/var/lib/vigia/tenants.yaml")]


class OpenStack(Strict):
    """A cloud of clouds.yaml, which holds the credentials."""

    cloud: str = Field(min_length=1, max_length=128)
    clouds_file: AbsolutePath = Path("/etc/openstack/clouds.yaml")


def _object_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", value):
        raise PydanticCustomError(
            "vigia", "is not the name of an object; write small letters, digits and dashes, at most 63"
        )
    return value


ObjectName = Annotated[str, AfterValidator(_object_name)]


class Site(Strict):
    """Vigia's own pods: whoever has to know of them reads the ConfigMap as files."""

    namespace: ObjectName
    services: list[ObjectName] = Field(min_length=1, max_length=16)
    """Each becomes SERVICE.json in the format of file_sd, with the labels node, zone and rack."""
    config_map: ObjectName
    """It has to exist; it gets tenants.yaml besides."""
    rack_label: str = Field(default="topology.kubernetes.io/rack", max_length=317)
    """Label of a node that names its rack."""


class Kubernetes(Strict):
    """A cluster's API server. The defaults are what a pod finds."""

    url: str = "https://kubernetes.default.svc"
    token_file: AbsolutePath = SERVICE_ACCOUNT / "token"
    ca_file: AbsolutePath | None = SERVICE_ACCOUNT / "ca.crt"
    """None trusts the system's authorities."""
    name_annotation: str = ""
    """The namespace's annotation or label that has the tenant's name; else the namespace is the name."""
    site: Site | None = None

    @model_validator(mode="after")
    def _is_url(self) -> Self:
        try:
            base_url(self.url, "an API server", "https://10.0.0.1:6443")
        except ValueError as e:
            problem, _, fix = str(e).partition("; ")
            raise fault(["url"], problem, fix) from e
        return self


class Config(Strict):
    """The whole file."""

    tenants_file: AbsolutePath
    """What the exporters read as tenants_file."""
    ports_dir: AbsolutePath | None = None
    """Gets HOST.yaml for every host with Neutron ports, to be read there as ports_file."""
    every: Seconds = 300.0
    """Time from one look at the cloud to the next."""
    timeout: Seconds = 30.0
    """How long an API may take for one answer."""
    openstack: OpenStack | None = None
    kubernetes: Kubernetes | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.openstack is None and self.kubernetes is None:
            raise fault(["openstack"], "is missing and so is kubernetes", "name at least one of the two")
        if self.ports_dir is not None and self.openstack is None:
            raise fault(["ports_dir"], "is of no use without openstack", "remove it")
        for name, least in (("every", 10.0), ("timeout", 1.0)):
            if getattr(self, name) < least:
                raise fault([name], f"is shorter than {least:g}s", f"write {least:g}s or more")
        return self
