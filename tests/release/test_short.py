"""A release in short: what needs no other architecture, made twice, in other folders and under other settings."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from extendkit import git
from releasekit import GUIDE, WHO, Made, blocks, cloned, copied, key, release

PARTS = ("--only", "programs", "--only", "wheels", "--only", "chart", "--architecture", "amd64")


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, signer: Path) -> Made:
    tree = copied(tmp_path_factory.mktemp("first") / "tree")
    made = release(tree, tree / "dist", "--key", signer, *PARTS)
    assert made.status == 0, made.said
    assert git(tree, "status", "--porcelain") == "", "a release leaves nothing that git would see"
    return made


@pytest.fixture
def download(first: Made, tmp_path: Path, signer: Path) -> Path:
    """What a user has: the files, and the public key from elsewhere."""
    folder = tmp_path / "download"
    shutil.copytree(first.folder, folder)
    (line,) = re.findall(r'`(vigia-release namespaces="vigia-release") ssh-ed25519 AAAA\.\.\.`', GUIDE)
    (folder / "allowed_signers").write_text(f"{line} {signer.with_suffix('.pub').read_text()}")
    return folder


def verified(folder: Path) -> bool:
    """Do what the guide says."""
    (script,) = blocks("verify")
    done = subprocess.run(["sh", "-e", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode == 0


def test_it_says_where_it_is(first: Made) -> None:
    files = len(list(first.folder.iterdir()))
    assert first.said == f"{first.folder}: {files} files\n"
    assert files == len(first.sums()) + 2


def test_the_same_commit_gives_the_same_bytes(first: Made, tmp_path: Path, signer: Path) -> None:
    """Elsewhere, another day, with another umask, home, language and settings of the compilers."""
    tree = cloned(first.folder.parents[1], tmp_path / "some" / "where else")
    settings = {
        "GOFLAGS": "-tags=another",
        "GOARCH": "arm64",
        "GOAMD64": "v3",
        "LANG": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
        "SOURCE_DATE_EPOCH": "1",
        "PYTHONHASHSEED": "7",
    }
    before = os.umask(0o077)
    try:
        made = release(tree, tmp_path / "out", "--key", signer, *PARTS, env=settings)
    finally:
        os.umask(before)
    assert made.status == 0, made.said
    assert made.sums() == first.sums() != {}
    assert (made.folder / "SHA256SUMS.sig").read_bytes() == (first.folder / "SHA256SUMS.sig").read_bytes()


def test_what_is_said_of_the_files_is_true(first: Made) -> None:
    for name, digest in first.sums().items():
        assert hashlib.sha256((first.folder / name).read_bytes()).hexdigest() == digest, name


def test_a_download_is_verified_as_the_guide_says(download: Path) -> None:
    assert verified(download)
    next(download.glob("*.whl")).unlink()
    assert verified(download), "nobody needs every file"


def test_a_file_that_was_changed_is_found(download: Path) -> None:
    with next(download.glob("*.tar.gz")).open("ab") as file:
        file.write(b"x")
    assert not verified(download)


def test_checksums_that_were_changed_are_found(download: Path) -> None:
    file = next(download.glob("*.whl"))
    file.write_bytes(b"another")
    sums = download / "SHA256SUMS"
    digest = hashlib.sha256(b"another").hexdigest()
    sums.write_text(re.sub(rf"\w+  {re.escape(file.name)}", f"{digest}  {file.name}", sums.read_text()))
    assert not verified(download)


def test_another_key_does_not_verify(download: Path, tmp_path: Path) -> None:
    other = key(tmp_path, "other").with_suffix(".pub").read_text()
    (download / "allowed_signers").write_text(f'{WHO} namespaces="{WHO}" {other}')
    assert not verified(download)


def test_the_programs_are_static_and_say_their_version(first: Made, tmp_path: Path) -> None:
    with tarfile.open(first.file("amd64.tar.gz")) as tar:
        tar.extractall(tmp_path, filter="data")
        assert {(m.uid, m.gid, m.uname) for m in tar} == {(0, 0, "root")}
        assert len({m.mtime for m in tar}) == 1
    (folder,) = tmp_path.glob("vigia-*-linux-amd64")
    version = folder.name.split("-")[1]
    programs = sorted((folder / "bin").iterdir())
    assert [p.name for p in programs] == ["vigia-enforcer", "vigia-exporter", "vigia-probe"]
    for program in programs:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        assert re.match(
            rf"{program.name} {re.escape(version)} \(revision [0-9a-f]{{12}}, go", done.stdout + done.stderr
        )
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        assert "not a dynamic executable" in linked.stdout + linked.stderr
        assert f"{tmp_path.parent}".encode() not in program.read_bytes()
    units = {p.name for p in (folder / "systemd").iterdir()}
    assert {"vigia-probe.service", "vigia-compare.service", "vigia.sysusers"} <= units
    assert {p.name for p in folder.iterdir() if p.is_file()} == {"LICENSE", "CHANGELOG.md", "SECURITY.md"}


def test_the_wheels_have_what_their_packages_have(first: Made) -> None:
    wheels = {p.name.partition("-")[0]: p for p in first.folder.glob("*.whl")}
    assert set(wheels) == {
        *("isolation_agent", "vigia", "vigia_compare", "vigia_dashboards", "vigia_identity", "vigia_internal")
    }
    with zipfile.ZipFile(wheels["vigia"]) as wheel:
        names = set(wheel.namelist())
    assert {"vigia/lab/topologies/demo.yaml", "vigia/lab/kubernetes/control.sh"} <= names
    requirements = first.file("requirements.txt").read_text()
    assert "numpy==" in requirements and "pytest==" not in requirements
    pinned = re.findall(r"^[a-z0-9-]+==", requirements, re.MULTILINE)
    assert len(pinned) > 40 and requirements.count("--hash=sha256:") >= len(pinned)


def test_the_chart_brings_its_files_and_not_their_tests(first: Made) -> None:
    with tarfile.open(first.file(".tgz")) as tar:
        names = tar.getnames()
        assert all(m.isreg() for m in tar), "links lead nowhere in a chart"
    assert names == sorted(names)
    assert {"vigia/Chart.yaml", "vigia/values.schema.json", "vigia/files/policies.yaml"} <= set(names)
    assert any(n.startswith("vigia/files/alert-rules/") for n in names)
    assert not [n for n in names if "alert-rules/tests" in n]
