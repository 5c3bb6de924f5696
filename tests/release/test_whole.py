"""A whole release by make release, twice, each in a checkout of its own: the same bytes, and every part does its work."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from nodekit import Node, booted
from release.build import COMMANDS, SITE
from releasekit import ROOT, Made, cloned, copied, foreign, key, segments
from releasekit import architecture as native

from vigia_testing import eventually

pytestmark = [pytest.mark.long, pytest.mark.release]

VERSION = (ROOT / "VERSION").read_text().strip()
MACHINES = {"amd64": 62, "arm64": 183}
"""e_machine of elf(5)."""

PT_DYNAMIC, PT_INTERP = 2, 3

BUILT = {
    "amd64": {"GOARCH": "amd64", "GOAMD64": "v1", "GOOS": "linux", "CGO_ENABLED": "0", "-trimpath": "true"},
    "arm64": {"GOARCH": "arm64", "GOARM64": "v8.0", "GOOS": "linux", "CGO_ENABLED": "0", "-trimpath": "true"},
}
"""What go version -m says of a program: for every processor of the architecture."""


def made(tree: Path, signer: Path) -> Made:
    argv = ["make", "--no-print-directory", "release", f"KEY={signer}"]
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "VIRTUAL_ENV", "PYTHONPATH"))}
    done = subprocess.run(argv, cwd=tree, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Made(0, done.stdout, tree / f"dist/vigia-{VERSION}")


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, signer: Path) -> Made:
    return made(copied(tmp_path_factory.mktemp("whole") / "checkout"), signer)


def test_twice_it_is_the_same(whole: Made, tmp_path: Path, signer: Path) -> None:
    again = made(cloned(whole.folder.parents[1], tmp_path / "another place"), signer)
    assert again.sums() == whole.sums()
    assert (again.folder / "SHA256SUMS.sig").read_bytes() == (whole.folder / "SHA256SUMS.sig").read_bytes()
    shutil.rmtree(tmp_path / "another place")


def test_it_has_what_the_guide_lists(whole: Made) -> None:
    table = (ROOT / "docs/how-to/release.md").read_text().partition("## Verify")[0]
    named = [
        n for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for n in re.findall(r"`([^`]+)`", row)
    ]
    wanted = {
        n.replace("VERSION", VERSION).replace("ARCH", a) for n in named if "*" not in n for a in MACHINES
    }
    there = {p.name for p in whole.folder.iterdir()}
    assert wanted | {p.name for p in whole.folder.glob("*.whl")} == there
    assert len(there) == len(whole.sums()) + 2


@pytest.mark.parametrize("architecture", MACHINES)
def test_programs_are_static_of_their_architecture_and_run(
    whole: Made, tmp_path: Path, architecture: str
) -> None:
    with tarfile.open(whole.file(f"vigia-{VERSION}-linux-{architecture}.tar.gz")) as tar:
        tar.extractall(tmp_path, filter="data")
    programs = sorted(tmp_path.glob("*/bin/*"))
    assert [p.name for p in programs] == ["vigia-enforcer", "vigia-exporter", "vigia-probe"]
    for program in programs:
        assert head(program)[:6] == b"\x7fELF\x02\x01" and head(program)[18] == MACHINES[architecture]
        assert not {PT_DYNAMIC, PT_INTERP} & segments(program), "nothing is loaded at its start"
        argv = ["go", "version", "-m", program]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        built = dict(re.findall(r"^\tbuild\t([^=\n]+)=(.*)$", said, re.MULTILINE))
        assert {k: built.get(k) for k in BUILT[architecture]} == BUILT[architecture]
        argv = [*foreign(architecture), program, "--version"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert f"{program.name} {VERSION} (" in done.stdout + done.stderr, done.stderr


def test_the_bill_of_materials_is_valid_and_complete(whole: Made, tmp_path: Path) -> None:
    text = whole.file("sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    urls = {unquote(c["purl"]) for c in bill["components"]}
    assert bill["metadata"]["component"]["version"] == VERSION
    with tarfile.open(whole.file(f"vigia-{VERSION}-linux-amd64.tar.gz")) as tar:
        tar.extractall(tmp_path, filter="data")
    for program in tmp_path.glob("*/bin/*"):
        said = subprocess.run(
            ["go", "version", "-m", program], capture_output=True, text=True, check=True
        ).stdout
        linked = re.findall(r"^\tdep\t(\S+)\t(\S+)", said, re.MULTILINE)
        assert linked and {f"pkg:golang/{p}@{v}" for p, v in linked} <= urls
    locked = set(re.findall(r"^([a-z0-9-]+==\S+)", whole.file("requirements.txt").read_text(), re.MULTILINE))
    assert locked and {f"pkg:pypi/{line.replace('==', '@')}" for line in locked} <= urls
    assert any(u.startswith("pkg:golang/std@") for u in urls)
    for name in ("python3.11-minimal", "libc6", "ca-certificates"):
        assert any(u.startswith(f"pkg:deb/debian/{name}@") for u in urls), name


class Images:
    """An archive of images, unpacked."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.folder = folder
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        index = json.loads((folder / "index.json").read_text())
        self.manifests = {
            m["annotations"]["org.opencontainers.image.ref.name"]: m for m in index["manifests"]
        }

    def blob(self, described: dict[str, Any]) -> bytes:
        kind, _, digest = described["digest"].partition(":")
        content = (self.folder / "blobs" / kind / digest).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest and len(content) == described["size"]
        return content

    def image(self, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the configuration of an image and its layers."""
        manifest = json.loads(self.blob(self.manifests[f"vigia/{name}:{VERSION}"]))
        return json.loads(self.blob(manifest["config"])), manifest["layers"]

    def layer(self, described: dict[str, Any]) -> Path:
        self.blob(described)
        return self.folder / "blobs" / described["digest"].replace(":", "/")


@pytest.fixture(scope="module", params=MACHINES)
def images(
    request: pytest.FixtureRequest, whole: Made, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Images]:
    folder = tmp_path_factory.mktemp("images")
    found = Images(whole.file(f"images-{VERSION}-linux-{request.param}.tar.gz"), folder)
    yield found
    shutil.rmtree(folder)


def test_the_images_are_those_of_the_chart(images: Images) -> None:
    targets = re.findall(
        r"^FROM \S+ AS (\S+)$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE
    )
    parts = {n.removeprefix("vigia/").partition(":")[0] for n in images.manifests}
    assert parts == {
        "probe",
        "probe-unprivileged",
        "exporter",
        "enforcer",
        "isolation-agent",
        "compare",
        "identity",
    }
    assert parts <= set(targets)
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text()
    for part in parts:
        config, layers = images.image(part)
        assert config["architecture"] in MACHINES and config["os"] == "linux"
        assert [image["digest"] for image in layers] == config["rootfs"]["diff_ids"]
        stage = dockerfile.partition(f" AS {part}\n")[2].partition("\nFROM ")[0]
        user = re.search(r"^USER (\S+)", stage, re.MULTILINE)
        assert config["config"]["User"] == (user[1] if user else "0"), part


def test_only_the_probe_has_rights_with_its_file(images: Images) -> None:
    rights = {}
    for part in ("probe", "probe-unprivileged", "exporter", "enforcer"):
        _, (layer,) = images.image(part)
        with tarfile.open(images.layer(layer)) as tar:
            (program,) = [m for m in tar if m.isreg()]
            rights[part] = program.pax_headers.get("SCHILY.xattr.security.capability", "")
    # cap_net_bind_service,cap_net_admin,cap_net_raw,cap_sys_admin+ep as setcap writes it
    assert rights.pop("probe").encode().hex() == "0100000200342000" + "00" * 12
    assert set(rights.values()) == {""}


def test_the_services_start_on_what_is_in_their_images(images: Images, tmp_path: Path) -> None:
    config, layers = images.image("compare")
    for layer in layers:
        with tarfile.open(images.layer(layer)) as tar:
            tar.extractall(tmp_path / "root", filter="tar")
    assert (tmp_path / "root/etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE") > 100
    architecture = config["architecture"]
    for part in ("isolation-agent", "compare", "identity"):
        described, its = images.image(part)
        assert its == layers, "they have their layers in common"
        assert described["config"]["Env"] == config["config"]["Env"]
        started = inside(tmp_path / "root", architecture, [*described["config"]["Entrypoint"], "--version"])
        env = dict(line.split("=", 1) for line in described["config"]["Env"])
        done = subprocess.run(
            started, env={**env, "PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and VERSION in done.stdout, done.stderr
    libraries = [p.name for p in (tmp_path / "root/opt/vigia").rglob("*.cpython-311-*.so")]
    wanted = {"amd64": "x86_64", "arm64": "aarch64"}[architecture]
    assert libraries and all(wanted in name for name in libraries)


def inside(root: Path, architecture: str, words: Sequence[str]) -> list[str | Path]:
    """Return how to run a program of a root, which an emulator takes files from before it takes them from here."""
    emulator = foreign(architecture)
    if not emulator:
        return ["chroot", root, *words]
    return [*emulator, "-L", root, root / words[0].removeprefix("/"), *words[1:]]


@pytest.mark.parametrize("architecture", MACHINES)
@pytest.mark.parametrize(("package", "programs"), [("vigia-site", SITE), ("vigia-cli", COMMANDS)])
def test_packages_with_python_are_of_their_architecture(
    whole: Made, tmp_path: Path, architecture: str, package: str, programs: Mapping[str, str]
) -> None:
    file = whole.folder / f"{package}_{VERSION}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--extract", file, tmp_path], check=True)
    assert {p.name for p in (tmp_path / "usr/bin").iterdir()} == set(programs)
    compiled = [
        p for p in (tmp_path / "usr/lib" / package).rglob("*") if p.is_file() and head(p)[:4] == b"\x7fELF"
    ]
    assert len(compiled) > 20 and {head(p)[18] for p in compiled} == {MACHINES[architecture]}


def head(path: Path) -> bytes:
    """Return the beginning of a file, padded."""
    with path.open("rb") as file:
        return file.read(20).ljust(20, b"\0")


@pytest.fixture
def machine(tmp_path: Path, whole: Made) -> Iterator[Node]:
    """A Debian with Python, and the packages of a site in /srv."""
    root = tmp_path / "machine"
    root.mkdir()
    with booted(root, "systemd python3 libstdc++6") as node:
        for name in ("vigia-base_*_all.deb", f"vigia-site_*_{native()}.deb"):
            (package,) = whole.folder.glob(name)
            shutil.copy(package, root / "srv" / package.name)
        yield node


def test_a_site_runs_from_its_package_and_goes_without_a_trace(machine: Node) -> None:
    listed = "find /usr /etc/vigia /var/lib/vigia* -xdev 2>/dev/null | sort || true"
    before = machine.run(listed)
    machine.run("dpkg --install /srv/vigia-base_*.deb /srv/vigia-site_*.deb", seconds=900)
    for program in ("isolation-agent", "vigia-compare", "vigia-identity"):
        assert VERSION in machine.run(f"{program} --version")
    examples = "/usr/share/doc/vigia-site/examples"
    machine.run(f"cp {examples}/compare.yaml /etc/vigia/compare.yaml; chgrp vigia /etc/vigia/compare.yaml")
    machine.run("systemctl enable --now vigia-compare; systemctl reload vigia-compare")
    running = [*machine.entering, "vigia-compare", "--config", "/etc/vigia/compare.yaml", "healthcheck"]

    def answers() -> bool:
        done = subprocess.run(running, capture_output=True, text=True, check=False)
        return "not ready" in done.stdout + done.stderr or done.returncode == 0

    eventually(answers, "the service answers, though it has no Prometheus", 120)
    assert machine.shown("vigia-compare", "ActiveState") == "active"
    assert machine.shown("vigia-compare", "NRestarts") == "0"
    assert (
        machine.run(f"stat -c %U /proc/{machine.shown('vigia-compare', 'MainPID')}").strip()
        == "vigia-compare"
    )
    machine.run("dpkg --purge vigia-site vigia-base")
    assert machine.run(listed) == before
