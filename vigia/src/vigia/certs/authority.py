"""A certificate authority in a folder, and what it issues (RFC 5280)."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vigia.errors import VigiaError

__all__ = ["Authority", "Issued", "names_of", "read"]

_CA_LIFE = timedelta(days=3650)
_LIFE = timedelta(days=397)
_BACKDATED = timedelta(minutes=5)  # clocks of nodes differ
_RENEW = timedelta(days=30)
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Issued:
    """A certificate on disk."""

    part: str
    certificate: Path
    key: Path
    names: tuple[str, ...]
    expires: datetime
    fresh: bool
    """Whether it was made just now."""

    @property
    def days(self) -> int:
        """Whole days that it is valid for yet; negative once it has expired."""
        return (self.expires - datetime.now(UTC)).days


class Authority:
    """The authority whose key and certificate are ca.key and ca.crt in a folder."""

    def __init__(self, folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.folder = folder
        self._key = key
        self._certificate = certificate

    @classmethod
    def open(cls, folder: Path) -> Authority:
        """Open the authority of a folder, or found one. Raises VigiaError."""
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        key_file, file = folder / "ca.key", folder / "ca.crt"
        if key_file.exists() != file.exists():
            there, missing = (key_file, file) if key_file.exists() else (file, key_file)
            raise VigiaError(f"{there} is there and {missing} is not; put it back, or remove {there}")
        if not file.exists():
            return cls._found(folder, key_file, file)
        authority = cls(folder, _load_key(key_file), read(file))
        if _public(authority._certificate) != _public_of(authority._key):
            raise VigiaError(f"{key_file} is not the key of {file}; put the right one back")
        end = authority._certificate.not_valid_after_utc
        if end < datetime.now(UTC) + _LIFE:
            raise VigiaError(
                f"the authority {file} expires on {end:%Y-%m-%d}, before what it would issue; "
                f"move {folder} away and run vigia certs init again on every node"
            )
        return authority

    @classmethod
    def _found(cls, folder: Path, key_file: Path, file: Path) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Vigia site authority")])
        builder = _builder(name, name, key, _CA_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        certificate = builder.sign(key, hashes.SHA256())
        _write_key(key_file, key)
        _write(file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return cls(folder, key, certificate)

    def issue(self, part: str, hosts: Iterable[str], renew: bool = False) -> Issued:
        """Return the part's certificate for both ends of TLS, making it unless a good one is there."""
        key_file, file = self.folder / f"{part}.key", self.folder / f"{part}.crt"
        names = tuple(dict.fromkeys((part, *_LOCAL, *hosts)))
        if not renew and key_file.exists() and file.exists() and self._good(key_file, file, names):
            return Issued(part, file, key_file, names, read(file).not_valid_after_utc, fresh=False)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, part)])
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(subject, self._certificate.subject, key, _LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        builder = builder.add_extension(
            x509.SubjectAlternativeName(map(_general_name, names)), critical=False
        )
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(_ec(self._certificate)), critical=False
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        _write_key(key_file, key)
        _write(file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return Issued(part, file, key_file, names, certificate.not_valid_after_utc, fresh=True)

    def _good(self, key_file: Path, file: Path, names: tuple[str, ...]) -> bool:
        try:
            certificate, key = read(file), _load_key(key_file)
            certificate.verify_directly_issued_by(self._certificate)
        except (VigiaError, InvalidSignature, ValueError, TypeError):
            return False
        lasts = certificate.not_valid_after_utc > datetime.now(UTC) + _RENEW
        return lasts and _public(certificate) == _public_of(key) and set(names) == set(names_of(certificate))

    def issued(self) -> Iterator[Issued]:
        """Yield what is in the folder."""
        for file in sorted(self.folder.glob("*.crt")):
            if file.name == "ca.crt":
                continue
            c = read(file)
            yield Issued(file.stem, file, file.with_suffix(".key"), names_of(c), c.not_valid_after_utc, False)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the host names and addresses that a certificate is for."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return tuple(str(n.value) for n in names)


def read(file: Path) -> x509.Certificate:
    """Read a certificate. Raises VigiaError."""
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError) as e:
        raise VigiaError(f"{file} is not a PEM certificate: {e}") from e


def _load_key(file: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(file.read_bytes(), None)
    except (OSError, ValueError, TypeError) as e:
        raise VigiaError(f"{file} is not a PEM private key without a password") from e
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise VigiaError(f"{file} is not an elliptic-curve key; remove it and run vigia certs init again")
    return key


def _ec(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise VigiaError("the authority's certificate has no elliptic-curve key")
    return key


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _public_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(file, pem, 0o600)


def _write(file: Path, content: bytes, mode: int) -> None:
    """Put a file in place in one step; it never has a looser mode than it ends with."""
    draft = file.with_name(f".{file.name}.new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    draft.replace(file)
