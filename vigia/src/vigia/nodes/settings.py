"""The configuration of a node's agent."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

import vigia_config
from vigia.campaign.jobs import Netns
from vigia.errors import VigiaError
from vigia_config import Strict, fault

__all__ = ["Agent", "Tls", "client_context", "load"]

PORT = 9877


class Tls(Strict):
    """Certificates, as vigia certs init makes them; files with absolute paths."""

    ca_file: Path = Field(description="Authority that the other end's certificate is of.")
    cert_file: Path = Field(description="Own certificate.")
    key_file: Path = Field(description="Key of the own certificate.")

    @model_validator(mode="after")
    def _absolute(self) -> Self:
        for name in ("ca_file", "cert_file", "key_file"):
            value: Path = getattr(self, name)
            if not value.is_absolute():
                raise fault([name], f'"{value}" is relative', f"write it from the root: {Path.cwd() / value}")
        return self

    def context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        """Return what a connection needs; both ends show a certificate. Raises VigiaError."""
        try:
            context = ssl.create_default_context(purpose, cafile=self.ca_file)
            context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as e:  # ssl.SSLError is one
            raise VigiaError(f"certificates of {self.cert_file.parent} cannot be used: {e}") from e
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class Agent(Strict):
    """What the agent of a node may do, and for whom."""

    listen: ipaddress.IPv4Address = Field(description="Address that campaigns reach the agent at.")
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
    networks: list[ipaddress.IPv4Network] = Field(
        description="Networks whose addresses traffic is sent to and served on; nothing else is.",
        min_length=1,
    )
    namespaces: list[Netns] = Field(
        default=[], description="Network namespaces, in /run/netns, that jobs may enter."
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
    """Return what httpx takes as verify. Raises VigiaError."""
    return True if tls is None else tls.context(ssl.Purpose.SERVER_AUTH)
