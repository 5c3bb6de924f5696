"""Every listener of ours with certificates of vigia certs: who is served, and who is refused."""

from __future__ import annotations

import os
import re
import shlex
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from labkit import need_root, run_vigia
from portkit import free_port

from vigia.certs.authority import Authority
from vigia.certs.parts import PARTS
from vigia.stack import site as sites
from vigia.stack.site import Site
from vigia_testing import eventually

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.83.0.1"
AGENTS = {"vigia-probe": "probe.yaml", "vigia-exporter": "exporter.yaml", "vigia-enforcer": "enforcer.yaml"}
OTHERS = {
    "prometheus": ("prometheus", "--config.file={0}/prometheus.yml", "--storage.tsdb.path={0}/data"),
    "alertmanager": (
        *("prometheus-alertmanager", "--config.file={0}/alertmanager.yml", "--storage.path={0}/data"),
        "--cluster.listen-address=",
    ),
    "node_exporter": ("prometheus-node-exporter",),
}
GUIDE = (ROOT / "docs/how-to/tls.md").read_text()
FOUND, LOOK = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
PROGRAMS = (*AGENTS, "vigia-compare", "isolation-agent", *OTHERS)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's authority, with what it issued to every part."""
    folder = tmp_path_factory.mktemp("tls")
    assert run_vigia("certs", "init", "--dir", str(folder), "--host", HOST).status == 0
    return folder


def output(*argv: str, cwd: Path) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guide_makes_and_names_the_certificates_of_every_part(tmp_path: Path) -> None:
    words = shlex.split(FOUND.replace("/etc/vigia/tls", str(tmp_path)))
    assert words[0] == "vigia"
    assert run_vigia(*words[1:]).status == 0
    assert {file.stem for file in tmp_path.glob("*.crt")} == {"ca", *PARTS}
    assert {p.replace("_", "-") for p in PROGRAMS} <= {p.replace("_", "-") for p in PARTS}
    named = {"vigia-node", "vigia", *re.findall(r"[a-z_]+(?:-[a-z]+)?", GUIDE.lower().replace("-web", ""))}
    spelled = {"victoria-metrics": "victoriametrics"}
    assert {spelled.get(part, part) for part in PARTS} <= named
    (example,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    files = yaml.safe_load(example.replace("/etc/vigia/tls", str(tmp_path)))["tls"]
    assert all(Path(file).is_file() for file in files.values())
    config = yaml.safe_load(
        sites.compare(Site(HOST, {}, tmp_path / "password", {"vigia-compare": tmp_path}), {})
    )
    assert set(config["tls"]) == set(files)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another authority, that nobody here trusts."""
    folder = tmp_path_factory.mktemp("stranger")
    Authority.open(folder).issue("prometheus", ())
    return folder


def words(program: str, folder: Path, tls: Path, port: int) -> tuple[list[str], list[str]]:
    """How a program is started, and how it is asked for its health if it can be."""
    if program in ("vigia-compare", "isolation-agent"):
        return part(program, folder, tls, port)
    web = f"--web.config.file={tls / program}.web.yml"
    address = f"--web.listen-address={HOST}:{port}"
    if program in OTHERS:
        (folder / "prometheus.yml").touch()
        (folder / "alertmanager.yml").write_text("route: {receiver: x}\nreceivers: [{name: x}]\n")
        return [*(word.format(folder) for word in OTHERS[program]), address, web], []
    if program != "vigia-probe":
        need_root()
        (folder / "bpf").mkdir()
        subprocess.run(["mount", "-t", "bpf", f"vigia-test-{os.getpid()}", folder / "bpf"], check=True)
    (folder / "probe.yaml").write_text(
        f"node: lb1\nreflector:\n  listeners: [{{address: '{HOST}:{free_port()}'}}]\n"
    )
    common = f"node: lb1\nports_file: {folder}/ports.yaml\nbpf: {{pin_dir: {folder}/bpf/{program}}}\n"
    (folder / "ports.yaml").write_text("version: 1\nports: []\n")
    (folder / "exporter.yaml").write_text(common)
    (folder / "enforcer.yaml").write_text(f"{common}token_file: {folder}/token\n")
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text("0123456789abcdef0123\n")
    binary = str(ROOT / "bin" / program)
    url = f"--url=http://{HOST}:{port}/-/ready"
    return [binary, f"--config={folder / AGENTS[program]}", address, web], [binary, "healthcheck", url, web]


def part(program: str, folder: Path, tls: Path, port: int) -> tuple[list[str], list[str]]:
    """The same for the parts in Python, whose configuration has it all."""
    site = Site(
        HOST, {"lb1": HOST}, folder / "password", dict.fromkeys(("vigia-compare", "isolation-agent"), tls)
    )
    for token in ("webhook.token", "api.token", "lb1.token"):
        (folder / token).touch(mode=0o600)
        (folder / token).write_text(f"{token}-0123456789\n")
    policies = (ROOT / "deploy/isolation-agent/policies.yaml").read_text()
    (folder / "policies.yaml").write_text(policies)
    content = sites.compare(site, {})
    if program == "isolation-agent":
        content = sites.isolation_agent(site, folder, {"lb1": folder / "lb1.token"})
    config = folder / f"{program}.yaml"
    config.write_text(content.replace(f"listen: {HOST}:987", f"listen: {HOST}:{port} # 987"))
    common = [str(Path(sys.executable).with_name(program)), "--config", str(config)]
    return [*common, "run"], [*common, "healthcheck"]


@pytest.fixture(params=PROGRAMS)
def running(
    request: pytest.FixtureRequest, authority: Path, tmp_path: Path
) -> Iterator[tuple[str, list[str]]]:
    """A program that listens with TLS: its URL, and its health check."""
    port = free_port()
    start, health = words(request.param, tmp_path, authority, port)
    url = f"https://{HOST}:{port}"
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(start, stdout=out, stderr=out)
    try:
        client = trusting(authority, authority)

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return (
                    httpx.get(f"{url}/metrics", verify=client, trust_env=False, timeout=30).status_code == 200
                )
            except httpx.HTTPError:
                return False

        eventually(answers, lambda: f"{request.param} answers: {log.read_text()}")
        yield url, health
    finally:
        process.terminate()
        process.wait(90)
        if (tmp_path / "bpf").is_mount():
            subprocess.run(["umount", tmp_path / "bpf"], check=True)


def trusting(authority: Path, certificates: Path | None) -> ssl.SSLContext:
    """A client that trusts an authority, and shows prometheus's certificate of another, or none."""
    context = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    if certificates is not None:
        context.load_cert_chain(certificates / "prometheus.crt", certificates / "prometheus.key")
    return context


def test_only_clients_of_the_site_are_served(
    running: tuple[str, list[str]], authority: Path, stranger: Path
) -> None:
    url, health = running

    def get(where: str, verify: ssl.SSLContext | bool) -> httpx.Response:
        return httpx.get(f"{where}/metrics", verify=verify, trust_env=False, timeout=90)

    assert "build_info" in get(url, trusting(authority, authority)).text
    for nobody in (None, stranger):
        with pytest.raises(httpx.TransportError):
            get(url, trusting(authority, nobody))
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        get(url, trusting(stranger, stranger))
    try:
        plain = get(url.replace("https", "http"), False)
    except httpx.TransportError:
        pass
    else:  # Go tells such clients what they did wrong
        assert plain.status_code == 400
    assert "build_info" in output(*shlex.split(LOOK.replace("https://10.0.0.1:9872", url)), cwd=authority)
    if not health:
        return
    done = subprocess.run(health, capture_output=True, text=True, check=False)
    assert "-/ready" in done.stdout + done.stderr
    assert "CERTIFICATE" not in done.stderr
    assert "refused" not in done.stderr
