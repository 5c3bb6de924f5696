"""TLS of a program that listens and connects: one certificate for both, as ``vigia certs init`` makes it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vigia_config import ConfigError, Strict, absolute

__all__ = ["Tls"]


File = Annotated[Path, absolute("/etc/vigia/tls/ca.crt")]


class Tls(Strict):
    """Files in PEM, and whom the listener serves."""

    ca_file: File = Field(description="Authority of the other parts, as servers and as clients.")
    cert_file: File = Field(description="Own certificate.")
    key_file: File = Field(description="Key of the own certificate.")
    require_client_certificate: bool = Field(
        default=True, description="Serve only clients with a certificate of the authority."
    )

    def server(self) -> ssl.SSLContext:
        """Return what a listener needs. Raises ConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        if self.require_client_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self) -> ssl.SSLContext:
        """Return what a client needs. Raises ConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        for field in ("ca_file", "cert_file", "key_file"):
            file: Path = getattr(self, field)
            try:
                file.open("rb").close()
            except OSError as e:
                raise ConfigError(f"tls.{field}: {file}: cannot be read: {e.strerror}") from e
        try:
            context.load_verify_locations(cafile=self.ca_file)
        except ssl.SSLError as e:
            raise ConfigError(f"tls.ca_file: {self.ca_file}: has no certificate in PEM") from e
        try:
            context.load_cert_chain(self.cert_file, self.key_file)
        except ssl.SSLError as e:
            raise ConfigError(
                f"tls.cert_file: {self.cert_file}: is no certificate in PEM, "
                f"or {self.key_file} is not its key"
            ) from e
