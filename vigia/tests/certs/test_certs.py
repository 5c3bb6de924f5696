"""vigia certs, up to real TLS connections to a real program."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import yaml
from cryptography import x509
from labkit import ROOT, invoke_vigia
from portkit import free_port

from vigia.certs import authority
from vigia.certs.authority import Authority
from vigia.certs.parts import PARTS
from vigia.errors import VigiaError
from vigia_testing import eventually

PORT = free_port()


def init(folder: Path, *arguments: str) -> list[dict[str, object]]:
    ran = invoke_vigia("certs", "init", "--dir", str(folder), "--json", *arguments)
    assert ran.status == 0, ran.stderr
    issued: list[dict[str, object]] = json.loads(ran.stdout)
    return issued


def test_every_part_gets_both_ends_of_tls(tmp_path: Path) -> None:
    issued = init(tmp_path, "--host", "node1.example.org", "--host", "192.0.2.7")
    assert [i["part"] for i in issued] == list(PARTS)
    for part in PARTS:
        verified = subprocess.run(
            ["openssl", "verify", "-x509_strict", "-CAfile", tmp_path / "ca.crt", tmp_path / f"{part}.crt"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert verified.returncode == 0, verified.stderr
        names = authority.names_of(authority.read(tmp_path / f"{part}.crt"))
        assert names == (part, "localhost", "127.0.0.1", "::1", "node1.example.org", "192.0.2.7")
        web = yaml.safe_load((tmp_path / f"{part}.web.yml").read_text())["tls_server_config"]
        assert web["client_auth_type"] == "RequireAndVerifyClientCert"
        assert (tmp_path / web["cert_file"]).exists()


def test_keys_are_nobody_elses(tmp_path: Path) -> None:
    init(tmp_path)
    keys = list(tmp_path.glob("*.key"))
    assert len(keys) == len(PARTS) + 1
    assert all(k.stat().st_mode & 0o077 == 0 for k in keys)


def test_what_is_good_is_kept_and_what_is_not_is_made_again(tmp_path: Path) -> None:
    init(tmp_path)
    assert not any(i["fresh"] for i in init(tmp_path))
    (tmp_path / "prometheus.key").unlink()
    (tmp_path / "grafana.crt").write_text("broken")
    assert [i["part"] for i in init(tmp_path) if i["fresh"]] == ["prometheus", "grafana"]
    assert all(i["fresh"] for i in init(tmp_path, "--host", "other.example.org"))
    assert [i["fresh"] for i in init(tmp_path, "--renew", "--part", "vigia-probe")] == [True]


def test_a_certificate_of_another_authority_is_made_again(tmp_path: Path) -> None:
    init(tmp_path / "a", "--part", "prometheus")
    init(tmp_path / "b", "--part", "prometheus")
    for suffix in ("crt", "key"):
        (tmp_path / f"a/prometheus.{suffix}").write_bytes((tmp_path / f"b/prometheus.{suffix}").read_bytes())
    assert [i["fresh"] for i in init(tmp_path / "a", "--part", "prometheus")] == [True]


def test_the_end_is_told_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init(tmp_path, "--part", "vigia-probe")
    assert invoke_vigia("certs", "status", "--dir", str(tmp_path)).status == 0
    monkeypatch.setattr(authority, "_LIFE", timedelta(days=10))
    begun = datetime.now(UTC)
    issued = Authority.open(tmp_path).issue("vigia-probe", (), renew=True)
    assert issued.days in (9, 10)
    ran = invoke_vigia("certs", "status", "--dir", str(tmp_path))
    assert ran.status == 1
    ends = {f"{day + timedelta(days=10):%Y-%m-%d}" for day in (begun, datetime.now(UTC))}
    assert any(end in ran.stdout for end in ends)
    monkeypatch.undo()
    assert [i["fresh"] for i in init(tmp_path, "--part", "vigia-probe")] == [True]  # it ends within 30 days


def test_an_authority_without_its_key(tmp_path: Path) -> None:
    init(tmp_path, "--part", "vigia-probe")
    (tmp_path / "ca.key").unlink()
    with pytest.raises(VigiaError, match=r"ca\.crt is there and .*ca\.key is not; put it back"):
        Authority.open(tmp_path)


def test_an_authority_with_another_ones_key(tmp_path: Path) -> None:
    init(tmp_path / "a", "--part", "vigia-probe")
    init(tmp_path / "b", "--part", "vigia-probe")
    (tmp_path / "a/ca.key").write_bytes((tmp_path / "b/ca.key").read_bytes())
    with pytest.raises(VigiaError, match="is not the key of"):
        Authority.open(tmp_path / "a")


def test_an_authority_that_ends_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "_CA_LIFE", timedelta(days=100))
    Authority.open(tmp_path)
    with pytest.raises(VigiaError, match="before what it would issue"):
        Authority.open(tmp_path)


@pytest.mark.parametrize("host", ["", "a b", "-x", "x/y", "a" * 300, "ümlaut"])
def test_hosts_that_are_none(tmp_path: Path, host: str) -> None:
    ran = invoke_vigia("certs", "init", "--dir", str(tmp_path), "--host", host)
    assert ran.status == 2
    assert "is neither a name nor an address" in ran.stderr
    assert not (tmp_path / "ca.crt").exists()


def test_status_without_an_authority(tmp_path: Path) -> None:
    ran = invoke_vigia("certs", "status", "--dir", str(tmp_path))
    assert (ran.status, len(ran.stderr.splitlines())) == (1, 1)
    assert "vigia certs init" in ran.stderr


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A program that listens with what vigia certs wrote."""
    folder = tmp_path_factory.mktemp("tls")
    init(folder)
    reflector = f"{{listeners: [{{address: '127.0.0.1:{free_port()}'}}]}}"
    (folder / "probe.yaml").write_text(f"node: a\nreflector: {reflector}\n")
    argv = [ROOT / "bin/vigia-probe", f"--config={folder / 'probe.yaml'}"]
    argv += [f"--web.config.file={folder / 'vigia-probe.web.yml'}", f"--web.listen-address=127.0.0.1:{PORT}"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as program:
        try:
            client = context(folder, folder / "prometheus")
            eventually(lambda: answer(client) == 200, "the program to answer")
            yield folder
        finally:
            program.terminate()
            program.communicate(timeout=60)


def context(trusted: Path, own: Path | None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=trusted / "ca.crt")
    if own:
        made.load_cert_chain(own.with_name(own.name + ".crt"), own.with_name(own.name + ".key"))
    return made


def answer(client: ssl.SSLContext, scheme: str = "https") -> int | str:
    try:
        with httpx.Client(verify=client, trust_env=False, timeout=60) as http:
            return http.get(f"{scheme}://127.0.0.1:{PORT}/-/healthy").status_code
    except httpx.TransportError as e:
        return str(e) or type(e).__name__


def test_a_client_of_the_same_authority_is_served(served: Path) -> None:
    assert answer(context(served, served / "prometheus")) == 200


def test_a_client_without_a_certificate_is_refused(served: Path) -> None:
    assert "certificate required" in str(answer(context(served, None)))


def test_a_client_of_another_authority_is_refused(served: Path, tmp_path: Path) -> None:
    init(tmp_path, "--part", "prometheus")
    assert isinstance(answer(context(served, tmp_path / "prometheus")), str)


def test_a_plain_client_is_refused(served: Path) -> None:
    assert answer(context(served, served / "prometheus"), scheme="http") == 400


def test_a_server_of_another_authority_is_refused_by_the_client(served: Path, tmp_path: Path) -> None:
    init(tmp_path, "--part", "prometheus")
    assert "certificate verify failed" in str(answer(context(tmp_path, tmp_path / "prometheus")))


def test_certificates_say_what_they_are(served: Path) -> None:
    ca = authority.read(served / "ca.crt")
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    leaf = authority.read(served / "vigia-probe.crt")
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert leaf.not_valid_before_utc.timestamp() < time.time()
    assert leaf.issuer == ca.subject
