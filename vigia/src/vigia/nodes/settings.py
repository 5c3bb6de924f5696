"""The configuration of a node's agent."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

import vigia_config
from vigia.campaign.jobs import Netns
from vigia.host import associations
from vigia_config import Strict, fault
from vigia_config.tls import Tls

__all__ = ["Agent", "client_context", "load"]

PORT = 9877


def _written(value: object) -> object:
    """Refuse numbers, of which addresses could be made."""
    if isinstance(value, int | bytes):
        raise PydanticCustomError(
            "vigia", "is not an address; write for example 10.0.0.1, or 10.0.0.0/8 for a network"
        )
    return value


class Agent(Strict):
    """What the agent of a node may do, and for whom."""

    listen: Annotated[ipaddress.IPv4Address, BeforeValidator(_written)] = Field(
        description="Address that the agent listens on."
    )
    port: Annotated[int, Field(ge=1, le=65535, description="TCP port.")] = PORT
    tls: Tls | None = Field(
        default=None,
        description="Certificates. Without them the agent listens on loopback addresses only.",
    )
    clients: list[str] = Field(
        default=["vigia"],
        description="Common names of the certificates that may send jobs.",
        min_length=1,
    )
    networks: list[Annotated[ipaddress.IPv4Network, BeforeValidator(_written)]] = Field(
        description="Networks whose addresses traffic is sent to and served on; nothing else is.",
        min_length=1,
    )
    namespaces: list[Netns] = Field(
        default=[], description="Network namespaces, in /run/netns, that jobs may enter."
    )
    vici: list[Path] = Field(
        default=[associations.VICI],
        description="Sockets of strongSwan, whose rekeying is marked in campaigns; the kernel's is found "
        "where the agent has CAP_NET_ADMIN.",
        max_length=16,
    )
    probe: Path = Field(default=Path("/usr/bin/vigia-probe"), description="The program vigia-probe.")
    jobs: Annotated[int, Field(ge=1, le=256, description="Jobs at work at once, and as many servers.")] = 64

    @model_validator(mode="after")
    def _protected(self) -> Self:
        if self.tls is None and not self.listen.is_loopback:
            raise fault(
                ["listen"],
                f'"{self.listen}" can be reached from other machines and there is no tls',
                "add tls with the files of: vigia certs init --part vigia-node",
            )
        return self


def load(path: Path) -> Agent:
    """Read a file. Raises vigia_config.ConfigError."""
    return vigia_config.load(path, Agent)


def client_context(tls: Tls | None) -> ssl.SSLContext | bool:
    """Return what httpx takes as verify. Raises vigia_config.ConfigError."""
    return True if tls is None else tls.client()
