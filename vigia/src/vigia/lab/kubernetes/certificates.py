"""Who is who in the cluster: an authority, certificates by the roles' names, clients' files."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vigia.lab.kubernetes.places import SERVICES, ClusterPlaces, api_address, members
from vigia.lab.model import Lab

__all__ = ["write"]

_LIFE = timedelta(days=30)  # longer than any lab is up
_CLIENTS = {
    "admin": ("admin", "system:masters"),
    "kubelet-client": ("kube-apiserver-kubelet-client", "system:masters"),
    "front-proxy": ("front-proxy-client", ""),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
}
"""Common name and organization of each client of the API, by its files' name: RBAC goes by them."""


class _Signer:
    """An authority whose key is written down, too: the controllers sign with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("vigia lab", "")
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._write("ca", self._key, builder.sign(self._key, hashes.SHA256()))

    def issue(self, file: str, common_name: str, organization: str, hosts: Sequence[str] = ()) -> None:
        """Write a key and a certificate for both ends of TLS."""
        key = ec.generate_private_key(ec.SECP256R1())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(_name(common_name, organization), key)
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general(h) for h in hosts])
            builder = builder.add_extension(names, critical=False)
        self._write(file, key, builder.sign(self._key, hashes.SHA256()))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + _LIFE)
        )

    def _write(self, file: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        _write_key(self._folder / f"{file}.key", key)
        (self._folder / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def write(lab: Lab) -> int:
    """Write all that the cluster's programs show each other; return how many certificates there are."""
    places = ClusterPlaces(lab.layout)
    folder = places.certificates
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    signer = _Signer(folder)
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    addresses = [api_address(lab), "127.0.0.1", str(SERVICES.network_address + 1)]
    signer.issue("apiserver", "kube-apiserver", "", [*addresses, *names])
    for file, (common_name, organization) in _CLIENTS.items():
        signer.issue(file, common_name, organization)
        _client(lab, file)
    for member in members(lab):
        name = f"system:node:{member.name}"
        signer.issue(member.name, name, "system:nodes", [member.address, member.name])
        _client(lab, member.name)
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(folder / "accounts.key", accounts)
    public = accounts.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "accounts.pub").write_bytes(public)
    return len(list(folder.glob("*.crt")))


def _client(lab: Lab, file: str) -> None:
    """Write a client's configuration (kubeconfig)."""
    folder = ClusterPlaces(lab.layout).certificates
    server = f"https://{api_address(lab)}:6443"
    user = {"client-certificate": str(folder / f"{file}.crt"), "client-key": str(folder / f"{file}.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [
            {"name": "lab", "cluster": {"server": server, "certificate-authority": str(folder / "ca.crt")}}
        ],
        "users": [{"name": file, "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": file}}],
    }
    path = folder / f"{file}.conf"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)


def _name(common_name: str, organization: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(content)
