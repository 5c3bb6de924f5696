"""Alertmanager asks who posts alerts, in the demo and in containers: really run, and really asked."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import bcrypt
import httpx
import pytest
import yaml
from labkit import invoke_vigia
from portkit import free_port

from vigia.stack import passwords, places
from vigia.stack.site import Site, prometheus
from vigia_testing import eventually

PASSWORD = "a-password-of-the-tests"
ALERT = [{"labels": {"alertname": "VigiaUdpFlood", "isolate": "auto", "node": "lb1"}}]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "alertmanager.password"
    path.touch(mode=0o600)
    path.write_text(PASSWORD + "\n")
    return path


@pytest.fixture
def url(tmp_path: Path, secret: Path) -> Iterator[str]:
    """Yield the address of an Alertmanager that was given the web configuration."""
    program = shutil.which("prometheus-alertmanager")
    assert program, "prometheus-alertmanager is missing; run tools/bootstrap.sh test"
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    (tmp_path / "web.yml").write_text(passwords.web_config(secret))
    address = f"127.0.0.1:{free_port()}"
    argv = [program, f"--config.file={tmp_path}/alertmanager.yml", f"--storage.path={tmp_path}/data"]
    argv += [f"--web.config.file={tmp_path}/web.yml", f"--web.listen-address={address}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*argv, "--cluster.listen-address="], stderr=log)

    def up() -> bool:
        try:
            return httpx.get(f"http://{address}/-/ready", trust_env=False, timeout=60).status_code == 401
        except httpx.TransportError:
            return False

    try:
        eventually(up, "Alertmanager to ask who is there")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def test_nobody_posts_alerts_without_the_password(url: str, secret: Path) -> None:
    now = datetime.now(UTC).isoformat()
    alerts = [alert | {"startsAt": now} for alert in ALERT]

    def post(auth: tuple[str, str] | None) -> int:
        return httpx.post(
            f"{url}/api/v2/alerts", json=alerts, auth=auth, trust_env=False, timeout=60
        ).status_code

    for wrong in (None, ("vigia", "wrong"), ("vigia", ""), ("", PASSWORD), ("admin", PASSWORD)):
        assert post(wrong) == 401
    silence = httpx.post(f"{url}/api/v2/silences", json={}, trust_env=False, timeout=60)
    assert silence.status_code == 401, "nor silences them"
    known = passwords.credentials(secret)
    assert httpx.get(f"{url}/api/v2/alerts", auth=known, trust_env=False, timeout=60).json() == []
    assert post(known) == 200
    assert len(httpx.get(f"{url}/api/v2/alerts", auth=known, trust_env=False, timeout=60).json()) == 1


def test_prometheus_shows_the_password_to_alertmanager_alone(secret: Path) -> None:
    shipped = (places.source_root() / "deploy/prometheus/prometheus.yml").read_text()
    content = yaml.safe_load(prometheus(shipped, Site("127.0.0.1", {}, secret)))
    wanted = passwords.basic_auth(secret)["basic_auth"]
    assert [c["basic_auth"] for c in content["alerting"]["alertmanagers"]] == [wanted]
    shown = {job["job_name"] for job in content["scrape_configs"] if "basic_auth" in job}
    assert shown == {"alertmanager"}
    assert PASSWORD not in str(content), "by the name of its file"
    assert yaml.safe_load(shipped)["alerting"]["alertmanagers"][0]["basic_auth"] == {
        "username": passwords.USER,
        "password_file": passwords.PASSWORD,
    }, "also without a stack of ours"


def test_the_file_has_no_password_and_keeps_what_was_there(secret: Path) -> None:
    text = passwords.web_config(secret, "tls_server_config: {cert_file: a.crt}\n")
    content = yaml.safe_load(text)
    assert content["tls_server_config"] == {"cert_file": "a.crt"}
    assert PASSWORD not in text
    assert content["basic_auth_users"]["vigia"].startswith("$2b$")


def test_a_password_is_made_once_and_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "alertmanager"
    ran = invoke_vigia("certs", "password", "--dir", str(folder))
    assert (ran.status, ran.stdout) == (0, f"{folder / 'alertmanager.password'}\n"), ran.stderr
    made = (folder / "alertmanager.password").read_text().strip()
    assert len(made) > 40
    assert (folder / "alertmanager.password").stat().st_mode & 0o077 == 0
    assert made not in ran.stdout + (folder / "alertmanager.web.yml").read_text()
    (folder / "alertmanager.web.yml").write_text("tls_server_config: {cert_file: a.crt}\n")
    assert invoke_vigia("certs", "password", "--dir", str(folder)).status == 0
    assert (folder / "alertmanager.password").read_text().strip() == made, "the same again"
    content = yaml.safe_load((folder / "alertmanager.web.yml").read_text())
    assert content["tls_server_config"] == {"cert_file": "a.crt"}
    assert bcrypt.checkpw(made.encode(), content["basic_auth_users"]["vigia"].encode())


@pytest.mark.parametrize("broken", ["[1, 2]", "{", "text"])
def test_a_web_configuration_that_is_none_is_left_alone(tmp_path: Path, broken: str) -> None:
    (tmp_path / "alertmanager.web.yml").write_text(broken)
    ran = invoke_vigia("certs", "password", "--dir", str(tmp_path))
    assert ran.status == 1
    assert "cannot write" in ran.stderr and "alertmanager.web.yml" in ran.stderr
    assert (tmp_path / "alertmanager.web.yml").read_text() == broken
