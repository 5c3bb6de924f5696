"""vigia-identity against a server that answers as real clouds do."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia_config import load
from vigia_identity import api_server, looker
from vigia_identity.cli import main
from vigia_identity.clouds import Identity
from vigia_identity.config import Config
from vigia_testing import DEADLINE, eventually, modules_after

# The SDK warns of what it will drop.
pytestmark = pytest.mark.filterwarnings("ignore")

Cloud = Any  # of conftest.py


def project(number: int, name: str) -> dict[str, Any]:
    return {
        "id": f"{number:032x}",
        "name": name,
        "domain_id": "default",
        "enabled": True,
        "is_domain": False,
        "parent_id": "default",
        "description": "",
    }


def port(number: int, tenant: int, host: str, owner: str = "compute:nova") -> dict[str, Any]:
    return {"id": f"{number:08x}-5a0e-4a5f-8c0d-0f1e2d3c4b5a", "project_id": f"{tenant:032x}", "tenant_id": f"{tenant:032x}", "network_id": "net-1",
            "device_id": f"vm-{number}", "device_owner": owner, "binding:host_id": host, "status": "ACTIVE", "name": "", "admin_state_up": True}  # fmt: skip


def namespace(name: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": annotations or None}, "status": {"phase": "Active"}}


@dataclass(frozen=True)
class Ran:
    """A run of the program in this process."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Put the logs back: the program sends them to a standard error that is gone after it."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    yield
    root.handlers = before
    root.setLevel(level)


class Site:
    """A configuration file, and the program run with it."""

    def __init__(self, tmp_path: Path, **config: Any) -> None:
        self.out, self.hosts = tmp_path / "tenants.yaml", tmp_path / "hosts"
        self.hosts.mkdir()
        self.path = tmp_path / "identity.yaml"
        self.path.write_text(yaml.safe_dump({"tenants_file": str(self.out), "timeout": "60s", **config}))

    def run(self, *more: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["--config", str(self.path), *more])
        return Ran(code, out.getvalue(), err.getvalue())

    def tenants(self) -> dict[str, str]:
        content = yaml.safe_load(self.out.read_text())
        assert content["version"] == 1
        return {t["id"]: t["name"] for t in content["tenants"]}


@pytest.fixture
def openstack(cloud: Cloud, clouds_file: Path, tmp_path: Path) -> Site:
    cloud.projects = [
        project(1, "acme"),
        project(2, "globex\x1b[31m"),
        project(3, "initech " * 40),
        project(4, ""),
    ]
    cloud.ports = [
        port(1, 1, "c1"),
        port(2, 2, "c2"),
        port(3, 2, "c1"),
        port(4, 1, "c1", "network:dhcp"),
        port(5, 1, ""),
        port(6, 1, "../evil"),
    ]
    return Site(
        tmp_path,
        openstack={"cloud": "lab", "clouds_file": str(clouds_file)},
        ports_dir=str(tmp_path / "hosts"),
    )


def test_projects_and_ports_come_from_keystone_and_neutron(openstack: Site, cloud: Cloud) -> None:
    result = openstack.run("--once", "--json")
    assert result.exit_code == 0, result.stderr
    names = openstack.tenants()
    assert names == {f"{1:032x}": "acme", f"{2:032x}": "globex[31m", f"{3:032x}": ("initech " * 40)[:128]}
    assert json.loads(result.stdout)["tenants"] == names
    c1 = yaml.safe_load((openstack.hosts / "c1.yaml").read_text())
    assert [(p["device"], p["tenant"], p["workload"]) for p in c1["ports"]] == [
        ("tap00000001-5a", f"{1:032x}", "vm-1"),
        ("tap00000003-5a", f"{2:032x}", "vm-3"),
    ]
    assert sorted(f.name for f in openstack.hosts.iterdir()) == ["c1.yaml", "c2.yaml"]
    assert cloud.asked.count("GET /v3/projects") == 3, "two pages of two, and one that has nothing new"
    assert cloud.asked.count("GET /network/v2.0/ports") == 3, "as many pages as there are"


def test_neutron_is_asked_for_little_and_in_pages(openstack: Site, cloud: Cloud) -> None:
    assert openstack.run("--once").exit_code == 0
    first = next(q for q in cloud.queries if "fields" in q)
    assert first["limit"] == ["500"]
    assert set(first["fields"]) >= {"id", "project_id", "binding:host_id"}
    assert "security_groups" not in first["fields"]


def test_a_port_that_migrates_is_known_on_both_hosts(openstack: Site, cloud: Cloud) -> None:
    cloud.ports[0]["binding:profile"] = {"migrating_to": "c2"}
    cloud.ports[1]["binding:profile"] = {"migrating_to": ["c1"], "more": "of another driver"}
    cloud.ports[2]["binding:profile"] = {"migrating_to": "../evil"}
    assert openstack.run("--once").exit_code == 0
    on = {h: yaml.safe_load((openstack.hosts / f"{h}.yaml").read_text())["ports"] for h in ("c1", "c2")}
    known = {host: sorted(p["device"] for p in ports) for host, ports in on.items()}
    assert known == {
        "c1": ["tap00000001-5a", "tap00000003-5a"],
        "c2": ["tap00000001-5a", "tap00000002-5a"],
    }


def test_a_file_says_when_the_cloud_was_asked(openstack: Site, cloud: Cloud) -> None:
    before = int(time.time())
    assert openstack.run("--once").exit_code == 0
    asked = yaml.safe_load((openstack.hosts / "c1.yaml").read_text())["asked"]
    assert before <= asked <= time.time()
    cloud.broken = True
    assert openstack.run("--once").exit_code == 1
    assert yaml.safe_load((openstack.hosts / "c1.yaml").read_text())["asked"] == asked, "no younger"


def test_the_exporter_takes_what_is_written(openstack: Site, tmp_path: Path) -> None:
    assert openstack.run("--once").exit_code == 0
    exporter = Path(__file__).parents[3] / "bin" / "vigia-exporter"
    config = tmp_path / "exporter.yaml"
    config.write_text(
        f"node: c1\nports_file: {openstack.hosts / 'c1.yaml'}\ntenants_file: {openstack.out}\nbpf: {{pin_dir: /sys/fs/bpf/vigia}}\n"
    )
    subprocess.run([exporter, "check-config", "--config", config], check=True, capture_output=True)


def test_what_is_unchanged_is_not_written_and_a_lost_port_goes(openstack: Site, cloud: Cloud) -> None:
    assert openstack.run("--once").exit_code == 0
    before = openstack.out.stat()
    assert openstack.run("--once").exit_code == 0
    assert openstack.out.stat().st_ino == before.st_ino
    cloud.ports, cloud.projects = cloud.ports[:1], [project(1, "acme corp")]
    assert openstack.run("--once").exit_code == 0
    assert openstack.out.stat().st_ino != before.st_ino
    assert openstack.tenants() == {f"{1:032x}": "acme corp"}
    left = yaml.safe_load((openstack.hosts / "c2.yaml").read_text())
    assert (left["version"], left["ports"]) == (1, [])
    assert [f for f in openstack.out.parent.iterdir() if f.name.startswith(".")] == []


def test_a_cloud_that_fails_leaves_the_files_alone(openstack: Site, cloud: Cloud, clouds_file: Path) -> None:
    assert openstack.run("--once").exit_code == 0
    before = openstack.out.read_bytes()
    cloud.broken = True
    down = openstack.run("--once")
    assert down.exit_code == 1
    assert 'msg="cannot ask a cloud" err="OpenStack, cloud lab: ' in down.stderr
    cloud.broken = False
    clouds_file.write_text(clouds_file.read_text().replace(cloud.password, "wrong-password"))
    refused = openstack.run("--once", "--log.level", "debug")
    assert refused.exit_code == 1
    assert openstack.out.read_bytes() == before
    for text in (down.stderr, refused.stderr):
        assert cloud.password not in text and "wrong-password" not in text


@pytest.fixture
def kubernetes(cloud: Cloud, tmp_path: Path) -> Site:
    cloud.namespaces = [
        namespace("red", **{"example.org/tenant": "Red Team"}),
        namespace("blue"),
        namespace("kube-system"),
        namespace("bad name"),
    ]
    token = tmp_path / "token"
    token.write_text(cloud.namespace_token + "\n")
    return Site(
        tmp_path,
        kubernetes={
            "url": cloud.url,
            "token_file": str(token),
            "ca_file": None,
            "name_annotation": "example.org/tenant",
        },
    )


def test_namespaces_come_from_kubernetes(kubernetes: Site, cloud: Cloud) -> None:
    result = kubernetes.run("--once")
    assert result.exit_code == 0, result.stderr
    assert kubernetes.tenants() == {"red": "Red Team", "blue": "blue", "kube-system": "kube-system"}
    assert cloud.asked.count("GET /api/v1/namespaces") == 2


def test_a_refused_token_is_no_secret_in_the_log(kubernetes: Site, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("stolen-token")
    result = kubernetes.run("--once", "--log.level", "debug")
    assert result.exit_code == 1
    assert "401" in result.stderr
    assert "stolen-token" not in result.stderr
    assert not kubernetes.out.exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "openstack: is missing and so is kubernetes; name at least one of the two"),
        (
            {"openstack": {"cloud": "x", "clouds_file": "clouds.yaml"}},
            'openstack.clouds_file: "clouds.yaml": is not an absolute path; write for example /',
        ),
        ({"kubernetes": {"url": "10.0.0.1"}}, "https://10.0.0.1:6443"),
        ({"kubernetes": {}, "ports_dir": "/x"}, "ports_dir: is of no use without openstack; remove it"),
        ({"kubernetes": {}, "every": "1s"}, "every: is shorter than 10s; write 10s or more"),
        ({"kubernetes": {"password": "x"}}, 'unknown key "password"'),
    ],
)
def test_mistakes_are_named(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    result = Site(tmp_path, **config).run("--check-config")
    assert result.exit_code == 1
    assert message in result.stderr
    assert all(line.startswith("vigia-identity: ") for line in result.stderr.splitlines())


def started(site: Site) -> subprocess.Popen[bytes]:
    """The program as a service runs it, but for the time until it asks a cloud again that failed."""
    program = "from vigia_identity import cli, looker; looker.AGAIN = 0.1; raise SystemExit(cli.main())"
    command = [sys.executable, "-c", program, "--config", str(site.path)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": "ignore"})


def test_it_goes_on_until_it_is_told_to_stop(kubernetes: Site, cloud: Cloud) -> None:
    cloud.broken = True
    with started(kubernetes) as process:
        eventually(lambda: cloud.asked, "it asks")
        assert not kubernetes.out.exists(), "nothing is written before the cloud has answered"
        cloud.broken = False
        eventually(kubernetes.out.exists, "it asks again")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert kubernetes.tenants()["red"] == "Red Team"


def test_its_configuration_is_read_anew_on_sighup(kubernetes: Site) -> None:
    good = yaml.safe_load(kubernetes.path.read_text())
    with started(kubernetes) as process:
        eventually(kubernetes.out.exists, "it asks")
        kubernetes.path.write_text("every: never\n")
        elsewhere = kubernetes.out.with_name("elsewhere.yaml")
        kubernetes.out.unlink()
        process.send_signal(signal.SIGHUP)  # and goes on with what it had
        eventually(kubernetes.out.exists, "it asks after a signal, with the configuration before")
        kubernetes.path.write_text(yaml.safe_dump({**good, "tenants_file": str(elsewhere)}))
        process.send_signal(signal.SIGHUP)
        eventually(elsewhere.exists, "it writes where it is now told to")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        log = process.stderr.read().decode()
    assert "cannot reload, the old configuration stays in force" in log
    assert "configuration reloaded" in log


def test_a_reload_does_not_end_it_once_it_is_ready(
    kubernetes: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(DEADLINE)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with started(kubernetes) as process:
            assert systemd.recv(64) == b"READY=1"
            process.send_signal(signal.SIGHUP)
            eventually(kubernetes.out.exists, "it asks")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert process.stderr is not None
            assert "configuration reloaded" in process.stderr.read().decode()


HANGS = """
import sys, threading
from pathlib import Path
from vigia_identity import looker
from vigia_service import logs, watchdog
logs.setup()
watchdog._LOOKS = 150
looker.Watchdog = lambda hung: watchdog.Watchdog(hung, patience=15)
looker.ANSWERS = 0
looker.CLOUDS = {"kubernetes": lambda config: threading.Event().wait()}
sys.exit(looker.run(Path(sys.argv[1])))
"""


def test_a_look_that_does_not_end_ends_the_program(kubernetes: Site) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS, kubernetes.path],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * DEADLINE,
    )
    assert done.returncode == 1, done.stderr
    assert 'err="asking the clouds, or writing what they said, has not ended within 0s"' in done.stderr
    assert "Timeout (" in done.stderr and "in ask" in done.stderr, "where it stood"
    assert not kubernetes.out.exists()


def test_a_look_hangs_only_while_it_lasts(kubernetes: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = looker.Looker(load(kubernetes.path, Config))
    said = []

    def ask(_config: Config) -> Identity:
        said.append(looks.hung())
        monkeypatch.setattr(looker, "ANSWERS", -1)
        said.append(looks.hung())
        return Identity()

    monkeypatch.setattr(looker, "CLOUDS", {"kubernetes": ask})
    assert looks.hung() == ""
    assert looks.once()
    assert [bool(s) for s in said] == [False, True]
    assert looks.hung() == "", "between two looks it waits"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{}", "is not as documented"),
        (b'{"items":[],"metadata":{},"items":[]}', "is not as documented"),
        (b'{"items":[{"metadata":{"name":1}}],"metadata":{}}', "is not as documented"),
        (b"x" * 2000, "an answer cannot be read: it is larger than 1000 bytes"),
    ],
    ids=["no items", "a key twice", "a name that is none", "too large"],
)
def test_answers_that_are_none_change_nothing(
    kubernetes: Site, cloud: Cloud, body: bytes, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "MAX_BODY", 1000)
    cloud.raw = body
    result = kubernetes.run("--once")
    assert (result.exit_code, problem in result.stderr) == (1, True), result.stderr
    assert not kubernetes.out.exists()


def test_check_config_is_an_option_and_a_command(kubernetes: Site) -> None:
    text = f"{kubernetes.path}: OK, kubernetes\n"
    assert kubernetes.run("--check-config").stdout == text
    assert kubernetes.run("check-config").stdout == text
    found = json.loads(kubernetes.run("check-config", "--json").stdout)
    assert found == {"config": str(kubernetes.path), "ok": True, "clouds": ["kubernetes"]}


@pytest.mark.parametrize("argument", ["--help", "-h", "--version"])
def test_the_command_line_starts_without_what_asks_clouds(argument: str) -> None:
    heavy = {"openstack", "keystoneauth1", "httpx", "pydantic", "yaml", "vigia_config"}
    assert not modules_after("vigia-identity", argument) & heavy


def test_who_has_no_openstack_loads_none(kubernetes: Site) -> None:
    loaded = modules_after("vigia-identity", "--config", str(kubernetes.path), "--once")
    assert "httpx" in loaded and "openstack" not in loaded
    assert kubernetes.tenants()["red"] == "Red Team"
