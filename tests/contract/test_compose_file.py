"""docker-compose.yml as it is written: profiles, pins, and what Grafana is given."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from labkit import run_vigia

from vigia.compose.files import USERS, ComposeWish, Volume
from vigia.errors import VigiaError

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
END = {"init", "certificates"}
"""Services that do their work and end."""

DOCKERFILE = (ROOT / "deploy/docker/Dockerfile").read_text()
SITE = {"prometheus", "alertmanager", "grafana", "node_exporter", "vigia-probe", "vigia-exporter"}
SITE |= {"vigia-enforcer", "vigia-compare", "isolation-agent", "init"}


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("profiles", ["", "lab", "storage", "tls", "lab,storage,tls"])
def test_compose_accepts_every_profile(profiles: str, offline: bool) -> None:
    program = shutil.which("docker-compose", path="/usr/bin:/usr/local/bin")
    assert program, "docker-compose is missing; run tools/bootstrap.sh test"
    files = ["docker-compose.yml", *(["docker-compose.offline.yml"] if offline else [])]
    done = subprocess.run(
        [program, *(word for f in files for word in ("-f", f)), "config", "--services"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COMPOSE_PROFILES": profiles},
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) >= (SITE - {"grafana"} if offline else SITE)


def test_profiles_add_services_and_the_others_are_always_there() -> None:
    assert {name for name, s in SERVICES.items() if not s.get("profiles")} == SITE
    assert {name for name, s in SERVICES.items() if s.get("profiles") == ["storage"]} == {
        "victoria-metrics",
        "influxdb",
    }
    assert {name for name, s in SERVICES.items() if s.get("profiles") == ["tls"]} == {"certificates"}
    lab = {name for name, s in SERVICES.items() if s.get("profiles") == ["lab"]}
    nodes = ("node1", "node2")
    assert lab == {"lab"} | {f"{n}-{part}" for n in nodes for part in ("probe", "exporter", "enforcer")}


def test_images_are_pinned_by_what_is_in_them() -> None:
    pulled = {s["image"] for s in SERVICES.values() if "build" not in s}
    assert len(pulled) == 6
    bases = re.findall(r"^ARG (?:GO|PYTHON)_IMAGE=(.+)$", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    for image in (*pulled, *bases):
        assert re.search(r":v?\d+\.\d+\.\d+(-[a-z-]+)?@sha256:[0-9a-f]{64}$", image), image
    built = {s["image"] for s in SERVICES.values() if "build" in s}
    assert all(re.fullmatch(r"vigia/[a-z-]+:\d+\.\d+\.\d+", image) for image in built), built


def test_images_have_a_program_and_nothing_that_made_it() -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n((?:(?!^FROM ).*\n?)*)", DOCKERFILE, re.MULTILINE))
    origins = {stage: base for base, stage in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)}
    for part in ("probe", "exporter", "enforcer"):
        assert origins[part] == "scratch"
        copied = re.findall(r"^COPY (.+)$", stages[part], re.MULTILINE)
        assert copied == [f"--from=go /out/vigia-{part} /usr/bin/vigia-{part}"]
        assert "RUN" not in stages[part]
    for part in ("isolation-agent", "compare"):
        assert origins[part] == "${PYTHON_IMAGE}"
        copied = re.findall(r"^COPY (.+)$", stages[part], re.MULTILINE)
        assert copied == [f"--from={part}-environment /opt/vigia /opt/vigia"]
        assert "RUN" not in stages[part]
    for part, name in (
        ("probe", "vigia-probe"),
        ("isolation-agent", "isolation-agent"),
        ("compare", "vigia-compare"),
    ):
        assert f"USER {USERS[name]}:{USERS[name]}\n" in stages[part]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_bounded(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"] and service["read_only"] is True
    assert service.get("privileged") is None and service.get("pid") is None
    assert service["restart"] == ("no" if name in END else "unless-stopped")
    assert ("healthcheck" in service) == (name not in END)
    assert {"mem_limit", "cpus", "pids_limit"} <= set(service)
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", ()))
    owner = USERS.get(name)
    if owner is not None:
        assert service["user"].split(":")[0] == str(owner)
    # The probe has its rights by its file, and the lab starts programs of others.
    limited = "no-new-privileges:true" in service.get("security_opt", ())
    assert limited == (not name.endswith("-probe") and name != "lab")


@pytest.mark.parametrize("name", sorted(set(SERVICES) - END))
def test_every_service_is_looked_at_by_a_command_of_its_own(name: str) -> None:
    kind, *words = SERVICES[name]["healthcheck"]["test"]
    ours = re.fullmatch(r"(?:[a-z]+[12]|vigia)-(probe|exporter|enforcer|compare)|isolation-agent", name)
    if ours:
        program = f"vigia-{ours[1]}" if ours[1] else name
        assert (kind, words[0]) == ("CMD", program) and "healthcheck" in words
    elif name == "lab":
        assert (kind, words) == ("CMD", ["vigia", "lab", "status", "--json"])
    else:
        assert kind == "CMD-SHELL"


def test_the_rights_that_a_container_has_are_documented() -> None:
    guide = (ROOT / "docs/how-to/compose.md").read_text()
    rows = [
        [c.strip() for c in r.split("|")[1:-1]] for r in guide[guide.index("## Rights") :].splitlines()[4:]
    ]
    documented = {
        name.strip(): (user, {c.strip() for c in rights.split(",") if c.strip().isupper()})
        for names, user, rights, *_ in (r for r in rows if len(r) == 4)
        for name in names.split(",")
    }
    for name, service in SERVICES.items():
        kind = re.sub(r"^node\d-", "vigia-", name)
        user, rights = documented.get(kind, ("each its own", set()))
        assert set(service.get("cap_add", ())) == rights, name
        root = service["user"].split(":")[0] == "0"
        assert root == (user == "root"), name


def test_data_is_in_named_volumes_of_one_owner() -> None:
    volumes = set(COMPOSE["volumes"])
    users: dict[str, set[str]] = {}
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = str(volume).split(":")[0]
            if not source.startswith((".", "/", "$")):
                users.setdefault(source, set()).add(name)
    assert set(users) == volumes
    data = {v: names for v, names in users.items() if not v.startswith("config")}
    assert data == {v: {v, "init"} for v in data}


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that any user may enter; pytest's own are for one."""
    with tempfile.TemporaryDirectory(prefix="vigia-compose-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_every_part_mounts_its_own_configuration_and_no_other() -> None:
    told = {"prometheus", "isolation-agent", "vigia-compare"}
    for name, service in SERVICES.items():
        part = re.sub(r"^node\d-", "vigia-", name)
        found = {str(v) for v in service.get("volumes", ()) if str(v).startswith("config")}
        if name == "init":
            wanted = {"config:/etc/vigia", *(f"config-{p}:/etc/vigia/{p}" for p in USERS)}
        elif name == "lab":
            wanted = {f"config-{p}:/etc/vigia/{p}" for p in told}
        elif name == "certificates":
            wanted = {"config:/etc/vigia:ro"}
        else:
            wanted = {f"config-{part}:/etc/vigia/{part}:ro"}
        assert found == wanted, name


def test_every_part_is_a_user_of_its_own_unless_it_has_to_be_root() -> None:
    root = {part for part, user in USERS.items() if user == 0}
    assert root == {"vigia-exporter", "vigia-enforcer"}
    users = [user for part, user in USERS.items() if part not in root]
    assert len(set(users)) == len(users)
    for name, service in SERVICES.items():
        part = re.sub(r"^node\d-", "vigia-", name)
        assert service["user"].split(":")[0] == str(USERS.get(part, 0)), name


@pytest.mark.usefixtures("rootly")
@pytest.mark.parametrize("part", USERS)
def test_a_part_reads_no_secret_of_another(part: str, reachable: Path) -> None:
    """Whoever it is, with its volume as docker mounts it: only that one is below /etc/vigia."""
    written(reachable, tls=True)
    secrets = [p for p in reachable.rglob("*") if p.suffix in (".token", ".key", ".password")]
    mounted = {part} if USERS[part] == 0 else set(USERS) | {"ca"}  # root would read all that it sees
    shown = [str(p) for p in secrets if p.relative_to(reachable).parts[0] in mounted]
    done = subprocess.run(
        ["setpriv", f"--reuid={USERS[part]}", f"--regid={USERS[part]}", "--clear-groups", "--bounding-set=-all",
         "--inh-caps=-all", "--", "sh", "-c", 'for f; do cat "$f" >/dev/null 2>&1 && echo "$f"; done; true', "-", *shown],
        capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    own = {str(p) for p in secrets if p.relative_to(reachable).parts[0] == part}
    assert set(done.stdout.split()) == own


def written(folder: Path, **wish: Any) -> Path:
    Volume(folder).write(
        ComposeWish(**{"tls": False, "grafana_address": "127.0.0.1", "grafana_password": "", **wish})
    )
    return folder / "grafana"


@pytest.fixture
def rootly() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: files are given to the users of the parts")


@pytest.mark.usefixtures("rootly")
@pytest.mark.parametrize("tls", [False, True])
def test_grafana_finds_its_data_source_and_pages(tmp_path: Path, tls: bool) -> None:
    grafana = written(tmp_path, tls=tls)
    service = SERVICES["grafana"]
    assert service["environment"]["GF_PATHS_PROVISIONING"] == "/etc/vigia/grafana/provisioning"
    assert service["environment"]["GF_PATHS_CONFIG"] == "/etc/vigia/grafana/grafana.ini"
    (source,) = yaml.safe_load((grafana / "provisioning/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["uid"] == "vigia-prometheus"
    assert source["url"] == ("https" if tls else "http") + "://127.0.0.1:9090"
    assert ("secureJsonData" in source) == tls
    (provider,) = yaml.safe_load((grafana / "provisioning/dashboards/vigia.yaml").read_text())["providers"]
    mounts = dict(volume.split(":")[1::-1] for volume in service["volumes"])
    pages = ROOT / mounts[provider["options"]["path"]]
    ini = (grafana / "grafana.ini").read_text()
    home = Path(re.search(r"default_home_dashboard_path = (.+)", ini)[1])  # type: ignore[index]
    assert str(home.parent) == provider["options"]["path"] and (pages / home.name).is_file()
    for page in pages.glob("*.json"):
        used = {u for u in re.findall(r'"uid": "([^"]+)"', page.read_text()) if "prometheus" in u}
        assert used <= {"vigia-prometheus", "${datasource}"}, page
        assert json.loads(page.read_text())["title"] != provider["folder"]


@pytest.mark.usefixtures("rootly")
def test_people_sign_in_unless_grafana_is_on_loopback(tmp_path: Path) -> None:
    here = written(tmp_path / "a")
    assert "[auth.anonymous]\nenabled = true" in (here / "grafana.ini").read_text()
    assert len((here / "admin.password").read_text()) > 30
    with pytest.raises(VigiaError, match="set VIGIA_GRAFANA_PASSWORD"):
        written(tmp_path / "b", grafana_address="0.0.0.0")
    there = written(tmp_path / "c", grafana_address="0.0.0.0", grafana_password="long enough")
    assert "[auth.anonymous]\nenabled = false" in (there / "grafana.ini").read_text()
    assert (there / "admin.password").read_text() == "long enough\n"
    with pytest.raises(VigiaError, match="is not an address"):
        written(tmp_path / "d", grafana_address="everywhere")


@pytest.mark.usefixtures("rootly")
def test_secrets_are_made_once_and_readable_to_their_part_alone(tmp_path: Path) -> None:
    written(tmp_path, tls=True)
    secrets = {p: p.read_text() for p in tmp_path.rglob("*") if p.suffix in (".token", ".key", ".password")}
    assert len(secrets) > 12
    for path in secrets:
        part = path.relative_to(tmp_path).parts[0]
        status = path.stat()
        assert status.st_uid == USERS.get(part, 0) and status.st_mode & 0o077 == 0, path
    written(tmp_path, tls=True)
    assert {p: p.read_text() for p in secrets} == secrets
    written(tmp_path, tls=False)
    assert not list(tmp_path.rglob("*.key"))


@pytest.mark.usefixtures("rootly")
@pytest.mark.parametrize("tls", [False, True])
def test_the_profile_tls_says_whether_there_are_certificates(tmp_path: Path, tls: bool) -> None:
    written(tmp_path, tls=tls)
    ran = run_vigia("compose", "certificates", "--dir", str(tmp_path))
    assert ran.status == (0 if tls else 1)
    assert "isolation-agent" in ran.stdout if tls else "set COMPOSE_PROFILES=tls" in ran.stderr


@pytest.mark.usefixtures("rootly")
@pytest.mark.parametrize("tls", [False, True])
def test_programs_accept_what_init_writes(tmp_path: Path, tls: bool) -> None:
    written(tmp_path, tls=tls)
    for argv in (
        ["promtool", "check", "config", str(tmp_path / "prometheus/prometheus.yml")],
        ["promtool", "check", "web-config", str(tmp_path / "prometheus/tls/prometheus.web.yml")],
        ["amtool", "check-config", str(tmp_path / "alertmanager/alertmanager.yml")],
        ["victoria-metrics", "-dryRun", f"-promscrape.config={tmp_path}/victoria-metrics/scrape.yml"],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    flags = (tmp_path / "victoria-metrics/flags").read_text().split()
    config = yaml.safe_load((tmp_path / "influxdb/config.yml").read_text())
    named = [word.partition("=")[2] for word in flags if "=" in word] + list(config.values())
    assert [Path(file).suffix for file in named] == ([".crt", ".key"] * 2 if tls else [])
    assert all(Path(file).is_file() for file in named)
    scheme = "https" if tls else "http"
    assert (tmp_path / "influxdb/url").read_text() == f"{scheme}://127.0.0.1:8086\n"
