"""TLS: who is served, who is not, slow handshakes, and certificates that change."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vigia_config.tls import Tls
from vigia_service.server import client_names, connection

from .serving import Running, head, read_all, read_answer, serving, status_of
from .test_slow_clients import FOREVER, is_open, open_connections

PEM = serialization.Encoding.PEM


class Authority:
    """Makes certificates for 127.0.0.1 in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name("authority")
        basic = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = self._signed(_name("authority"), self.key, basic)
        (folder / "ca.crt").write_bytes(self.certificate.public_bytes(PEM))

    def issue(self, common_name: str, *, require_client: bool = True) -> Tls:
        """Make a certificate and return it as a configuration would name it."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(_name(common_name), key, x509.BasicConstraints(ca=False, path_length=None))
        paths = [self.folder / f"{common_name}.{kind}" for kind in ("crt", "key")]
        paths[0].write_bytes(made.public_bytes(PEM))
        form = serialization.PrivateFormat.PKCS8
        paths[1].write_bytes(key.private_bytes(PEM, form, serialization.NoEncryption()))
        return Tls(
            ca_file=self.folder / "ca.crt",
            cert_file=paths[0],
            key_file=paths[1],
            require_client_certificate=require_client,
        )

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, basic: x509.BasicConstraints
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        public = self.key.public_key()
        return (
            x509.CertificateBuilder(issuer_name=self.name, subject_name=name, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(basic, critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
            .sign(self.key, hashes.SHA256())
        )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def running(authority: Authority) -> Iterator[Running]:
    context = authority.issue("server").server()
    with serving(tls=lambda: context, threads=1, head_seconds=FOREVER, reserved=()) as made:
        yield made


def ask(running: Running, tls: ssl.SSLContext, path: str = "/about", *, close: bool = True) -> bytes:
    with tls.wrap_socket(running.connect(), server_hostname="127.0.0.1") as sock:
        sock.sendall(head("GET", path, "Connection: close" if close else "X: y"))
        return read_all(sock)


def test_the_application_knows_who_asks(running: Running, authority: Authority) -> None:
    raw = ask(running, authority.issue("alice").client())
    seen = json.loads(raw.partition(b"\r\n\r\n")[2])
    assert seen["clients"] == ["alice"]
    assert seen["wsgi.url_scheme"] == "https"


def test_certificates_of_others_and_none_are_refused(
    running: Running, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path).issue("alice").client()
    stranger.load_verify_locations(cafile=authority.folder / "ca.crt")
    nobody = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
    for context in (stranger, nobody):
        raw = b""
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            raw = ask(running, context)
        assert raw == b"", "not served"
    assert status_of(ask(running, authority.issue("alice").client())) == 200


def test_certificates_may_be_optional(authority: Authority) -> None:
    context = authority.issue("open", require_client=False).server()
    with serving(tls=lambda: context) as running:
        nobody = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
        assert json.loads(ask(running, nobody).partition(b"\r\n\r\n")[2])["clients"] == []


def test_slow_handshakes_hold_nobody_up(running: Running, authority: Authority) -> None:
    alice = authority.issue("alice").client()
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"  # and 500 bytes more, which do not come
    with open_connections(running, 32) as silent, open_connections(running, 32, hello) as slow:
        for _ in range(3):
            assert status_of(ask(running, alice)) == 200
        assert all(map(is_open, [*silent, *slow]))


def test_what_is_no_handshake_is_closed(running: Running, authority: Authority) -> None:
    assert status_of(running.send(head("GET", "/about"), end=False)) == 0
    assert status_of(ask(running, authority.issue("alice").client())) == 200


def test_a_handshake_has_the_deadline_of_the_head(authority: Authority) -> None:
    context = authority.issue("server").server()
    with serving(tls=lambda: context, head_seconds=0.3) as running, open_connections(running, 3) as silent:
        assert [read_all(s) for s in silent] == [b""] * 3


def test_a_long_body_and_a_long_answer(running: Running, authority: Authority) -> None:
    alice = authority.issue("alice").client()
    assert len(ask(running, alice, "/big/20000000")) > 20_000_000
    with alice.wrap_socket(running.connect(), server_hostname="127.0.0.1") as sock:
        sock.sendall(head("POST", "/echo", "Content-Length: 3000000", "Connection: close") + b"x" * 3_000_000)
        assert read_all(sock).endswith(b"x" * 3_000_000)
    with alice.wrap_socket(running.connect(), server_hostname="127.0.0.1") as sock:
        sock.sendall(head("POST", "/ignore", "Content-Length: 3000000") + b"x" * 1_000_000)
        assert status_of(read_answer(sock)) == 401


def test_who_is_answered_and_does_not_end_is_cut_off(
    running: Running, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a body is read away for a moment, so that the answer arrives, and no longer."""
    monkeypatch.setattr(connection, "LINGER_SECONDS", 0.3)
    alice = authority.issue("alice").client()
    with alice.wrap_socket(running.connect(), server_hostname="127.0.0.1") as sock:
        sock.sendall(head("POST", "/ignore", "Content-Length: 3000000") + b"x" * 1000)
        assert status_of(read_all(sock)) == 401


def test_a_slow_client_gets_all_of_an_answer(authority: Authority) -> None:
    """One that was handed over whole, more than the kernel takes, and then the connection ends."""
    size = 20_000_000

    def app(environ: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        start("200 OK", [("Content-Length", str(size))])
        return [b"x" * size]

    context, alice = authority.issue("server").server(), authority.issue("alice").client()
    with (
        serving(app=app, tls=lambda: context) as running,
        alice.wrap_socket(running.connect(receive_buffer=4096), server_hostname="127.0.0.1") as sock,
    ):
        sock.sendall(head("GET", "/", "Connection: close"))
        first = sock.recv(1)
        time.sleep(3.0)
        assert len((first + read_all(sock)).partition(b"\r\n\r\n")[2]) == size


def test_new_certificates_are_for_new_connections(authority: Authority) -> None:
    alice = authority.issue("alice").client()
    contexts = [authority.issue("before").server()]

    def served_by(sock: ssl.SSLSocket) -> frozenset[str]:
        return client_names({"vigia.peer_certificate": sock.getpeercert()})

    with (
        serving(tls=lambda: contexts[-1]) as running,
        alice.wrap_socket(running.connect(), server_hostname="127.0.0.1") as old,
    ):
        assert served_by(old) == {"before"}
        contexts.append(authority.issue("after").server())
        with alice.wrap_socket(running.connect(), server_hostname="127.0.0.1") as new:
            assert served_by(new) == {"after"}
        old.sendall(head("GET", "/-/healthy", "Connection: close"))
        assert status_of(read_all(old)) == 200


def test_names_of_certificates() -> None:
    assert client_names({}) == frozenset()
    assert client_names({"vigia.peer_certificate": None}) == frozenset()
    subject = ((("organizationName", "o"),), (("commonName", "a"), ("commonName", "b")))
    assert client_names({"vigia.peer_certificate": {"subject": subject}}) == {"a", "b"}


def test_a_client_without_a_port_to_go_to(authority: Authority) -> None:
    """A connection reset during the handshake leaves no socket behind."""
    context = authority.issue("server").server()
    with serving(tls=lambda: context) as running:
        for _ in range(50):
            sock = running.connect()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            sock.close()
        assert status_of(ask(running, authority.issue("alice").client())) == 200
